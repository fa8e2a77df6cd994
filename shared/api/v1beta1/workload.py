"""Workload of v1beta1: the priority class in two strings, topology domains one by one, and a misspelling that is the wire name."""

from typing import Annotated, Literal

from shared.api import names
from shared.api.meta import ObjectMeta
from shared.api.schema_hints import ApiStruct, Name253, Positive, always, atomic_list, list_map, required, rules, schema
from shared.api.workload import (
    MIN_COUNT_RULE,
    PodSetCounts,
    PodSetTopologyRequestBase,
    TemplateField,
    WorkloadSpecCommon,
)
from shared.api.workload_status import CLUSTER_NAME_RULES, PastSeconds, PodSetAssignmentBase, WorkloadStatusBase

PriorityClassSource = Literal["kueue.x-k8s.io/workloadpriorityclass", "scheduling.k8s.io/priorityclass", ""]


class PodSetTopologyRequest(PodSetTopologyRequestBase, frozen=True, kw_only=True):
    """How close together the pods have to be placed."""


class PodSet(PodSetCounts, frozen=True, kw_only=True):
    """A number of pods that are alike."""

    topology_request: PodSetTopologyRequest | None = None
    template: TemplateField


class WorkloadSpec(WorkloadSpecCommon, frozen=True, kw_only=True):
    """What is asked for."""

    pod_sets: Annotated[
        tuple[Annotated[PodSet, rules(MIN_COUNT_RULE)], ...],
        list_map("The pods, by kind of pod.", "name", minItems=1, maxItems=18),
    ] = required(())
    priority_class_name: Annotated[Name253, schema("Class that the priority came from.")] = ""
    priority_class_source: Annotated[PriorityClassSource, schema("Kind of that class.", default="")] = ""


class TopologyDomain(ApiStruct, frozen=True, kw_only=True):
    """One domain and the pods in it."""

    values: Annotated[
        tuple[str, ...], atomic_list("Values of the levels' labels, one per level.", minItems=1, maxItems=16)
    ]
    count: Annotated[Positive, schema("Pods in it.")]


class TopologyAssignment(ApiStruct, frozen=True, kw_only=True):
    """Where the pods of a pod set go."""

    levels: Annotated[
        tuple[str, ...], atomic_list("Node labels of the levels listed, widest first.", minItems=1, maxItems=16)
    ]
    domains: Annotated[tuple[TopologyDomain, ...], atomic_list("The domains.", maxItems=100000)]


class PodSetAssignment(PodSetAssignmentBase, frozen=True, kw_only=True):
    """What one pod set was given."""

    topology_assignment: TopologyAssignment | None = None


class Admission(ApiStruct, frozen=True, kw_only=True):
    """The quota reservation."""

    cluster_queue: Annotated[Name253, schema("The ClusterQueue whose quota is used.")]
    pod_set_assignments: Annotated[
        tuple[PodSetAssignment, ...], list_map("What each pod set was given.", "name", maxItems=18)
    ] = required(())


class WorkloadStatus(WorkloadStatusBase, frozen=True, kw_only=True):
    """What happened to the workload so far."""

    admission: Admission | None = None
    accumulated_past_exexcution_time_seconds: PastSeconds = None


class Workload(ApiStruct, frozen=True, kw_only=True):
    """A job as the queues see it."""

    api_version: str = always(names.V1BETA1_GROUP_VERSION)
    kind: str = always(names.WORKLOAD)
    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[
        WorkloadSpec,
        rules(("!has(self.priorityClassName) || has(self.priority)", "priority must be set with priorityClassName")),
    ] = WorkloadSpec()
    status: Annotated[WorkloadStatus, CLUSTER_NAME_RULES] = WorkloadStatus()
