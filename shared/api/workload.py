"""Workload: the unit that is queued and admitted, usually made for one job.

The pod templates here are the lean view of shared.api.pods, enough to decide. To write a template back whole, use
shared.api.raw_workload.
"""

from typing import Annotated, Literal

from shared.api import names
from shared.api.meta import ObjectMeta
from shared.api.pods import PodTemplateSpec
from shared.api.schema_hints import (
    ApiStruct,
    Count,
    Int32,
    Name63,
    Name253,
    Positive,
    always,
    atomic_list,
    list_map,
    required,
    rules,
    schema,
)
from shared.api.workload_status import WorkloadStatus, WorkloadStatusField

PriorityGroup = Literal["kueue.x-k8s.io", "scheduling.k8s.io"]
PriorityKind = Literal["WorkloadPriorityClass", "PriorityClass"]

TemplateField = Annotated[
    PodTemplateSpec,
    # Kept whole but not described: a schema that expands pod templates doubles the cost of every write (R8).
    schema("Template of its pods.", x_kubernetes_preserve_unknown_fields=True),
]


class SliceTopologyConstraint(ApiStruct, frozen=True, kw_only=True):
    """Groups of `size` pods have to share one domain of the level."""

    topology: Annotated[str, schema("Node label of the level.", minLength=1, maxLength=63)]
    size: Annotated[Positive, schema("Pods per group.")] = required(0)


class PodSetTopologyRequestBase(ApiStruct, frozen=True, kw_only=True):
    """What both versions say alike."""

    required: Annotated[str | None, schema("All pods in one domain of this level.", maxLength=63)] = None
    preferred: Annotated[str | None, schema("The same if possible, else at a wider level.", maxLength=63)] = None
    unconstrained: Annotated[bool | None, schema("Anywhere, but accounted per node.")] = None
    pod_index_label: Annotated[str | None, schema("Pod label with its index.", maxLength=317)] = None
    sub_group_index_label: Annotated[str | None, schema("Label with the index of its group.", maxLength=317)] = None
    sub_group_count: Annotated[Count | None, schema("How many groups of equal size there are.")] = None
    pod_set_group_name: Annotated[
        str | None, schema("Pod sets with the same name are placed together.", maxLength=256)
    ] = None
    pod_set_slice_required_topology: Annotated[
        str | None, schema("Each slice of pods in one domain of this level.", maxLength=63)
    ] = None
    pod_set_slice_size: Annotated[Positive | None, schema("Pods per slice.")] = None


class PodSetTopologyRequest(PodSetTopologyRequestBase, frozen=True, kw_only=True):
    """How close together the pods have to be placed."""

    podset_slice_required_topology_constraints: Annotated[
        tuple[SliceTopologyConstraint, ...], atomic_list("Slices inside slices.", maxItems=3)
    ] = ()


class PodSetCounts(ApiStruct, frozen=True, kw_only=True):
    """Name and numbers of a pod set, which both versions say alike."""

    name: Annotated[Name63, schema("Name, unique in the workload.", default=names.DEFAULT_PODSET)] = always(
        names.DEFAULT_PODSET
    )
    count: Annotated[Count, schema("Number of pods.", default=1)] = always(1)
    min_count: Annotated[Positive | None, schema("With partial admission, the fewest pods that make sense.")] = None


class PodSetBase(PodSetCounts, frozen=True, kw_only=True):
    """All of a pod set but its template."""

    topology_request: PodSetTopologyRequest | None = None


class PodSet(PodSetBase, frozen=True, kw_only=True):
    """A number of pods that are alike."""

    template: TemplateField


class PriorityClassRef(ApiStruct, frozen=True, kw_only=True):
    """The class that the priority came from."""

    group: Annotated[PriorityGroup, schema("API group of the class.")]
    kind: Annotated[PriorityKind, schema("Kind of the class.")]
    name: Annotated[Name253, schema("Name of the class.", minLength=1)]


class PreemptionGate(ApiStruct, frozen=True, kw_only=True):
    """Keeps the workload from preempting until the status says that the gate is open."""

    name: Annotated[str, schema("Name of the gate.", minLength=1, maxLength=63)]


class WorkloadSpecCommon(ApiStruct, frozen=True, kw_only=True):
    """What both versions say alike."""

    queue_name: Annotated[Name253, schema("LocalQueue of the same namespace.")] = ""
    priority: Annotated[Int32 | None, schema("The higher goes first; unset counts as 0.")] = None
    active: Annotated[bool, schema("False evicts the workload and keeps it out of the queue.", default=True)] = True
    maximum_execution_time_seconds: Annotated[Positive | None, schema("Longest time it may run.")] = None


class WorkloadSpecBase(WorkloadSpecCommon, frozen=True, kw_only=True):
    """All of a workload's spec but its pod sets."""

    priority_class_ref: Annotated[
        PriorityClassRef | None,
        rules(
            (
                "self.group != 'scheduling.k8s.io' || self.kind == 'PriorityClass'",
                "kind must be PriorityClass for group scheduling.k8s.io",
                ".kind",
            ),
            (
                "self.group != 'kueue.x-k8s.io' || self.kind == 'WorkloadPriorityClass'",
                "kind must be WorkloadPriorityClass for group kueue.x-k8s.io",
                ".kind",
            ),
        ),
    ] = None
    preemption_gates: Annotated[tuple[PreemptionGate, ...], list_map("Gates.", "name", maxItems=8)] = ()


MIN_COUNT_RULE = (
    "!has(self.minCount) || self.minCount <= self.count",
    "minCount must not be more than count",
    ".minCount",
)


class WorkloadSpec(WorkloadSpecBase, frozen=True, kw_only=True):
    """What is asked for."""

    pod_sets: Annotated[
        tuple[Annotated[PodSet, rules(MIN_COUNT_RULE)], ...],
        list_map("The pods, by kind of pod.", "name", minItems=1, maxItems=18),
    ] = ()


WorkloadSpecField = Annotated[
    WorkloadSpec,
    rules(
        ("!has(self.priorityClassRef) || has(self.priority)", "priority must be set with priorityClassRef", ".priority")
    ),
]


class Workload(ApiStruct, frozen=True, kw_only=True):
    """A job as the queues see it."""

    api_version: str = always(names.GROUP_VERSION)
    kind: str = always(names.WORKLOAD)
    metadata: ObjectMeta = ObjectMeta()
    spec: WorkloadSpecField = WorkloadSpec()
    status: WorkloadStatusField = WorkloadStatus()
