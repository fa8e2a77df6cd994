"""The table that `sluice up` shows: queues with their usage, what waits and why, what just happened."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from shared.api.cluster_queue import ClusterQueue
from shared.api.conditions import find, is_true
from shared.api.quantity import parse
from shared.api.workload import Workload

WAITING_ROWS = 6
EVENT_ROWS = 8


def render(queues: Mapping[str, ClusterQueue], workloads: Mapping[str, Workload], events: deque[str]) -> RenderableType:
    """All of it; as high as its content."""
    waiting = [w for w in workloads.values() if _waits(w)]
    waiting.sort(key=lambda w: (-(w.spec.priority or 0), w.metadata.creation_timestamp))
    return Group(_queues(queues.values()), _waiting(waiting), _events(events), _totals(workloads.values()))


def _queues(queues: Iterable[ClusterQueue]) -> Table:
    table = Table(title="Queues", expand=True, title_justify="left")
    # On a narrow terminal names go over several lines: half a name is no name.
    for column in ("ClusterQueue", "Cohort", "Active"):
        table.add_column(column, overflow="fold")
    for column in ("Pending", "Admitted"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("Usage / nominal (borrowed)", overflow="fold")
    for queue in sorted(queues, key=lambda q: q.metadata.name):
        active = find(queue.status.conditions, "Active")
        shown = "?" if active is None else "yes" if active.status == "True" else f"no: {active.reason}"
        table.add_row(
            queue.metadata.name,
            queue.spec.cohort_name,
            shown,
            str(queue.status.pending_workloads),
            str(queue.status.admitted_workloads),
            _usage(queue),
        )
    return table


def _usage(queue: ClusterQueue) -> str:
    used = {(f.name, r.name): (r.total, r.borrowed) for f in queue.status.flavors_usage for r in f.resources}
    shown = []
    for group in queue.spec.resource_groups:
        for flavor in group.flavors:
            for quota in flavor.resources:
                total, borrowed = used.get((flavor.name, quota.name), ("0", "0"))
                lent = f" ({borrowed})" if parse(borrowed).value() else ""
                shown.append(f"{quota.name} {total}/{quota.nominal_quota}{lent}")
    return "  ".join(shown)


def _waiting(waiting: list[Workload]) -> Table:
    table = Table(title=f"Waiting: {len(waiting)}", expand=True, title_justify="left")
    # The reason gets its share however long the names are.
    table.add_column("Workload", overflow="fold", ratio=2)
    table.add_column("Queue", overflow="fold", ratio=1)
    table.add_column("Why", no_wrap=True, ratio=4)
    for workload in waiting[:WAITING_ROWS]:
        table.add_row(workload.metadata.key, workload.spec.queue_name, why(workload))
    return table


def why(workload: Workload) -> str:
    """The reason a workload is not admitted, in the words of its condition."""
    reserved = find(workload.status.conditions, "QuotaReserved")
    if reserved is not None and reserved.status == "True":
        pending = [c.name for c in workload.status.admission_checks if c.state != "Ready"]
        return f"quota reserved, waiting for checks: {', '.join(pending)}"
    if reserved is None:
        return "waiting to be looked at"
    return f"{reserved.reason}: {reserved.message}"


def _waits(workload: Workload) -> bool:
    conditions = workload.status.conditions
    return not is_true(conditions, "Finished") and not is_true(conditions, "Admitted")


def _events(events: deque[str]) -> Table:
    table = Table(title="Events (sluice.events.>)", expand=True, title_justify="left", show_header=False)
    table.add_column("event", no_wrap=True)
    for line in list(events)[-EVENT_ROWS:]:
        table.add_row(line)
    return table


def _totals(workloads: Iterable[Workload]) -> Text:
    states: Counter[str] = Counter()
    for workload in workloads:
        conditions = workload.status.conditions
        if is_true(conditions, "Finished"):
            states["finished"] += 1
        elif is_true(conditions, "Admitted"):
            states["running"] += 1
        else:
            states["waiting"] += 1
    return Text("Workloads: " + ", ".join(f"{states[s]} {s}" for s in ("waiting", "running", "finished")))
