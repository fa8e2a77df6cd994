"""The status of a Workload: its admission, checks, requeueing and history."""

from typing import Annotated, Literal

import msgspec

from shared.api import names
from shared.api.conditions import ConditionList
from shared.api.pods import TolerationItem
from shared.api.schema_hints import (
    LONG_AGO,
    ApiStruct,
    Count,
    FlavorName,
    Int32,
    Name63,
    Name253,
    ResourceList,
    ResourceName,
    Time,
    always,
    atomic_list,
    list_map,
    required,
    rules,
    schema,
)
from shared.api.topology_assignment import TopologyAssignmentField

CheckState = Literal["Pending", "Ready", "Retry", "Rejected"]
DelayedTopologyRequest = Literal["Pending", "Ready"]
GatePosition = Literal["Closed", "Open"]

PodSetName = Annotated[Name63, schema("Name of the pod set.", default=names.DEFAULT_PODSET)]


class PodSetAssignmentBase(ApiStruct, frozen=True, kw_only=True):
    """What both versions say alike."""

    name: PodSetName = always(names.DEFAULT_PODSET)
    flavors: Annotated[dict[ResourceName, FlavorName], schema("Flavor per resource.")] = msgspec.field(
        default_factory=dict
    )
    resource_usage: Annotated[ResourceList, schema("Quota per resource, for all its pods.")] = msgspec.field(
        default_factory=dict
    )
    count: Annotated[Count | None, schema("Pods admitted; can be fewer than asked for.")] = None
    delayed_topology_request: Annotated[
        DelayedTopologyRequest | None, schema("Pending while the placement waits for nodes to be provisioned.")
    ] = None


class PodSetAssignment(PodSetAssignmentBase, frozen=True, kw_only=True):
    """What one pod set was given."""

    topology_assignment: TopologyAssignmentField | None = None


class Admission(ApiStruct, frozen=True, kw_only=True):
    """The quota reservation."""

    cluster_queue: Annotated[Name253, schema("The ClusterQueue whose quota is used.")]
    pod_set_assignments: Annotated[
        tuple[PodSetAssignment, ...], list_map("What each pod set was given.", "name", maxItems=18)
    ] = ()


class RequeueState(ApiStruct, frozen=True, kw_only=True):
    """Back-off after evictions."""

    count: Annotated[Count, schema("Requeues so far because pods did not become ready.")] = 0
    requeue_at: Annotated[Time | None, schema("Not to be queued before this time.")] = None


class ReclaimablePod(ApiStruct, frozen=True, kw_only=True):
    """Pods of a set that are done and need no quota any more."""

    name: Annotated[Name63, schema("Name of the pod set.")]
    count: Annotated[Count, schema("How many.")]


class PodSetUpdate(ApiStruct, frozen=True, kw_only=True):
    """What a check wants written into the pods of a set."""

    name: Annotated[Name63, schema("Name of the pod set.")]
    labels: Annotated[dict[str, str], schema("Labels to add.")] = msgspec.field(default_factory=dict)
    annotations: Annotated[dict[str, str], schema("Annotations to add.")] = msgspec.field(default_factory=dict)
    node_selector: Annotated[dict[str, str], schema("Node selectors to add.")] = msgspec.field(default_factory=dict)
    tolerations: Annotated[tuple[TolerationItem, ...], atomic_list("Tolerations to add.", maxItems=8)] = ()


class AdmissionCheckState(ApiStruct, frozen=True, kw_only=True):
    """The answer of one check."""

    name: Annotated[str, schema("Name of the AdmissionCheck.", minLength=1, maxLength=316)] = required("")
    state: Annotated[CheckState, schema("The answer.")] = required("Pending")
    last_transition_time: Annotated[Time, schema("When state last changed.")] = required(LONG_AGO)
    message: Annotated[str, schema("Why, for people; may be empty.", maxLength=32768)] = required("")
    requeue_after_seconds: Annotated[Count | None, schema("With Retry: how long to wait.")] = None
    retry_count: Annotated[Count | None, schema("Retries so far.")] = None
    pod_set_updates: Annotated[tuple[PodSetUpdate, ...], atomic_list("What to write into the pods.", maxItems=18)] = ()


