"""The table of watched kinds, and how bytes of the API server become an entry of the watch copy.

One row a kind: its token (as in subjects), its resource, its Struct. Rows that are not on the bus are here for the job integrations: `KINDS` is what every
gateway watches but for them, `watched_kinds` adds a row for each kind of job that is enabled.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

import msgspec

from services.watcher.core_kinds import (
    DeviceClass,
    Job,
    JobObject,
    LimitRange,
    Namespace,
    PodTemplate,
    PriorityClass,
    ProvisioningRequest,
    ResourceClaimTemplate,
    RuntimeClass,
)
from shared.api import names
from shared.api.admission_check import AdmissionCheck
from shared.api.cluster_queue import ClusterQueue
from shared.api.cohort import Cohort
from shared.api.conditions import is_true
from shared.api.decoding import decode
from shared.api.local_queue import LocalQueue
from shared.api.pods import PodTemplateSpec
from shared.api.provisioning_request_config import ProvisioningRequestConfig
from shared.api.raw_workload import RawWorkload
from shared.api.resource_flavor import ResourceFlavor
from shared.api.topology import Topology
from shared.api.workload import PodSet, Workload, WorkloadSpec
from shared.api.workload_priority_class import WorkloadPriorityClass
from shared.jobs.pod_view import Pod, is_terminated
from shared.jobs.protocol import JobKind
from shared.jobs.queueing_parent import GroupedParent
from shared.jobs.registry import token_of
from shared.kube import resources
from shared.kube.resources import Resource

ApiObject = (
    Workload
    | ClusterQueue
    | LocalQueue
    | Cohort
    | ResourceFlavor
    | AdmissionCheck
    | WorkloadPriorityClass
    | Topology
    | ProvisioningRequestConfig
    | ProvisioningRequest
    | PodTemplate
    | Namespace
    | PriorityClass
    | LimitRange
    | RuntimeClass
    | DeviceClass
    | ResourceClaimTemplate
    | Job
    | JobObject
    | Pod
)


class WatchedKind(msgspec.Struct, frozen=True, kw_only=True):
    """One row: `optional` kinds may be missing in a cluster, `query` narrows list and watch."""

    token: str
    resource: Resource
    type: type[ApiObject]
    query: dict[str, str] = {}
    optional: bool = False
    on_bus: bool = True
    lean: bool = False
    """Only the Struct is kept, no bytes."""
    job: JobKind | None = None
    """The integration, of a kind of job."""


KINDS: Mapping[str, WatchedKind] = {
    kind.token: kind
    for kind in (
        WatchedKind(token="namespace", resource=resources.NAMESPACES, type=Namespace),
        WatchedKind(token="priorityclass", resource=resources.PRIORITY_CLASSES, type=PriorityClass, on_bus=False),
        WatchedKind(
            token="workloadpriorityclass", resource=resources.WORKLOAD_PRIORITY_CLASSES, type=WorkloadPriorityClass
        ),
        WatchedKind(token="topology", resource=resources.TOPOLOGIES, type=Topology),
        WatchedKind(token="resourceflavor", resource=resources.RESOURCE_FLAVORS, type=ResourceFlavor),
        WatchedKind(token="admissioncheck", resource=resources.ADMISSION_CHECKS, type=AdmissionCheck),
        WatchedKind(
            token="provisioningrequestconfig",
            resource=resources.PROVISIONING_REQUEST_CONFIGS,
            type=ProvisioningRequestConfig,
        ),
        WatchedKind(token="cohort", resource=resources.COHORTS, type=Cohort),
        WatchedKind(token="clusterqueue", resource=resources.CLUSTER_QUEUES, type=ClusterQueue),
        WatchedKind(token="localqueue", resource=resources.LOCAL_QUEUES, type=LocalQueue),
        WatchedKind(
            token="podtemplate",
            resource=resources.POD_TEMPLATES,
            type=PodTemplate,
            query={"labelSelector": f"{names.MANAGED_LABEL}=true"},
        ),
        WatchedKind(
            token="provisioningrequest",
            resource=resources.PROVISIONING_REQUESTS,
            type=ProvisioningRequest,
            optional=True,
        ),
        WatchedKind(token="limitrange", resource=resources.LIMIT_RANGES, type=LimitRange),
        WatchedKind(token="runtimeclass", resource=resources.RUNTIME_CLASSES, type=RuntimeClass),
        WatchedKind(token="deviceclass", resource=resources.DEVICE_CLASSES, type=DeviceClass, optional=True),
        WatchedKind(
            token="resourceclaimtemplate",
            resource=resources.CLAIM_TEMPLATES,
            type=ResourceClaimTemplate,
            optional=True,
        ),
        WatchedKind(token="workload", resource=resources.WORKLOADS, type=Workload),
        WatchedKind(token="job", resource=resources.JOBS, type=Job, on_bus=False),
    )
}


_PODS = WatchedKind(
    token="pod",
    resource=resources.PODS,
    type=Pod,
    # All others are none of our business, and there may be very many.
    query={"labelSelector": f"{names.MANAGED_LABEL}=true"},
    on_bus=False,
)


UNMARKED_POD = "unmarkedpod"
"""Token of pods that a StatefulSet has made and nobody has marked: those of a set that queues are marked one by one, by us."""
STATEFUL_SET = token_of(resources.STATEFUL_SETS.group, resources.STATEFUL_SETS.kind)
_SETS = (
    WatchedKind(token=STATEFUL_SET, resource=resources.STATEFUL_SETS, type=JobObject, on_bus=False),
    WatchedKind(
        token=UNMARKED_POD,
        resource=resources.PODS,
        type=Pod,
        # The first is a label that every pod of a StatefulSet has. Once it is marked, a pod leaves this watch for the other one.
        query={"labelSelector": f"statefulset.kubernetes.io/pod-name,!{names.MANAGED_LABEL}"},
        on_bus=False,
        lean=True,
    ),
)


def watched_kinds(jobs: Iterable[JobKind], parents: Iterable[GroupedParent] = ()) -> dict[str, WatchedKind]:
    """The table of a gateway in which these kinds of jobs, and these whose pods queue in groups, are enabled. A kind of another group than Kubernetes' own
    may be missing in the cluster, appear later, and disappear."""
    table = {token: kind for token, kind in KINDS.items() if kind.type is not Job}
    for job in jobs:
        token = token_of(job.group, job.kind)
        row = _PODS if token == _PODS.token else KINDS.get(token)
        if row is not None:
            table[token] = msgspec.structs.replace(row, job=job)
            continue
        table[token] = WatchedKind(
            token=token,
            resource=Resource(job.group, job.version, job.plural, job.kind),
            type=JobObject,
            optional="." in job.group,
            on_bus=False,
            job=job,
        )
    for parent in parents:
        table |= {row.token: row for row in _SETS}
        token = token_of(parent.group, parent.kind)
        if token not in table:
            resource = Resource(parent.group, parent.version, parent.plural, parent.kind)
            table[token] = WatchedKind(token=token, resource=resource, type=JobObject, optional=True, on_bus=False)
    return table


class MalformedObject(ValueError):
    """The API server holds an object that is not of the shape its kind promises; the text names the path."""


class Stored(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One object of the watch copy, in one state."""

    kind: str
    """Token of `KINDS`."""
    namespace: str
    name: str
    uid: str
    version: int
    """metadata.resourceVersion."""
    object: ApiObject
    raw: bytes = b""
    """JSON without managedFields, of unfinished Workloads and Jobs, and of all other jobs; apiVersion and kind may be missing."""

    @property
    def key(self) -> str:
        """`namespace/name`, or the bare name of a cluster-scoped object."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


def read(token: str, raw: bytes, kinds: Mapping[str, WatchedKind] = KINDS) -> Stored:
    """The entry for an object as the API server sent it. Raises MalformedObject."""
    kind = kinds[token]
    kept = b""
    try:
        found: ApiObject
        if kind.type is Workload:
            found = _workload(raw)
            kept = b"" if is_finished(found) else without_managed_fields(raw)
        else:
            found = decode(kind.type, raw)
            if not kind.lean and not _is_over(found):
                kept = without_managed_fields(raw)
        metadata = found.metadata
        version = int(metadata.resource_version)
    except (msgspec.DecodeError, ValueError) as error:
        raise MalformedObject(str(error)) from error
    if not metadata.name or not metadata.uid:
        raise MalformedObject("metadata.name and metadata.uid must be set")
    return Stored(
        kind=token, namespace=metadata.namespace, name=metadata.name, uid=metadata.uid, version=version,
        object=found, raw=kept,
    )  # fmt: skip


def _is_over(found: ApiObject) -> bool:
    """Nobody will ask for its bytes."""
    if isinstance(found, Pod):
        return is_terminated(found)
    return not isinstance(found, Job | JobObject) or (isinstance(found, Job) and found.is_finished)


def is_finished(workload: Workload) -> bool:
    return is_true(workload.status.conditions, names.FINISHED)


def without_managed_fields(raw: bytes) -> bytes:
    """The same JSON object, all else byte for byte. Nobody here reads managedFields, and they are half of many objects."""
    top = _map_decoder.decode(raw)
    metadata = _map_decoder.decode(top["metadata"])
    if metadata.pop("managedFields", None) is None:
        return raw
    top["metadata"] = msgspec.Raw(msgspec.json.encode(metadata))
    return msgspec.json.encode(top)


def _workload(raw: bytes) -> Workload:
    """Like decoding a Workload, but templates of the same bytes become the same Struct, and the pods of finished ones are left out."""
    try:
        found = _raw_workload_decoder.decode(raw)
    except msgspec.ValidationError:
        return decode(Workload, raw)
    spec = found.spec
    finished = is_true(found.status.conditions, names.FINISHED)
    return Workload(
        metadata=found.metadata,
        spec=WorkloadSpec(
            pod_sets=()
            if finished
            else tuple(
                PodSet(
                    name=pod_set.name,
                    count=pod_set.count,
                    min_count=pod_set.min_count,
                    topology_request=pod_set.topology_request,
                    template=_template(bytes(pod_set.template)),
                )
                for pod_set in spec.pod_sets
            ),
            queue_name=spec.queue_name,
            priority_class_ref=spec.priority_class_ref,
            priority=spec.priority,
            active=spec.active,
            maximum_execution_time_seconds=spec.maximum_execution_time_seconds,
            preemption_gates=spec.preemption_gates,
        ),
        status=found.status,
    )


@lru_cache(maxsize=4096)
def _template(raw: bytes) -> PodTemplateSpec:
    return decode(PodTemplateSpec, raw)


_map_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
_raw_workload_decoder = msgspec.json.Decoder(RawWorkload)
