"""From a shape to the objects to create and when. Pure; the same shape gives the same plan.

Names, intervals and the queues' settings are those of Kueue's performance suite: all sets of all queues run side by side, and each item waits
for its interval. Items are due at fixed times after the start, so that a slow server does not slow down its own load.
"""

from __future__ import annotations

import msgspec

from loadtest.shape import Cohort, QueuesSet, Shape, WorkloadTemplate
from shared.api import names
from shared.api.quantity import request_units

JsonObject = dict[str, object]

CLASS_LABEL = "sluice.dev/load-class"
RUN_SECONDS = "sluice.dev/run-seconds"
"""Annotation of a pod that tells the fake nodes how long it runs."""
IMAGE = "registry.k8s.io/pause:3.10"
UNLIMITED = 1 << 62


class Queue(msgspec.Struct, frozen=True):
    """One ClusterQueue with its namespace and LocalQueue, all of one name. `nominal_milli` is its CPU quota, `most_milli` what it may use with
    borrowing."""

    name: str
    class_name: str
    nominal_milli: int
    objects: tuple[JsonObject, ...]
    cohort: str = ""
    most_milli: int = UNLIMITED


class Item(msgspec.Struct, frozen=True):
    """One Job or Workload to create `due_s` seconds after the start, in `namespace` under `name`. `milli` is the CPU of all its pods."""

    due_s: float
    namespace: str
    name: str
    class_name: str
    queue_class: str
    runtime_s: float
    milli: int
    body: bytes

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


class Plan(msgspec.Struct, frozen=True):
    """`shared` objects and queues are made first; items in the order of their due times."""

    shared: tuple[JsonObject, ...]
    queues: tuple[Queue, ...]
    items: tuple[Item, ...]


def plan(shape: Shape, count: int | None = None) -> Plan:
    """The plan of a shape; with `count` only its first items (and all queues)."""
    queues: list[Queue] = []
    items: list[Item] = []
    for cohort in shape.cohorts:
        for i in range(cohort.count):
            cohort_name = f"{cohort.class_name}-{i}"
            for set_index, queues_set in enumerate(cohort.queues_sets):
                for j in range(queues_set.count):
                    name = f"{queues_set.class_name}-{set_index}-{j}-{cohort_name}"
                    queues.append(_queue(shape, queues_set, name, cohort_name))
                    items += _items(shape, queues_set, name)
    # A stable sort: of those due at once, each queue's keep their order.
    items.sort(key=lambda item: item.due_s)
    return Plan(_shared(shape), tuple(queues), tuple(items[:count]))


def _shared(shape: Shape) -> tuple[JsonObject, ...]:
    flavor = _object(names.GROUP_VERSION, names.RESOURCE_FLAVOR, shape.resource_flavor.name)
    if shape.kind == "Workload":
        return (flavor,)
    classes = sorted({t.priority for cohort in shape.cohorts for t in _templates(cohort) if t.priority})
    return (flavor, *(_priority_class(value) for value in classes))


def _templates(cohort: Cohort) -> list[WorkloadTemplate]:
    return [t for queues in cohort.queues_sets for set_ in queues.workloads_sets for t in set_.workloads]


def _priority_class(value: int) -> JsonObject:
    return {**_object(names.GROUP_VERSION, names.WORKLOAD_PRIORITY_CLASS, f"priority-{value}"), "value": value}


def _queue(shape: Shape, queues_set: QueuesSet, name: str, cohort: str) -> Queue:
    quota: JsonObject = {"name": "cpu", "nominalQuota": queues_set.nominal_quota}
    if queues_set.borrowing_limit:
        quota["borrowingLimit"] = queues_set.borrowing_limit
    spec = {
        "cohortName": cohort,
        "namespaceSelector": {},
        "queueingStrategy": "BestEffortFIFO",
        "flavorFungibility": {"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "TryNextFlavor"},
        "preemption": {
            "reclaimWithinCohort": queues_set.reclaim_within_cohort,
            "withinClusterQueue": queues_set.within_cluster_queue,
        },
        "resourceGroups": [
            {
                "coveredResources": ["cpu"],
                "flavors": [{"name": shape.resource_flavor.name, "resources": [quota]}],
            }
        ],
    }
    objects = (
        {**_object(names.GROUP_VERSION, names.CLUSTER_QUEUE, name, class_=queues_set.class_name), "spec": spec},
        _object("v1", "Namespace", name),
        {**_object(names.GROUP_VERSION, names.LOCAL_QUEUE, name, name), "spec": {"clusterQueue": name}},
    )
    nominal = request_units("cpu", queues_set.nominal_quota)
    borrows = queues_set.borrowing_limit
    most = nominal + request_units("cpu", borrows) if borrows else UNLIMITED
    return Queue(name, queues_set.class_name, nominal, objects, cohort, most)


def _items(shape: Shape, queues_set: QueuesSet, queue: str) -> list[Item]:
    items = []
    for set_index, workloads_set in enumerate(queues_set.workloads_sets):
        due_ms = 0
        for i in range(workloads_set.count):
            for j, template in enumerate(workloads_set.workloads):
                due_ms += workloads_set.creation_interval_ms
                name = f"{template.class_name}-{set_index}-{i}-{j}"
                body = _job(template, name, queue) if shape.kind == "Job" else _workload(template, name, queue)
                items.append(
                    Item(
                        due_s=due_ms / 1000,
                        namespace=queue,
                        name=name,
                        class_name=template.class_name,
                        queue_class=queues_set.class_name,
                        runtime_s=template.runtime_ms / 1000,
                        milli=request_units("cpu", template.request) * template.pod_count,
                        body=msgspec.json.encode(body),
                    )
                )
    return items


def _workload(template: WorkloadTemplate, name: str, queue: str) -> JsonObject:
    pod_set = {
        "name": names.DEFAULT_PODSET,
        "count": template.pod_count,
        "template": {"spec": _pod_spec(template)},
    }
    spec = {"queueName": queue, "priority": template.priority, "podSets": [pod_set]}
    return {**_object(names.GROUP_VERSION, names.WORKLOAD, name, queue, class_=template.class_name), "spec": spec}


def _job(template: WorkloadTemplate, name: str, queue: str) -> JsonObject:
    labels = {CLASS_LABEL: template.class_name, names.QUEUE_NAME_LABEL: queue}
    if template.priority:
        labels[names.PRIORITY_CLASS_LABEL] = f"priority-{template.priority}"
    pods = {
        "metadata": {"annotations": {RUN_SECONDS: f"{template.runtime_ms / 1000:g}"}},
        "spec": _pod_spec(template),
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": queue, "labels": labels},
        # As users write it: whoever manages Jobs suspends it on creation. A Job of 0 completions would be complete at once.
        "spec": {
            "parallelism": template.pod_count,
            **({"completions": template.pod_count} if template.pod_count else {}),
            "template": pods,
        },
    }


def _pod_spec(template: WorkloadTemplate) -> JsonObject:
    container = {"name": "c", "image": IMAGE, "resources": {"requests": {"cpu": template.request}}}
    return {"restartPolicy": "Never", "containers": [container]}


def _object(api_version: str, kind: str, name: str, namespace: str = "", class_: str = "") -> JsonObject:
    metadata: JsonObject = {"name": name}
    if namespace:
        metadata["namespace"] = namespace
    if class_:
        metadata["labels"] = {CLASS_LABEL: class_}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata}
