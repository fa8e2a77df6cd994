"""Checks of what a case expects, one function per key of `expect`. Only keys that are present are checked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.conformance import cycle, fairness, queue_numbers
from tests.conformance.engine import Engine
from tests.conformance.scenario import NotCovered, demand_equal

Json = dict[str, Any]


def check(engine: Engine, expect: Json) -> None:
    """Compare everything `expect` names; raises Mismatch or NotCovered."""
    for key, wanted in expect.items():
        checker = _CHECKS.get(key)
        if checker is None:
            raise NotCovered(f"expectation {key}")
        checker(engine, wanted)


def _answer(name: str) -> Callable[[Engine, Any], None]:
    def compare(engine: Engine, wanted: Any) -> None:
        demand_equal(name, engine.answers.get(name), wanted)

    return compare


def _cells(name: str, read: Callable[[Engine, str, int], int]) -> Callable[[Engine, Any], None]:
    def compare(engine: Engine, wanted: Json) -> None:
        world = engine.world
        for queue, amounts in wanted.items():
            if not world.forest.has_cluster_queue(queue):
                demand_equal(f"{name}: ClusterQueue {queue}", None, amounts)
            quotas = {"/".join(world.interned.pair(index)) for index in world.forest.queue_node(queue).cells}
            actual = {
                pair: read(engine, queue, world.interned.index(*_split(pair))) if pair in quotas else None
                for pair in amounts
            }
            demand_equal(f"{name} of {queue}", actual, amounts)

    return compare


def _split(pair: str) -> tuple[str, str]:
    flavor, _, resource = pair.partition("/")
    return flavor, resource


def _snapshot_queues(engine: Engine) -> list[str]:
    return [queue for queue in engine.world.forest.cluster_queues() if engine.world.in_snapshot(queue)]


def _per_node(name: str, attribute: str) -> Callable[[Engine, Any], None]:
    """Non-zero numbers of every ClusterQueue and cohort of the snapshot."""

    def compare(engine: Engine, wanted: Json) -> None:
        forest = engine.world.forest
        queues = {queue: forest.queue_node(queue) for queue in _snapshot_queues(engine)}
        cohorts = {cohort: forest.cohort_node(cohort) for cohort in forest.cohorts()}
        for kind, nodes in (("clusterQueues", queues), ("cohorts", cohorts)):
            if kind not in wanted:
                continue
            actual = {
                node_name: engine.named(
                    {index: getattr(cell, attribute) for index, cell in node.cells.items()}, zeros=False
                )
                for node_name, node in nodes.items()
                if not node.cyclic
            }
            expected = {node: {p: n for p, n in amounts.items() if n} for node, amounts in wanted[kind].items()}
            demand_equal(f"{name} of {kind}", actual, expected)

    return compare


def _members(engine: Engine, wanted: dict[str, list[str]]) -> None:
    if any("/" in name for name in wanted):
        actual = engine.answers.get("localMembers", {})
        demand_equal("members", {name: set(actual.get(name, ())) for name in wanted}, _sets(wanted))
        return
    actual = {queue: set(engine.world.members.get(queue, ())) for queue in _snapshot_queues(engine)}
    demand_equal("members", actual, _sets(wanted))


def _sets(raw: dict[str, list[str]]) -> dict[str, set[str]]:
    return {name: set(values) for name, values in raw.items()}


def _fair_weights(engine: Engine, wanted: Json) -> None:
    world = engine.world
    queues = {queue: world.cluster_queues[queue].fair_weight for queue in _snapshot_queues(engine)}
    cohorts = {
        name: world.cohorts[name].fair_weight if name in world.cohorts else 0
        for name in world.forest.cohorts()
        if not world.forest.cohort_node(name).cyclic
    }
    demand_equal("fairWeights", {"clusterQueues": queues, "cohorts": cohorts}, wanted)


def _inactive(engine: Engine, wanted: list[str]) -> None:
    left_out = {queue for queue in engine.world.forest.cluster_queues() if not engine.world.in_snapshot(queue)}
    demand_equal("inactive", left_out, set(wanted))


def _assigned(engine: Engine, wanted: dict[str, str]) -> None:
    demand_equal("assigned", engine.world.pending.assigned, wanted)


def _order(engine: Engine, wanted: Any) -> None:
    actual = engine.answers.get("order")
    if isinstance(wanted, dict) and isinstance(actual, dict):
        names = {queue for queue in (*wanted, *actual) if wanted.get(queue) or actual.get(queue) or queue in wanted}
        demand_equal("order", {queue: actual.get(queue) for queue in names}, {q: wanted.get(q) for q in names})
        return
    demand_equal("order", actual, wanted)


def _bucket(name: str, attribute: str) -> Callable[[Engine, Any], None]:
    def compare(engine: Engine, wanted: dict[str, list[str]]) -> None:
        queues = engine.world.pending.queues.values()
        actual = {queue.name: set(getattr(queue, attribute)) for queue in queues if getattr(queue, attribute)}
        demand_equal(name, actual, _sets(wanted))

    return compare


def _pending_count(engine: Engine, wanted: dict[str, int]) -> None:
    actual = {queue: engine.world.pending.pending_count(queue) for queue in wanted}
    demand_equal("pendingCount", actual, wanted)


def _sticky(engine: Engine, wanted: dict[str, bool]) -> None:
    queues = engine.world.pending.queues
    demand_equal("sticky", {queue: queues[queue].sticky_key() is not None for queue in wanted}, wanted)


def _activity(engine: Engine, wanted: dict[str, Json]) -> None:
    for queue, expected in wanted.items():
        activity = engine.world.activity(queue)
        actual = {"status": str(activity.active), "reason": activity.reason, "active": activity.active}
        demand_equal(f"activity of {queue}", {key: actual[key] for key in expected}, expected)


def _requeued_again(engine: Engine, wanted: bool) -> None:
    demand_equal("requeuedAgain", engine.requeue_once_more(), wanted)


def _ready(engine: Engine, wanted: list[str]) -> None:
    demand_equal("ready", engine.ready_second_passes(), sorted(wanted))


_CHECKS: dict[str, Callable[[Engine, Any], None]] = {
    "available": _cells("available", lambda engine, queue, index: engine.world.forest.available(queue, index)),
    "potentiallyAvailable": _cells(
        "potentiallyAvailable", lambda engine, queue, index: engine.world.forest.potential(queue, index)
    ),
    "reserved": _answer("reserved"),
    "usage": _per_node("usage", "usage"),
    "subtreeQuota": _per_node("subtreeQuota", "subtree"),
    "members": _members,
    "fairWeights": _fair_weights,
    "inactive": _inactive,
    "heads": _answer("heads"),
    "order": _order,
    "assigned": _assigned,
    "accepted": _answer("accepted"),
    "requeued": _answer("requeued"),
    "requeuedAgain": _requeued_again,
    "moved": _answer("moved"),
    "queued": _answer("queued"),
    "ready": _ready,
    "clusterQueueStatus": queue_numbers.check_cluster_queues,
    "localQueueStatus": queue_numbers.check_local_queues,
    "backoffExpired": _answer("backoffExpired"),
    "pending": _bucket("pending", "heap"),
    "inadmissible": _bucket("inadmissible", "inadmissible"),
    "pendingCount": _pending_count,
    "sticky": _sticky,
    "shares": fairness.check_shares,
    "borrowing": _answer("borrowing"),
    "borrowingOnRequested": _answer("borrowingOnRequested"),
    "activity": _activity,
    "admissions": cycle.check_admissions,
    "preempted": cycle.check_preempted,
    "preemptedCount": cycle.check_preempted_count,
    "evicted": cycle.check_evicted,
    "skippedPreemptions": cycle.check_skipped,
    "preemptionRecomputations": cycle.check_recomputations,
    "podSetFlavors": cycle.check_pod_set_flavors,
    "events": cycle.check_events,
    "workloads": cycle.check_workloads,
}
