"""Projections: what a decision needs of each Kubernetes object, as OBJECTS carries it.

One Struct per kind. `version` (a resourceVersion, as an integer) orders the states of one object; a new `uid` is a new object. No environment
values, no commands, no secrets. Quantities travel as the text users wrote: `decide/requests` makes integers of them, so that a LimitRange or a
transformation edit is a local recomputation.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from shared.events.codec import Codec


class _Object(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True, tag_field="t"):
    namespace: str = ""
    name: str
    uid: str = ""
    version: int
    generation: int = 0
    created: int = 0
    """Creation, seconds since the epoch."""
    deleting: bool = False
    finalizers: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """`namespace/name`, or the bare name of a cluster-scoped object."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class Condition(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A condition of a status; `changed` is lastTransitionTime in seconds."""

    type: str
    status: bool
    reason: str = ""
    message: str = ""
    changed: int = 0
    observed_generation: int = 0


class Toleration(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class Taint(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    key: str
    value: str = ""
    effect: str = ""


class Requirement(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One expression of a label selector or of a node selector term."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class Selector(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A label selector; empty matches everything. Where it may be absent, None matches nothing."""

    labels: dict[str, str] = {}
    expressions: tuple[Requirement, ...] = ()


class Container(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Requests and limits of one container, as written; `sidecar`: an init container that keeps running."""

    requests: dict[str, str] = {}
    limits: dict[str, str] = {}
    sidecar: bool = False
    ports: tuple[str, ...] = ()
    """`hostPort/containerPort/protocol` of each port: part of the shape that equivalence looks at."""


class PodClaim(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A resource claim of a pod: an existing one by name, or one made of a template."""

    name: str
    claim: str = ""
    template: str = ""


class PodSet(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """One pod set of a workload, its template reduced to what decisions look at."""

    name: str = "main"
    count: int = 1
    min_count: int | None = None
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    pod_requests: dict[str, str] | None = None
    pod_limits: dict[str, str] | None = None
    overhead: dict[str, str] = {}
    runtime_class: str = ""
    node_selector: dict[str, str] = {}
    affinity_terms: tuple[tuple[Requirement, ...], ...] | None = None
    """Required node affinity: terms are ORed, the expressions of one are ANDed; None when there is none."""
    tolerations: tuple[Toleration, ...] = ()
    template_hash: str = ""
    """Equal for pod templates that are deeply equal."""
    topology: dict[str, str] = {}
    claims: tuple[PodClaim, ...] = ()


class PodSetAssignment(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """What one pod set got: flavor by resource, and usage for all its pods in base units (milli-cpu, bytes, pieces)."""

    name: str
    count: int
    flavors: dict[str, str] = {}
    usage: dict[str, int] = {}
    delayed_topology: bool = False
    """delayedTopologyRequest is Pending and there is no topologyAssignment yet."""


class Admission(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    cluster_queue: str
    pod_sets: tuple[PodSetAssignment, ...] = ()


class CheckState(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """The state of one admission check of a workload."""

    name: str
    state: Literal["Pending", "Ready", "Retry", "Rejected"] = "Pending"
    message: str = ""
    changed: int = 0
    requeue_after_s: int | None = None
    retry_count: int | None = None
    has_updates: bool = False


class PreemptionGate(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A gate of spec.preemptionGates with its position in the status; `changed` is when it last moved."""

    name: str
    open: bool = False
    changed: int = 0


class Owner(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """An owner reference."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool = False


class Workload(_Object, frozen=True, gc=False, kw_only=True, omit_defaults=True, tag="objects.Workload/1"):
    """A workload. Once finished only a stub is kept: identity, `finished`, queue and admission's ClusterQueue name."""

    queue_name: str = ""
    priority: int = 0
    priority_class: str = ""
    priority_class_source: Literal["", "WorkloadPriorityClass", "PriorityClass"] = ""
    priority_boost: int = 0
    active: bool = True
    max_execution_s: int | None = None
    pod_sets: tuple[PodSet, ...] = ()
    conditions: tuple[Condition, ...] = ()
    admission: Admission | None = None
    checks: tuple[CheckState, ...] = ()
    preemption_gates: tuple[PreemptionGate, ...] = ()
    requeue_count: int = 0
    requeue_at: int | None = None
    """Seconds since the epoch."""
    has_requeue_state: bool = False
    reclaimable: dict[str, int] = {}
    past_execution_s: int = 0
    evictions: int = 0
    """Sum of status.schedulingStats.evictions: tells two evictions of the same second apart."""
    incarnation: str = ""
    owners: tuple[Owner, ...] = ()
    annotations: dict[str, str] = {}
    """Only those that decisions, checks (gates, boost, `provreq.kueue.x-k8s.io/`) or custom metric labels read."""
    job_uid: str = ""
    finished: bool = False
    labels: dict[str, str] = {}
    """Only those that custom metric labels read."""
    has_variants: bool = False
    """A parent of concurrent admission: its variants wait and hold quota in its place."""


class FlavorQuota(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Quota of one resource of one flavor, as written; None: no limit."""

    resource: str
    nominal: str = "0"
    borrowing_limit: str | None = None
    lending_limit: str | None = None


class Flavor(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    name: str
    quotas: tuple[FlavorQuota, ...] = ()


class ResourceGroup(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    covered: tuple[str, ...] = ()
    flavors: tuple[Flavor, ...] = ()


class CheckRule(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """An admission check of a ClusterQueue; no flavors means all."""

    name: str
    on_flavors: tuple[str, ...] = ()


class QueueUsage(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """status.flavorsReservation or flavorsUsage: (flavor, resource, total, borrowed) in base units."""

    rows: tuple[tuple[str, str, int, int], ...] = ()


class ClusterQueue(_Object, frozen=True, gc=False, kw_only=True, omit_defaults=True, tag="objects.ClusterQueue/1"):
    cohort: str = ""
    strategy: Literal["StrictFIFO", "BestEffortFIFO"] = "BestEffortFIFO"
    groups: tuple[ResourceGroup, ...] = ()
    namespace_selector: Selector | None = None
    when_can_borrow: str = "MayStopSearch"
    when_can_preempt: str = "TryNextFlavor"
    fungibility_preference: str = ""
    reclaim_within_cohort: str = "Never"
    borrow_within_cohort: str = "Never"
    borrow_max_priority: int | None = None
    within_cluster_queue: str = "Never"
    checks: tuple[CheckRule, ...] = ()
    stop_policy: str = "None"
    fair_weight: str = "1"
    admission_mode: str = ""
    migration_mode: str = ""
    """concurrentAdmissionPolicy.migration.mode."""
    last_acceptable_flavor: str = ""
    """concurrentAdmissionPolicy.migration.constraints.lastAcceptableFlavorName."""
    weighted_share: int | None = None
    """status.fairSharing.weightedShare; None = no such status."""
    status_pending: int = 0
    status_reserving: int = 0
    status_admitted: int = 0
    status_reservation: QueueUsage = QueueUsage()
    status_usage: QueueUsage = QueueUsage()
    conditions: tuple[Condition, ...] = ()
    labels: dict[str, str] = {}
    """Only those that metrics read, as with the annotations."""
    annotations: dict[str, str] = {}


class LocalQueue(_Object, frozen=True, gc=False, kw_only=True, omit_defaults=True, tag="objects.LocalQueue/1"):
    cluster_queue: str = ""
    stop_policy: str = "None"
    fair_weight: str = "1"
    consumed: dict[str, str] = {}
    """admissionFairSharingStatus.consumedResources."""
    consumed_at: int | None = None
    """admissionFairSharingStatus.lastUpdate, seconds since the epoch; None = no such status."""
    status_pending: int = 0
    status_reserving: int = 0
    status_admitted: int = 0
    status_reservation: QueueUsage = QueueUsage()
    status_usage: QueueUsage = QueueUsage()
    conditions: tuple[Condition, ...] = ()
    labels: dict[str, str] = {}
    """Only those that metrics read, as with the annotations."""
    annotations: dict[str, str] = {}


class Cohort(_Object, frozen=True, gc=False, kw_only=True, omit_defaults=True, tag="objects.Cohort/1"):
    parent: str = ""
    groups: tuple[ResourceGroup, ...] = ()
    fair_weight: str = "1"
    weighted_share: int | None = None
    """status.fairSharing.weightedShare; None = no such status."""
    labels: dict[str, str] = {}
    """Only those that metrics read, as with the annotations."""
    annotations: dict[str, str] = {}


class ResourceFlavor(_Object, frozen=True, gc=False, kw_only=True, omit_defaults=True, tag="objects.ResourceFlavor/1"):
    node_labels: dict[str, str] = {}
    node_taints: tuple[Taint, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    topology: str = ""


class AdmissionCheck(_Object, frozen=True, gc=False, kw_only=True, omit_defaults=True, tag="objects.AdmissionCheck/1"):
    controller: str
    parameters_kind: str = ""
    parameters_group: str = ""
    parameters_name: str = ""
    active: Condition | None = None


class WorkloadPriorityClass(
    _Object, frozen=True, gc=False, kw_only=True, omit_defaults=True, tag="objects.WorkloadPriorityClass/1"
):
    value: int = 0


class Namespace(_Object, frozen=True, gc=False, kw_only=True, omit_defaults=True, tag="objects.Namespace/1"):
    labels: dict[str, str] = {}


class Topology(_Object, frozen=True, gc=False, kw_only=True, omit_defaults=True, tag="objects.Topology/1"):
    levels: tuple[str, ...] = ()


class ProvisioningRequestConfig(
    _Object, frozen=True, gc=False, kw_only=True, omit_defaults=True, tag="objects.ProvisioningRequestConfig/1"
):
    class_name: str
    parameters: dict[str, str] = {}
    managed_resources: tuple[str, ...] = ()
    backoff_limit: int = 3
    backoff_base_s: int = 60
    backoff_max_s: int = 1800
    selector_updates: tuple[tuple[str, str], ...] = ()
    """(node selector key, key of provisioningClassDetails)."""
    merge_policy: str = ""


class ProvisioningRequest(
    _Object, frozen=True, gc=False, kw_only=True, omit_defaults=True, tag="objects.ProvisioningRequest/1"
):
    class_name: str = ""
    parameters: dict[str, str] = {}
    pod_sets: tuple[tuple[str, int], ...] = ()
    """(name of the PodTemplate, count)."""
    owners: tuple[Owner, ...] = ()
    conditions: tuple[Condition, ...] = ()
    class_details: dict[str, str] = {}


class PodTemplate(_Object, frozen=True, gc=False, kw_only=True, omit_defaults=True, tag="objects.PodTemplate/1"):
    """A PodTemplate that Sluice made for a ProvisioningRequest: its existence and owners."""

    owners: tuple[Owner, ...] = ()


class LimitItem(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """One item of a LimitRange; quantities by resource, as written."""

    type: str
    max: dict[str, str] = {}
    min: dict[str, str] = {}
    default: dict[str, str] = {}
    default_request: dict[str, str] = {}


class LimitRange(_Object, frozen=True, gc=False, kw_only=True, omit_defaults=True, tag="objects.LimitRange/1"):
    """Defaults and bounds of the pods of a namespace."""

    items: tuple[LimitItem, ...] = ()


class RuntimeClass(_Object, frozen=True, gc=False, kw_only=True, omit_defaults=True, tag="objects.RuntimeClass/1"):
    overhead: dict[str, str] = {}
    """overhead.podFixed, as written."""


class DeviceClass(_Object, frozen=True, gc=False, kw_only=True, omit_defaults=True, tag="objects.DeviceClass/1"):
    extended_resource: str = ""
    """The extended resource by which pods may ask for devices of this class; empty: by claims only."""


class DeviceRequest(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """One request of a claim template: so many devices of a class, or what it is instead, which cannot be counted."""

    name: str = ""
    device_class: str = ""
    count: int = 1
    unsupported: str = ""


class ResourceClaimTemplate(
    _Object, frozen=True, gc=False, kw_only=True, omit_defaults=True, tag="objects.ResourceClaimTemplate/1"
):
    requests: tuple[DeviceRequest, ...] = ()


class Epoch(_Object, frozen=True, gc=False, kw_only=True, omit_defaults=True, tag="objects.Epoch/1"):
    """Which epoch is open; `name` is the shard, `version` the epoch. Written by the gateway after EpochOpened (R1)."""

    opened_ns: int = 0
    objects_position: int = 0
    """Nobody decides before having read OBJECTS up to here."""


class Tombstone(_Object, frozen=True, gc=False, kw_only=True, omit_defaults=True, tag="objects.Tombstone/1"):
    """The object is gone; `version` is that of its deletion, or of the list that no longer held it."""


Object = (
    Workload
    | ClusterQueue
    | LocalQueue
    | Cohort
    | ResourceFlavor
    | AdmissionCheck
    | WorkloadPriorityClass
    | Namespace
    | Topology
    | ProvisioningRequestConfig
    | ProvisioningRequest
    | PodTemplate
    | LimitRange
    | RuntimeClass
    | DeviceClass
    | ResourceClaimTemplate
    | Epoch
    | Tombstone
)

KINDS: dict[str, type[Object]] = {
    "workload": Workload,
    "clusterqueue": ClusterQueue,
    "localqueue": LocalQueue,
    "cohort": Cohort,
    "resourceflavor": ResourceFlavor,
    "admissioncheck": AdmissionCheck,
    "workloadpriorityclass": WorkloadPriorityClass,
    "namespace": Namespace,
    "topology": Topology,
    "provisioningrequestconfig": ProvisioningRequestConfig,
    "provisioningrequest": ProvisioningRequest,
    "podtemplate": PodTemplate,
    "limitrange": LimitRange,
    "runtimeclass": RuntimeClass,
    "deviceclass": DeviceClass,
    "resourceclaimtemplate": ResourceClaimTemplate,
    "epoch": Epoch,
}
"""The kind token of a subject, and what it carries (or a Tombstone)."""

codec: Codec[Object] = Codec("objects", Object)
