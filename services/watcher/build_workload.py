"""The Workload that stands for a job, as it is sent to the API server (job specification 7). Pure: priority and job are given, nothing is read.

Labels and annotations are copied at creation only. The complete raw templates are kept, since restoring a job needs all of them.
"""

from collections.abc import Iterable, Mapping

import msgspec

from shared.api import names
from shared.api.raw_workload import RawWorkload
from shared.api.validation import label_value_errors
from shared.jobs.equivalence import without_duplicate_env
from shared.jobs.manifest import JsonObject, text, texts
from shared.jobs.naming import workload_name
from shared.jobs.podset_info import PermanentError
from shared.jobs.protocol import JobKind, JobPodSet
from shared.jobs.registry import owner_kind

_MAX_POD_SETS = 18
NO_ANNOTATIONS: Mapping[str, str] = {}
_INT32_MAX = 2**31 - 1


class Priority(msgspec.Struct, frozen=True):
    """Where a workload's priority comes from; without a class it is 0."""

    value: int = 0
    group: str = ""
    kind: str = ""
    name: str = ""


def name_of_workload(kind: JobKind, job: JsonObject, extra: str = "") -> str:
    """The name that the job's Workload has to have. `extra` tells the slices of an elastic job apart."""
    return workload_name(
        kind=kind.kind,
        group=kind.group,
        name=text(job, "metadata", "name"),
        uid=text(job, "metadata", "uid"),
        extra=extra,
    )


def pod_sets_of_job(kind: JobKind, job: JsonObject) -> tuple[JobPodSet, ...]:
    """What the job asks for now, comparable with a workload. Raises PermanentError if that is not a possible workload."""
    pod_sets = tuple(without_duplicate_env(pod_set) for pod_set in kind.pod_sets(job))
    if not 1 <= len(pod_sets) <= _MAX_POD_SETS:
        raise PermanentError(f"a workload has 1 to {_MAX_POD_SETS} pod sets, this job has {len(pod_sets)}")
    return pod_sets


def pod_sets_of_workload(raw: bytes) -> tuple[JobPodSet, ...]:
    """The pod sets of a stored workload, with their complete templates. `raw` empty (a finished one): none."""
    if not raw:
        return ()
    workload = msgspec.json.decode(raw, type=RawWorkload)
    return tuple(
        JobPodSet(
            name=pod_set.name,
            count=pod_set.count,
            min_count=pod_set.min_count,
            template=msgspec.json.decode(pod_set.template, type=dict[str, object]),
            topology_request=None
            if pod_set.topology_request is None
            else msgspec.to_builtins(pod_set.topology_request),
        )
        for pod_set in workload.spec.pod_sets
    )


def max_execution_seconds(job: JsonObject) -> int | None:
    """The label with the longest run time, if it is a positive int32."""
    try:
        seconds = int(text(job, "metadata", "labels", names.MAX_EXEC_TIME_LABEL))
    except ValueError:
        return None
    return seconds if 0 < seconds <= _INT32_MAX else None


def build_spec(job: JsonObject, pod_sets: Iterable[JobPodSet], priority: Priority) -> JsonObject:
    """`spec` without `active`."""
    spec: JsonObject = {
        "podSets": [pod_set.manifest() for pod_set in pod_sets],
        "priority": priority.value,
    }
    if queue := text(job, "metadata", "labels", names.QUEUE_NAME_LABEL):
        spec["queueName"] = queue
    if priority.name:
        spec["priorityClassRef"] = {"group": priority.group, "kind": priority.kind, "name": priority.name}
    seconds = max_execution_seconds(job)
    if seconds is not None:
        spec["maximumExecutionTimeSeconds"] = seconds
    return spec


def build_workload(
    kind: JobKind,
    job: JsonObject,
    priority: Priority,
    *,
    label_keys_to_copy: Iterable[str] = (),
    name: str = "",
    more_annotations: Mapping[str, str] = NO_ANNOTATIONS,
) -> JsonObject:
    """The Workload to create. `name`: another one than the ordinary. Raises PermanentError."""
    labels = {key: value for key in label_keys_to_copy if (value := text(job, "metadata", "labels", key))}
    uid = text(job, "metadata", "uid")
    if not label_value_errors(uid):
        labels[names.JOB_UID_LABEL] = uid
    annotations = {
        key: value
        for key, value in texts(job, "metadata", "annotations").items()
        if key.startswith(names.PROVISIONING_ANNOTATION_PREFIX) or (key == names.ADMISSION_GATED_BY and value)
    } | dict(more_annotations)
    metadata: JsonObject = {
        "name": name or name_of_workload(kind, job),
        "namespace": text(job, "metadata", "namespace"),
        "labels": labels,
        "finalizers": [names.RESOURCE_IN_USE],
        "ownerReferences": [owner_reference(kind, job)],
    }
    if annotations:
        metadata["annotations"] = annotations
    return {
        "apiVersion": names.GROUP_VERSION,
        "kind": names.WORKLOAD,
        "metadata": metadata,
        "spec": build_spec(job, pod_sets_of_job(kind, job), priority),
    }


def owner_reference(kind: JobKind, job: JsonObject) -> JsonObject:
    """The controller reference to the job."""
    return {
        "apiVersion": owner_kind(kind).api_version,
        "kind": kind.kind,
        "name": text(job, "metadata", "name"),
        "uid": text(job, "metadata", "uid"),
        "controller": True,
        "blockOwnerDeletion": True,
    }