class PodSetRequest(ApiStruct, frozen=True, kw_only=True):
    """What a pod set asks for in total."""

    name: PodSetName = always(names.DEFAULT_PODSET)
    resources: Annotated[ResourceList, schema("Total per resource, for all its pods.")] = msgspec.field(
        default_factory=dict
    )


class EvictionCount(ApiStruct, frozen=True, kw_only=True):
    """How often the workload was evicted for one reason."""

    reason: Annotated[str, schema("Reason of the eviction.", maxLength=316)]
    underlying_cause: Annotated[str, schema("What was behind it; may be empty.", maxLength=316)]
    count: Annotated[Count, schema("How often.")]


class SchedulingStats(ApiStruct, frozen=True, kw_only=True):
    """Counters over the life of the workload."""

    evictions: Annotated[
        tuple[EvictionCount, ...], list_map("Evictions by reason.", "reason", "underlyingCause", maxItems=256)
    ] = ()


class UnhealthyNode(ApiStruct, frozen=True, kw_only=True):
    """A failed node that pods were placed on."""

    name: Annotated[str, schema("Name of the node.")]


class PreemptionGateState(ApiStruct, frozen=True, kw_only=True):
    """Whether a gate lets the workload preempt."""

    name: Annotated[str, schema("Name of the gate.", minLength=1, maxLength=63)]
    position: Annotated[GatePosition, schema("Closed keeps it from preempting.")]
    last_transition_time: Annotated[Time, schema("When position last changed.")] = required(LONG_AGO)


class WorkloadStatusBase(ApiStruct, frozen=True, kw_only=True):
    """What both versions say alike."""

    conditions: ConditionList = ()
    requeue_state: RequeueState | None = None
    reclaimable_pods: Annotated[
        tuple[ReclaimablePod, ...], list_map("Pods whose quota is free again.", "name", maxItems=18)
    ] = ()
    admission_checks: Annotated[
        tuple[AdmissionCheckState, ...], list_map("Checks and their answers.", "name", maxItems=8)
    ] = ()
    resource_requests: Annotated[
        tuple[PodSetRequest, ...], list_map("What is asked for, while nothing is admitted.", "name", maxItems=18)
    ] = ()
    scheduling_stats: SchedulingStats | None = None
    nominated_cluster_names: Annotated[
        tuple[Annotated[str, schema(maxLength=256)], ...],
        atomic_list("Worker clusters that are being tried.", maxItems=20),
    ] = ()
    cluster_name: Annotated[str | None, schema("Worker cluster that runs it.", maxLength=256)] = None
    unhealthy_nodes: Annotated[tuple[UnhealthyNode, ...], list_map("Failed nodes.", "name", maxItems=8)] = ()


PastSeconds = Annotated[Int32 | None, schema("Run time of earlier admissions.", minimum=0)]


class WorkloadStatus(WorkloadStatusBase, frozen=True, kw_only=True):
    """What happened to the workload so far."""

    admission: Admission | None = None
    accumulated_past_execution_time_seconds: PastSeconds = None
    preemption_gates: Annotated[
        tuple[PreemptionGateState, ...], list_map("State of the preemption gates.", "name", maxItems=8)
    ] = ()


CLUSTER_NAME_RULES = rules(
    (
        "!has(oldSelf.clusterName) || !has(self.clusterName) || oldSelf.clusterName == self.clusterName",
        "clusterName can be set or cleared, not changed",
        ".clusterName",
    ),
    (
        "!has(self.clusterName) || !has(self.nominatedClusterNames) || size(self.nominatedClusterNames) == 0",
        "nominatedClusterNames must be empty when clusterName is set",
        ".nominatedClusterNames",
    ),
)
WorkloadStatusField = Annotated[WorkloadStatus, CLUSTER_NAME_RULES]
