"""What a load shape is: the YAML of `shapes/` as Structs, strictly read. Says nothing of how it is run.

The schema of the queues and workloads is that of Kueue's own performance suite, so that its shapes can be written down unchanged; around it
stand how the items are created (`kind`) and what has to come out (`thresholds`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import msgspec
import yaml

SHAPES = Path(__file__).resolve().parent / "shapes"

Kind = Literal["Job", "Workload"]
ReclaimPolicy = Literal["Never", "LowerPriority", "Any"]
WithinPolicy = Literal["Never", "LowerPriority", "LowerOrNewerEqualPriority"]

Count = Annotated[int, msgspec.Meta(ge=1)]
Milliseconds = Annotated[int, msgspec.Meta(ge=0)]


class _Strict(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    pass


class WorkloadTemplate(_Strict, frozen=True, kw_only=True):
    """One kind of item: `request` is the CPU quantity of each of its `pod_count` pods."""

    class_name: str
    runtime_ms: Milliseconds = 0
    priority: int = 0
    request: str
    pod_count: Annotated[int, msgspec.Meta(ge=0)] = 1
    """0: a Job that asks for no pods, so that only queueing is measured."""


class WorkloadsSet(_Strict, frozen=True, kw_only=True):
    """`count` times all of `workloads`, one creation each `creation_interval_ms`."""

    count: Count
    creation_interval_ms: Milliseconds
    workloads: tuple[WorkloadTemplate, ...]


class QueuesSet(_Strict, frozen=True, kw_only=True):
    """`count` equal ClusterQueues, each with a namespace and a LocalQueue of its name; quotas are CPU quantities."""

    class_name: str
    count: Count
    nominal_quota: str
    borrowing_limit: str = ""
    reclaim_within_cohort: ReclaimPolicy = "Never"
    within_cluster_queue: WithinPolicy = "Never"
    workloads_sets: tuple[WorkloadsSet, ...]


class Cohort(_Strict, frozen=True, kw_only=True):
    """`count` equal cohorts."""

    class_name: str
    count: Count
    queues_sets: tuple[QueuesSet, ...]


class Flavor(_Strict, frozen=True, kw_only=True):
    name: str = "rf"


class Threshold(_Strict, frozen=True, kw_only=True):
    """A limit of one figure of the report; at least one of `max` and `min`."""

    figure: str
    max: float | None = None
    min: float | None = None

    def __post_init__(self) -> None:
        if self.max is None and self.min is None:
            raise ValueError(f"threshold of {self.figure}: give max or min")


FaultName = Literal["kill-scheduler", "kill-watcher", "wipe-nats", "restart-services"]
Ending = Literal["finished", "started"]


class Shape(_Strict, frozen=True, kw_only=True):
    """A load. Kind Job: the cluster runs the pods. Kind Workload: the runner mimics their execution, and the cluster needs no controllers.

    faults: done one after the other once all items are created, while admissions go on; the run ends when the last one is recovered from, whatever
        has not finished by then. The figure `pause_s.<fault>` is how long nothing was admitted, `fault_s.<fault>` how long the fault itself took: for
        `restart-services`, until all of them were ready again.
    clients: creations under way at once; the default is what a fast client would do, and no more than the API server takes without queueing them.
    ends: when the run is over: all items finished, or all started (Kind Workload: admitted).
    timeout_seconds: a run that takes longer has failed.
    webhooks: whether the API server asks admission webhooks, of a stack that the tool starts itself. Kueue's own suite is measured without any.
    """

    title: str
    kind: Kind
    resource_flavor: Flavor = Flavor()
    cohorts: tuple[Cohort, ...]
    faults: tuple[FaultName, ...] = ()
    clients: Count = 64
    ends: Ending = "finished"
    timeout_seconds: Count = 600
    webhooks: bool = True
    thresholds: tuple[Threshold, ...] = ()


def load(name: str) -> Shape:
    """A shape of `shapes/` by name, or any YAML file. Raises ValueError with the file, the place and the reason."""
    path = Path(name) if name.endswith((".yaml", ".yml")) else SHAPES / f"{name}.yaml"
    if not path.is_file():
        known = ", ".join(sorted(p.stem for p in SHAPES.glob("*.yaml")))
        raise ValueError(f"{path}: no such shape (there are: {known})")
    try:
        return msgspec.convert(yaml.safe_load(path.read_text()), Shape)
    except (msgspec.ValidationError, yaml.YAMLError) as error:
        raise ValueError(f"{path}: {error}") from error
