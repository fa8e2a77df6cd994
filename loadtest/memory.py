"""Memory of one workload in the state of a service, measured on the state alone: growth of a process that folds many of them.

`python -m loadtest.memory FIGURE` prints bytes per workload. Each figure is measured in a process of its own, since what one left behind another would use.
"""

from __future__ import annotations

import gc
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace

import msgspec

from loadtest.engine_shapes import LARGE, START_S, pending_workload, queue_names, queue_objects
from services.watcher.kinds import read
from services.watcher.store import Store
from shared.bus.interface import ObjectChanged
from shared.events import objects as o
from shared.events.subjects import ObjectName
from shared.runtime import collector
from shared.state.queues import QueueView
from shared.state.scheduling import SchedulerState

COUNT = 20_000
_KIND_OF = {type_: kind for kind, type_ in o.KINDS.items()}


def _resident() -> int:
    """Bytes of this process that are in memory now."""
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize()


def _growth(fill: Callable[[], None]) -> float:
    gc.collect()
    before = _resident()
    fill()
    gc.collect()
    return (_resident() - before) / COUNT


def _workloads() -> Iterator[o.Workload]:
    names = queue_names(replace(LARGE, cohorts=1))
    for number in range(COUNT):
        made = pending_workload(names[number % len(names)], f"job-{number}", {"cpu": str(1 + number % 50)}, 0, START_S)
        # As they come from the bus: nothing is shared with what made them.
        yield o.codec.decode(o.codec.encode(made))  # type: ignore[misc]


def _folded(apply: Callable[[ObjectChanged, float], object], *, admitted: bool) -> float:
    position = 0
    for one in queue_objects(replace(LARGE, cohorts=1)):
        position += 1
        apply(ObjectChanged(ObjectName(_KIND_OF[type(one)], one.namespace, one.name), one, position), START_S)

    def fill() -> None:
        for number, workload in enumerate(_workloads()):
            made = _admitted(workload) if admitted else workload
            apply(ObjectChanged(ObjectName("workload", made.namespace, made.name), made, position + number), START_S)

    return _growth(fill)


def _admitted(workload: o.Workload) -> o.Workload:
    usage = {"cpu": 1000}
    pod_sets = (o.PodSetAssignment(name="main", count=1, flavors={"cpu": "rf"}, usage=usage),)
    return msgspec.structs.replace(
        workload,
        conditions=(o.Condition("QuotaReserved", True, "QuotaReserved"), o.Condition("Admitted", True, "Admitted")),
        admission=o.Admission(workload.queue_name, pod_sets),
    )


def _watch_copy() -> float:
    store = Store()

    def fill() -> None:
        for number in range(COUNT):
            metadata = {
                "name": f"job-{number}",
                "namespace": f"queue-{number % 100}",
                "uid": f"00000000-0000-4000-8000-{number:012d}",
                "resourceVersion": str(1000 + number),
                "creationTimestamp": "2026-01-01T00:00:00Z",
            }
            requests = {"requests": {"cpu": str(1 + number % 50)}}
            pods = {
                "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i", "resources": requests}]}
            }
            spec = {"queueName": "q", "active": True, "podSets": [{"name": "main", "count": 1, "template": pods}]}
            store.put(read("workload", msgspec.json.encode({"metadata": metadata, "spec": spec})))

    return _growth(fill)


FIGURES: dict[str, Callable[[], float]] = {
    "memory.pending.watcher": _watch_copy,
    "memory.pending.scheduler": lambda: _folded(SchedulerState().apply, admitted=False),
    "memory.admitted.scheduler": lambda: _folded(SchedulerState().apply, admitted=True),
    "memory.pending.queue_manager": lambda: _folded(QueueView().apply, admitted=False),
}
"""Bytes per workload."""


def in_a_process_of_its_own(figure: str) -> float:
    """Raises KeyError for an unknown figure, CalledProcessError when it cannot be measured."""
    if figure not in FIGURES:
        raise KeyError(figure)
    done = subprocess.run([sys.executable, "-m", "loadtest.memory", figure], check=True, capture_output=True, text=True)
    return float(done.stdout)


def main() -> None:
    """Measure the one that is named."""
    collector.expect_large_state()
    print(f"{FIGURES[sys.argv[1]]():.1f}")


if __name__ == "__main__":
    main()
