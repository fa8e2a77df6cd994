"""Cases of the area `workload_state`: questions about one Workload, and changes to one."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec

from shared.api import conditions as conds
from shared.api.decoding import convert
from shared.api.schema_hints import LONG_AGO
from shared.api.workload_status import (
    Admission,
    ReclaimablePod,
    RequeueState,
    WorkloadStatus,
)
from shared.decide import transitions
from shared.decide.dispatch import skips_nomination
from shared.decide.reclaim import capped
from shared.decide.requests import RequestRules, workload_info
from shared.decide.workload_changes import eviction_end, execution_s, priority_changed
from shared.events.objects import Workload
from shared.model.pending import ScanProgress
from shared.model.second_pass import needs_second_pass
from shared.model.workload import WorkloadInfo, queue_timestamp
from tests.conformance import objects
from tests.conformance.engine import Engine
from tests.conformance.scenario import Case, Mismatch, NotCovered, demand_equal

Json = dict[str, Any]


def run(case: Case) -> None:
    """Run one case; raises Mismatch or NotCovered."""
    request = case.raw["request"]
    handler = _OPS.get(request["op"])
    if handler is None:
        raise NotCovered(f"request {request['op']}")
    handler(case, request, case.raw["expect"])


def _named(raw: Json) -> Json:
    """Objects of this area may lack metadata, and checks their name."""
    status = dict(raw.get("status") or {})
    if status.get("admissionChecks"):
        status["admissionChecks"] = [{"name": "", **one} for one in status["admissionChecks"]]
    return {**raw, "metadata": {"name": "", **(raw.get("metadata") or {})}, "status": status}


def _workload(raw: Json) -> Workload:
    return objects.workload(_named(raw))


def _info(case: Case, raw: Json) -> WorkloadInfo:
    gates = case.raw.get("gates") or {}
    rules = RequestRules(
        priority_boost=gates.get("PriorityBoost", False),
        equivalence_hashing=gates.get("SchedulingEquivalenceHashing", True),
    )
    return workload_info(_workload(raw), rules)


def _now(case: Case) -> datetime:
    return datetime.fromtimestamp(objects.seconds(case.raw["now"]), UTC)


def _status(raw: Json) -> WorkloadStatus:
    return convert(WorkloadStatus, raw)


def _on_hold(case: Case, request: Json, expect: Json) -> None:
    demand_equal("onHold", _info(case, request["workload"]).on_hold, expect["onHold"])


def _order_time(case: Case, request: Json, expect: Json) -> None:
    strategy = case.raw["config"]["waitForPodsReady"]["requeuingStrategy"]
    gates = case.raw.get("gates") or {}
    found = queue_timestamp(
        _info(case, request["workload"]),
        by_eviction=strategy["timestamp"] == "Eviction",
        priority_within_cohort=gates.get("PrioritySortingWithinCohort", True),
    )
    demand_equal("time", found, objects.seconds(expect["time"]))


def _pods(raw: list[Json] | None) -> dict[str, int]:
    return {one["name"]: one["count"] for one in raw or ()}


def _pods_equal(case: Case, request: Json, expect: Json) -> None:
    # By pod set, as projections hold them and writers compare them.
    demand_equal("equal", _pods(request["a"]) == _pods(request["b"]), expect["equal"])


def _limit_pods(case: Case, request: Json, expect: Json) -> None:
    found = capped(_pods(request["reclaimablePods"]), request["podSetCounts"])
    demand_equal("reclaimablePods", found, _pods(expect["reclaimablePods"]))


def _flavors_left(case: Case, request: Json, expect: Json) -> None:
    tried = request["lastTriedFlavorIndex"]
    left = tried is not None and ScanProgress(tuple(tuple(one.items()) for one in tried)).flavors_left()
    demand_equal("pending", left, expect["pending"])


def _checks(case: Case, request: Json, expect: Json) -> None:
    engine = Engine(Case(case.area, case.id, {**case.raw, "objects": [request["clusterQueue"]]}))
    queue = engine.world.cluster_queues[request["clusterQueue"]["metadata"]["name"]]
    admission = _workload(request["workload"]).admission
    if admission is not None:
        flavors = frozenset(flavor for one in admission.pod_sets for flavor in one.flavors.values())
        found: set[str] | None = set(queue.required_checks(flavors))
    else:
        found = set(queue.unconditional_checks())
        if not found and queue.checks:
            found = None
    wanted = expect["checks"]
    demand_equal("checks", found, None if wanted is None else set(wanted))


def _second_pass(case: Case, request: Json, expect: Json) -> None:
    demand_equal("needs", needs_second_pass(_info(case, request["workload"])), expect["needs"])


def _requeue_state(case: Case, request: Json, expect: Json) -> None:
    before = _status(request["workload"].get("status") or {}).requeue_state
    at = datetime.fromtimestamp(objects.seconds(request["waitUntil"]), UTC)
    after: RequeueState = transitions.count_requeue(before, at, increment=request["incrementCount"])
    demand_equal("updated", after != before, expect["updated"])
    demand_equal("count", after.count, expect["count"])
    stored = after.requeue_at.timestamp() if after.requeue_at is not None else None
    demand_equal("requeueAt", stored, objects.seconds(expect["requeueAt"]))


def _execution_time(case: Case, request: Json, expect: Json) -> None:
    workload = _workload(request["workload"])
    conditions = {condition.type: condition for condition in workload.conditions}
    found = execution_s(conditions.get("Admitted"), conditions.get("Finished"), workload.past_execution_s)
    demand_equal("duration", found, _go_seconds(expect["duration"]))


def _go_seconds(text: str | None) -> float | None:
    """A Go duration (`1h2m3.5s`) in seconds."""
    if text is None:
        return None
    total, number = 0.0, ""
    units = {"h": 3600.0, "m": 60.0, "s": 1.0}
    for char in text:
        if char in units:
            total, number = total + float(number) * units[char], ""
        else:
            number += char
    if number:
        raise Mismatch(f"not a duration: {text!r}")
    return total


def _same_class(case: Case, request: Json, expect: Json) -> None:
    one, other = (_info(case, request[side]) for side in ("a", "b"))
    demand_equal("same", bool(one.shape) and one.shape == other.shape, expect["same"])


def _skip_nomination(case: Case, request: Json, expect: Json) -> None:
    status = request["workload"].get("status") or {}
    found = skips_nomination(
        (request.get("admissionCheckState") or {}).get("state", ""),
        evicted=conds.is_true(_status(status).conditions, "Evicted"),
        placed=status.get("clusterName") is not None,
        elastic=request["elastic"],
    )
    demand_equal("skip", found, expect["skip"])


def _without_messages(raw: Any) -> Any:
    if isinstance(raw, dict):
        return {key: _without_messages(value) for key, value in raw.items() if key != "message"}
    return [_without_messages(one) for one in raw] if isinstance(raw, list | tuple) else raw


def _reserve(case: Case, request: Json, expect: Json) -> None:
    raw = request["workload"]
    generation = raw["metadata"].get("generation", 0)
    admission = convert(Admission, request["admission"])
    after = transitions.hold_quota(_status(raw.get("status") or {}), admission, _now(case), generation)
    demand_equal("status", _shown(after), _shown(_status(expect["workload"]["status"])))
    demand_equal("the rest", {**raw, "status": None}, {**expect["workload"], "status": None})


def _shown(status: WorkloadStatus) -> Any:
    by_type = tuple(sorted(status.conditions, key=lambda one: one.type))
    return _without_messages(msgspec.to_builtins(msgspec.structs.replace(status, conditions=by_type)))


def _priority(case: Case, request: Json, expect: Json) -> None:
    demand_equal("changed", priority_changed(_workload(request["old"]), _workload(request["new"])), expect["changed"])


def _latency(case: Case, request: Json, expect: Json) -> None:
    old = _workload(request["old"]) if request["old"] else None
    end = eviction_end(old, _workload(request["new"]))
    demand_equal("measured", end is not None, expect["measured"])
    if end is not None:
        waited = objects.seconds(case.raw["now"]) - end.since
        found = (end.cluster_queue, end.reason, waited)
        demand_equal("observed", found, (expect["clusterQueue"], expect["reason"], _go_seconds(expect["latency"])))


def _change(request: Json, expect: Json, after: WorkloadStatus) -> None:
    """A change of the status whose write may fail: nothing is changed then."""
    failed = request["statusWriteFails"]
    stored = _status(request["status"]) if failed else after
    demand_equal("failed", failed, expect["failed"])
    shown, wanted = (_shown_timeless(one) for one in (stored, _status(expect["status"])))
    demand_equal("status", shown, wanted)


def _shown_timeless(status: WorkloadStatus) -> Any:
    bare = tuple(msgspec.structs.replace(one, last_transition_time=LONG_AGO) for one in status.conditions)
    return _shown(msgspec.structs.replace(status, conditions=bare))


def _reclaim(case: Case, request: Json, expect: Json) -> None:
    pods = tuple(ReclaimablePod(name=one["name"], count=one["count"]) for one in request["reclaimablePods"])
    _change(request, expect, msgspec.structs.replace(_status(request["status"]), reclaimable_pods=pods))


def _condition(case: Case, request: Json, expect: Json) -> None:
    raw, before = request["condition"], _status(request["status"])
    new = conds.make(
        raw["type"],
        raw["status"] == "True",
        raw["reason"],
        "",
        now=LONG_AGO,
        observed_generation=request["generation"],
    )
    after = msgspec.structs.replace(before, conditions=conds.set_condition(before.conditions, new))
    _change(request, expect, after)


_OPS: dict[str, Callable[[Case, Json, Json], None]] = {
    "is_on_hold": _on_hold,
    "queue_order_time": _order_time,
    "reclaimable_pods_equal": _pods_equal,
    "limit_reclaimable_pods": _limit_pods,
    "flavors_left_to_try": _flavors_left,
    "admission_checks_that_apply": _checks,
    "needs_second_pass": _second_pass,
    "set_requeue_state": _requeue_state,
    "total_execution_time": _execution_time,
    "same_scheduling_class": _same_class,
    "skip_cluster_nomination": _skip_nomination,
    "set_quota_reservation": _reserve,
    "priority_changed": _priority,
    "eviction_pending_latency": _latency,
    "update_reclaimable_pods": _reclaim,
    "set_condition": _condition,
}
