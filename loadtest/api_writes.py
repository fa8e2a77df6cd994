"""The controller's API writes by purpose: what admissions cost, what evictions cost, and what only informs.

The audit log counts all writes of the controller, refused ones included; the watch tells which changes of Workloads were evictions or pending text. What
is left of its writes of Workloads and Jobs counts as the path of admissions: a write that changed nothing, or failed, is on nobody else's account.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from loadtest.changes import Purpose
from loadtest.writes import EVENTS, WriteCount

PATH = ("workloads", "jobs")
INFORMING = ("clusterqueues", "localqueues", "cohorts")


def api_writes(
    counts: Iterable[WriteCount],
    purposes: Mapping[Purpose, int],
    *,
    users: Collection[str],
    items: int,
    wall_s: float,
    foreign: Mapping[Purpose, int],
) -> dict[str, float]:
    """Figures. `foreign`: changes that the load runner made itself, by purpose; `items` and `wall_s` must not be 0."""
    mine = [c for c in counts if c.user in users]
    changed = {purpose: purposes.get(purpose, 0) - foreign.get(purpose, 0) for purpose in ("pending", "requeue")}
    evictions, admissions = purposes.get("eviction", 0), purposes.get("admission", 0)
    on_path = sum(c.count for c in mine if c.resource.partition("/")[0] in PATH)
    after_evictions = evictions + changed["requeue"]
    admitting = max(0, on_path - after_evictions - changed["pending"])
    events = sum(c.count for c in mine if c.resource == EVENTS)
    queues = sum(c.count for c in mine if c.resource.partition("/")[0] in INFORMING)
    return {
        "api_writes_per_workload": sum(c.count for c in mine) / items,
        "api_writes.per_admission": admitting / admissions if admissions else 0.0,
        "api_writes.per_eviction": after_evictions / evictions if evictions else 0.0,
        "api_writes.failed": float(sum(c.failed for c in mine)),
        "api_writes.informational_per_s": (changed["pending"] + events + queues) / wall_s,
        "api_writes.pending_per_s": changed["pending"] / wall_s,
        "api_writes.queue_status_per_s": queues / wall_s,
        "api_writes.events_per_s": events / wall_s,
    }
