"""Shapes of the engine benchmark: queues, workloads and when they arrive (operations spec 19.2 to 19.6).

Why it exists: the same generator makes the baseline, the large shape and the one in which every workload differs, so that their figures compare.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from shared.events.incarnation import incarnation
from shared.events.objects import (
    ClusterQueue,
    Container,
    Flavor,
    FlavorQuota,
    LocalQueue,
    Namespace,
    Object,
    PodSet,
    ResourceFlavor,
    ResourceGroup,
    Selector,
    Workload,
)

FLAVOR = "rf"
START_S = 1_700_000_000


@dataclass(frozen=True)
class WorkloadClass:
    """Workloads of one kind in each ClusterQueue: one every `interval_ms`, running for `runtime_ms` of simulated time."""

    name: str
    per_queue: int
    interval_ms: int
    runtime_ms: int
    priority: int
    cpu: int


@dataclass(frozen=True)
class Shape:
    """Cohorts of equal ClusterQueues (20 cpu nominal, 100 cpu borrowing limit) and the workloads of each queue."""

    name: str
    cohorts: int
    queues_per_cohort: int
    classes: tuple[WorkloadClass, ...]
    distinct: bool = False
    """Every workload asks for another amount, so that no two have the same shape."""
    fair_sharing: bool = False

    @property
    def queues(self) -> int:
        return self.cohorts * self.queues_per_cohort

    @property
    def workloads(self) -> int:
        return self.queues * sum(one.per_queue for one in self.classes)


BASELINE = Shape(
    "baseline",
    5,
    6,
    (
        WorkloadClass("small", 350, 100, 200, 50, 1),
        WorkloadClass("medium", 100, 500, 500, 100, 5),
        WorkloadClass("large", 50, 1200, 1000, 200, 20),
    ),
)
LARGE = Shape(
    "large",
    10,
    100,
    (
        WorkloadClass("small", 35, 60, 150, 50, 1),
        WorkloadClass("medium", 11, 300, 350, 100, 5),
        WorkloadClass("large", 4, 700, 700, 200, 20),
    ),
)
HUNDRED_QUEUES = replace(LARGE, name="hundred_queues", cohorts=1)
DISTINCT = replace(BASELINE, name="distinct", distinct=True)


def queue_objects(shape: Shape) -> Iterator[Object]:
    """Flavor, namespaces and queues."""
    yield ResourceFlavor(name=FLAVOR, uid="uid-flavor", version=1)
    quotas = [FlavorQuota("cpu", "20", "100")]
    if shape.distinct:
        quotas.append(FlavorQuota("memory", "1Ti"))
    for name in queue_names(shape):
        yield Namespace(name=name, uid=f"uid-ns-{name}", version=1)
        yield ClusterQueue(
            name=name,
            uid=f"uid-cq-{name}",
            version=1,
            cohort=name.rpartition(".")[0],
            groups=(ResourceGroup(tuple(one.resource for one in quotas), (Flavor(FLAVOR, tuple(quotas)),)),),
            namespace_selector=Selector(),
            reclaim_within_cohort="Any",
            within_cluster_queue="LowerPriority",
        )
        yield LocalQueue(namespace=name, name=name, uid=f"uid-lq-{name}", version=1, cluster_queue=name)


def queue_names(shape: Shape) -> list[str]:
    """Names of the ClusterQueues, each `<cohort>.<queue>`; namespace and LocalQueue have the same."""
    return [
        f"cohort-{cohort}.cq-{place}" for cohort in range(shape.cohorts) for place in range(shape.queues_per_cohort)
    ]


@dataclass(frozen=True)
class Arrival:
    """A workload that appears at `at_ms` and runs for `runtime_ms` once admitted."""

    at_ms: int
    runtime_ms: int
    workload: Workload


def arrivals(shape: Shape) -> list[Arrival]:
    """All workloads of a shape, earliest first."""
    found = []
    number = 0
    for queue in queue_names(shape):
        for kind in shape.classes:
            for place in range(kind.per_queue):
                number += 1
                at = (place + 1) * kind.interval_ms
                found.append(Arrival(at, kind.runtime_ms, _workload(shape, queue, kind, place, at, number)))
    found.sort(key=lambda arrival: (arrival.at_ms, arrival.workload.uid))
    return found


def _workload(shape: Shape, queue: str, kind: WorkloadClass, place: int, at_ms: int, number: int) -> Workload:
    requests = {"cpu": str(kind.cpu)}
    if shape.distinct:
        requests = {"cpu": f"{kind.cpu * 1000 - number % 97}m", "memory": f"{number}Ki"}
    name = f"{kind.name}-{place}"
    return pending_workload(queue, name, requests, kind.priority, START_S + at_ms // 1000)


def pending_workload(namespace: str, name: str, requests: dict[str, str], priority: int, created: int) -> Workload:
    """A workload that has just been created."""
    uid = f"uid-{namespace}-{name}"
    return Workload(
        namespace=namespace,
        name=name,
        uid=uid,
        version=1,
        generation=1,
        created=created,
        queue_name=namespace,
        priority=priority,
        pod_sets=(PodSet(containers=(Container(requests=requests),)),),
        incarnation=incarnation(
            uid=uid,
            generation=1,
            reserved_in="",
            reserved_at=0,
            evicted=(False, 0),
            requeued=(None, 0),
            requeue_at=None,
            evictions=0,
        ),
    )
