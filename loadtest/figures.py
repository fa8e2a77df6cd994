"""From timelines and counts to the figures of a report: each a name and a number, which thresholds refer to.

`start_ms`, `admit_ms` and `finish_ms` count from the moment the client sent the creation request until its watch showed a Job unsuspended, a Workload
admitted, an item finished. A distribution's figures are `<name>.p50`, `.p90`, `.p95`, `.p99`, `.max`, `.mean`; `class.<name>.admit_ms` and so
on are those of one class of items, if there are several.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise

import msgspec

from loadtest.generator import Plan
from loadtest.idle import idle
from loadtest.percentiles import Distribution, distribution
from loadtest.runner import Fault
from loadtest.timeline import Timeline
from loadtest.writes import Stamps

Distributions = dict[str, Distribution]


def durations(timelines: Iterable[Timeline]) -> Distributions:
    """Milliseconds from creation; what no item reached is left out."""
    all_ = list(timelines)
    found = _durations(all_, "")
    classes = sorted({t.item.class_name for t in all_})
    for name in classes if len(classes) > 1 else ():
        found |= _durations([t for t in all_ if t.item.class_name == name], f"class.{name}.")
    return found


def _durations(timelines: list[Timeline], prefix: str) -> Distributions:
    values = {
        "create_ms": [t.answered - t.asked for t in timelines if t.answered],
        "start_ms": [t.started - t.asked for t in timelines if t.started],
        "admit_ms": [t.admitted - t.asked for t in timelines if t.admitted],
        "finish_ms": [t.finished - t.asked for t in timelines if t.finished],
    }
    return {prefix + name: distribution(1000 * s for s in seconds) for name, seconds in values.items() if seconds}


def steps(timelines: Iterable[Timeline], stamps: Mapping[str, Stamps]) -> Distributions:
    """Milliseconds of each step on the way, by what ends it; requests count from their receipt by the API server."""
    found: dict[str, list[float]] = {}
    for timeline in timelines:
        stamp = stamps.get(timeline.item.key)
        if stamp is None:
            continue
        marks = [
            ("client asks -> creation received", timeline.asked),
            ("creation received -> Workload creation received", stamp.created),
            ("Workload creation received -> admission received", stamp.workload_created),
            ("admission received -> start received", stamp.admitted),
            ("start received -> seen by the client", stamp.started),
        ]
        if not timeline.started:
            marks = [
                ("client asks -> creation received", timeline.asked),
                ("creation received -> admission received", stamp.created),
                ("admission received -> seen by the client", stamp.admitted),
            ]
        ends = [at for _, at in marks[1:]] + [timeline.started or timeline.admitted]
        if all(ends):
            for (name, begin), end in zip(marks, ends, strict=True):
                found.setdefault(name, []).append(1000 * (end - begin))
    return {name: distribution(values) for name, values in found.items()}


def counts(plan: Plan, timelines: Iterable[Timeline], began: float, ended: float) -> dict[str, float]:
    """Sums over the run. `usage.<class of queues>` and, over all queues, `usage_percent`: percent of the nominal quota that admissions occupied between
    first creation and last end. `wait_s.<class of items>`: mean of creation to first admission by the objects' own times, as Kueue's suite has it.
    `all_started_s`: from the first creation until the last item started (without a job: was admitted)."""
    all_ = list(timelines)
    finished = [t for t in all_ if t.finished]
    wall = ended - began
    found = {
        "created": float(sum(1 for t in all_ if t.answered)),
        "finished": float(len(finished)),
        "unfinished": float(len(all_) - len(finished)),
        "failed": float(sum(1 for t in finished if not t.succeeded)),
        "unstarted": float(sum(1 for t in all_ if not (t.started or t.admitted))),
        "all_started_s": max((t.started or t.admitted for t in all_), default=began) - began,
        "started_unheld": float(sum(1 for t in all_ if t.started and not t.held)),
        "evictions": float(sum(t.evictions for t in all_)),
        "wall_s": wall,
        "items_per_s": len(finished) / wall if wall > 0 else 0.0,
        "lateness_ms.max": 1000 * max((t.asked - began - t.item.due_s for t in all_ if t.asked), default=0.0),
    }
    for name in sorted({queue.class_name for queue in plan.queues}):
        nominal = sum(queue.nominal_milli for queue in plan.queues if queue.class_name == name)
        used = sum(t.occupied_s * t.item.milli for t in all_ if t.item.queue_class == name)
        found[f"usage.{name}"] = 100 * used / (nominal * wall) if nominal and wall > 0 else 0.0
    nominal = sum(queue.nominal_milli for queue in plan.queues)
    used = sum(t.occupied_s * t.item.milli for t in all_)
    found["usage_percent"] = 100 * used / (nominal * wall) if nominal and wall > 0 else 0.0
    idled = idle(plan.queues, all_, began, ended)
    found |= {"idle_percent": idled.quota, "idle_queue_time_percent": idled.queue_time}
    for name in sorted({t.item.class_name for t in all_}):
        waits = [t.waited_s for t in all_ if t.item.class_name == name and t.waited_s is not None]
        if waits:
            found[f"wait_s.{name}"] = sum(waits) / len(waits)
    return found


def pauses(timelines: Iterable[Timeline], faults: Iterable[Fault]) -> dict[str, float]:
    """Per fault the longest time without an admission, from the last one before it until it was recovered from, and how long the fault itself took."""
    admitted = sorted(t.admitted for t in timelines if t.admitted)
    found = {}
    for fault in faults:
        before = [at for at in admitted if at <= fault.began]
        during = [at for at in admitted if fault.began < at <= fault.recovered]
        times = [*before[-1:], *during, fault.recovered]
        found[f"pause_s.{fault.name}"] = max((b - a for a, b in pairwise(times)), default=0.0)
        if fault.done:
            found[f"fault_s.{fault.name}"] = fault.done - fault.began
    return found


def flat(distributions: Mapping[str, Distribution]) -> dict[str, float]:
    """Each figure of each distribution under its own name."""
    return {
        f"{name}.{field}": float(value)
        for name, found in distributions.items()
        for field, value in msgspec.structs.asdict(found).items()
        if field != "count"
    }
