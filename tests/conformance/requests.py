"""Cases that ask one question (`request.op`): flavors of a workload, preference between two outcomes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from shared.api.quantity import request_units
from shared.decide.assignment import (
    Assignment,
    Attempt,
    FlavorChoice,
    Grade,
    GranularMode,
    Mode,
    PodSetResult,
    preferred,
)
from shared.decide.flavors import SearchSettings, SlicePart, assign
from shared.decide.partial import largest
from shared.model.cluster_queue import Fungibility
from shared.model.refusal import FlavorReason
from shared.model.workload import PodSetInfo, WorkloadInfo
from tests.conformance import api_admission, effective_requests, flavor_questions, validation, workload_state
from tests.conformance.engine import Engine
from tests.conformance.scenario import Case, Mismatch, NotCovered, demand_equal
from tests.conformance.topology_room import Room

Json = dict[str, Any]

_MODES = {"Fit": Mode.FIT, "Preempt": Mode.PREEMPT, "NoFit": Mode.NO_FIT}
_MODE_NAMES = {mode: name for name, mode in _MODES.items()}
_GRANULAR = {
    "noFit": GranularMode.NO_FIT,
    "noPreemptionCandidates": GranularMode.NO_PREEMPTION_CANDIDATES,
    "preempt": GranularMode.PREEMPT,
    "reclaim": GranularMode.RECLAIM,
    "fit": GranularMode.FIT,
}
_POSSIBILITIES = {
    "NoCandidates": GranularMode.NO_PREEMPTION_CANDIDATES,
    "Preempt": GranularMode.PREEMPT,
    "Reclaim": GranularMode.RECLAIM,
}


def run(case: Case) -> None:
    """Run a case with a `request`; raises Mismatch or NotCovered."""
    runner = _AREAS.get(case.area)
    if runner is not None:
        runner(case)
        return
    op = case.raw["request"].get("op")
    handler = _OPS.get(op) if case.area == "flavor_assignment" or op == "assign" else None
    if handler is None:
        raise NotCovered(f"request {op}")
    handler(case)


class _ScriptedOracle:
    """Answers as the case says, in place of a search for victims."""

    def __init__(self, engine: Engine, raw: Json) -> None:
        self.engine = engine
        self.raw = raw

    def simulate(self, index: int, amount: int, level: int) -> Grade:
        flavor, resource = self.engine.world.interned.pair(index)
        answer = self.raw["default"]
        for override in self.raw.get("overrides") or ():
            if (override["flavor"], override["resource"]) == (flavor, resource):
                answer = override
        return Grade(_POSSIBILITIES[answer["possibility"]], answer["borrowingAfter"])


def _assign(case: Case) -> None:
    request, expect = case.raw["request"], case.raw["expect"]
    if "topologyUsage" in request:
        raise NotCovered("topology usage")
    engine = Engine(case)
    for one in request.get("usage") or ():
        amount = request_units(one["resource"], one["quantity"])
        engine.world.forest.add_usage(
            one["clusterQueue"], engine.vector({f"{one['flavor']}/{one['resource']}": amount})
        )
    for name in request.get("missingFlavors") or ():
        engine.world.remove_resource_flavor(name)
    name = request["workload"]
    info = engine.world.workloads[f"{name['namespace']}/{name['name']}"]
    _compare(engine, _found(engine, case, info), expect)


def _found(engine: Engine, case: Case, info: WorkloadInfo) -> Assignment:
    request = case.raw["request"]
    config = case.raw.get("config") or {}
    strategy = (config.get("resources") or {}).get("quotaCheckStrategy")
    return assign(
        info,
        engine.world.cluster_queues[request["clusterQueue"]],
        engine.world.forest,
        engine.world.flavors,
        oracle=_ScriptedOracle(engine, request["preemptionOracle"]),
        settings=SearchSettings(
            fair_sharing=request.get("fairSharing", False),
            ignore_undeclared=strategy == "IgnoreUndeclared" and engine.gate("QuotaCheckStrategy"),
            flavor_fungibility=engine.gate("FlavorFungibility"),
            concurrent_admission=engine.gate("ConcurrentAdmission"),
        ),
        placement=Room(case.raw["objects"]) if engine.gate("TopologyAwareScheduling") else None,
        replaces={
            one["name"]: SlicePart(
                {name: request_units(name, raw) for name, raw in (one.get("totalRequests") or {}).items()},
                one.get("flavors") or {},
            )
            for one in (request.get("replacedSlice") or {}).get("podSets") or ()
        },
    )


def _compare(engine: Engine, found: Assignment, expect: Json) -> None:
    simple: dict[str, Callable[[], Any]] = {
        "mode": lambda: _MODE_NAMES[found.mode],
        "borrowing": lambda: found.level,
        "noFitReason": lambda: found.no_fit_reason(),
        "usage": lambda: {
            pair: amount for pair, amount in engine.world.interned.by_name(found.usage).items() if amount
        },
    }
    for key, wanted in expect.items():
        if key in simple:
            if key == "noFitReason" and not engine.gate("UnadmittedWorkloadsObservability"):
                continue
            demand_equal(key, simple[key](), _usage(wanted) if key == "usage" else wanted)
        elif key == "podSets":
            demand_equal("number of pod sets", len(found.pod_sets), len(wanted))
            for actual, expected in zip(found.pod_sets, wanted, strict=True):
                _compare_pod_set(actual, expected)
        elif key == "attemptNoFitReasons":
            attempted = {a.flavor: a.refusal for pod_set in found.pod_sets for a in pod_set.attempts}
            known = {flavor: why for flavor, why in wanted.items() if flavor in attempted}
            demand_equal(key, {flavor: attempted[flavor] for flavor in known}, known)
        elif key == "lastTriedFlavorIndex":
            tried = {p.name: {resource: c.tried for resource, c in p.flavors.items()} for p in found.pod_sets}
            demand_equal(key, tried, wanted)
        else:
            raise NotCovered(f"expectation {key}")


def _usage(raw: Any) -> dict[tuple[str, str], int]:
    total: Counter[tuple[str, str]] = Counter()
    for one in raw:
        total[(one["flavor"], one["resource"])] += request_units(one["resource"], one["quantity"])
    return {pair: amount for pair, amount in sorted(total.items()) if amount}


def _compare_pod_set(actual: PodSetResult, expected: Json) -> None:
    where = f"pod set {expected['name']}"
    demand_equal(f"{where}: name", actual.name, expected["name"])
    if "count" in expected:
        demand_equal(f"{where}: count", actual.count, expected["count"])
    if "flavors" in expected:
        _compare_choices(where, actual.flavors, expected["flavors"])
    if "requests" in expected:
        wanted = {name: request_units(name, raw) for name, raw in (expected["requests"] or {}).items()}
        demand_equal(f"{where}: requests", actual.requests, wanted)
    if expected.get("reasons") is not None:
        _compare_reasons(where, actual.reasons, expected["reasons"])
    if expected.get("attempts"):
        _compare_attempts(where, actual, expected["attempts"])
    if "error" in expected:
        demand_equal(f"{where}: error", flavor_questions.error_of(actual.error), expected["error"])


def _compare_choices(where: str, actual: dict[str, FlavorChoice], expected: Json) -> None:
    chosen = {
        resource: {key: value for key, value in _choice(choice).items() if key in expected.get(resource, {})}
        for resource, choice in actual.items()
    }
    demand_equal(f"{where}: flavors", chosen, expected)


def _choice(choice: FlavorChoice) -> Json:
    mode = {GranularMode.FIT: "Fit", GranularMode.NO_FIT: "NoFit"}.get(choice.mode, "Preempt")
    return {"flavor": choice.flavor, "mode": mode, "triedFlavorIndex": choice.tried}


def _compare_reasons(where: str, actual: tuple[FlavorReason, ...], expected: list[Json]) -> None:
    given = sorted(_reason(reason) for reason in actual)
    demand_equal(f"{where}: reasons", given, sorted(_expected_reason(raw) for raw in expected))


def _reason(reason: FlavorReason) -> tuple[str, ...]:
    parts: list[str] = [reason.code, reason.flavor, reason.resource]
    if reason.code == "over_max_capacity":
        parts += [str(reason.assumed), str(reason.requested), str(reason.maximum)]
    elif reason.code == "short_of_unused_quota":
        parts.append(str(reason.missing))
    elif reason.code in ("untolerated_taint", "slice_flavor_pinned"):
        parts.append(reason.detail)
    return tuple(parts)


def _expected_reason(raw: Json) -> tuple[str, ...]:
    resource = raw.get("resource", "")
    parts: list[str] = [raw["code"], raw.get("flavor", ""), resource]
    if raw["code"] == "over_max_capacity":
        parts += [str(request_units(resource, raw[name])) for name in ("assumed", "requested", "maxCapacity")]
    elif raw["code"] == "short_of_unused_quota":
        parts.append(str(request_units(resource, raw["missing"])))
    elif raw["code"] == "untolerated_taint":
        taint = raw["taint"]
        value = f"={taint['value']}" if taint.get("value") else ""
        parts.append(f"{taint['key']}{value}:{taint['effect']}")
    elif raw["code"] == "slice_flavor_pinned":
        parts.append(raw["pinnedTo"])
    return tuple(parts)


def _compare_attempts(where: str, actual: PodSetResult, expected: list[Json]) -> None:
    by_flavor = {raw["flavor"]: raw for raw in expected}
    fits = any(attempt.mode is GranularMode.FIT for attempt in actual.attempts)
    seen = {attempt.flavor for attempt in actual.attempts}
    if not fits and not seen.issuperset(by_flavor):
        raise Mismatch(f"{where}: attempts: expected {sorted(by_flavor)}, got {sorted(seen)}")
    for attempt in actual.attempts:
        wanted = by_flavor.get(attempt.flavor)
        if wanted is None:
            if fits:
                raise Mismatch(f"{where}: attempt of flavor {attempt.flavor} is not expected")
            continue
        _compare_attempt(where, attempt, wanted)


def _compare_attempt(where: str, attempt: Attempt, wanted: Json) -> None:
    mode = {GranularMode.FIT: "Fit", GranularMode.NO_FIT: "NoFit"}.get(attempt.mode, "Preempt")
    codes = {reason["code"] for reason in wanted.get("reasons") or ()}
    if mode == "Fit" and wanted["mode"] == "NoFit" and codes == {"resource_not_in_flavor"}:
        return
    actual = {
        "mode": mode,
        "borrow": attempt.level,
        "noFitReason": attempt.refusal,
        "preemptionPossibility": {grade: name for name, grade in _POSSIBILITIES.items()}.get(attempt.mode),
    }
    demand_equal(f"{where}: attempt {attempt.flavor}", actual, {key: wanted[key] for key in actual})
    # A flavor pinned for several resources says so for each of them; the attempt is listed once.
    distinct = tuple(dict.fromkeys(attempt.reasons))
    _compare_reasons(f"{where}: attempt {attempt.flavor}", distinct, wanted.get("reasons") or [])


def _prefer(case: Case) -> None:
    request = case.raw["request"]
    policy = request.get("flavorFungibility") or {}
    fungibility = Fungibility(preemption_over_borrowing=policy.get("preference") == "PreemptionOverBorrowing")
    left, right = (Grade(_GRANULAR[request[side]["mode"]], request[side]["borrowingLevel"]) for side in ("a", "b"))
    demand_equal("aPreferred", preferred(left, right, fungibility), case.raw["expect"]["aPreferred"])


def _partial(case: Case) -> None:
    request, expect = case.raw["request"], case.raw["expect"]
    pod_sets = tuple(
        PodSetInfo(name=raw["name"], count=raw["count"], requests={}, min_count=raw["minCount"])
        for raw in request["podSets"]
    )

    def total(info: WorkloadInfo) -> int | None:
        count = sum(pod_set.count for pod_set in info.pod_sets)
        return count if count <= request["totalLimit"] else None

    found = largest(WorkloadInfo(namespace="", name="", key="", pod_sets=pod_sets), total)
    demand_equal("found", found is not None, expect["found"])
    demand_equal("total", found or 0, expect["total"])


_OPS: dict[str, Callable[[Case], None]] = {
    "assign": _assign,
    "prefer": _prefer,
    "partial_admission_search": _partial,
    "topology_requests": flavor_questions.topology_requests,
    "total_requests": flavor_questions.total_requests,
    "topology_net_usage": flavor_questions.topology_net_usage,
}

_AREAS: dict[str, Callable[[Case], None]] = {
    "api_admission": api_admission.run,
    "effective_requests": effective_requests.run,
    "validation": validation.run,
    "workload_state": workload_state.run,
}
