"""A scheduling cycle on a case's state, and what it left: reservations, statuses as they would be written, events."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from shared.api import conditions as conds
from shared.api import names
from shared.api import workload_status as api
from shared.api.decoding import convert
from shared.api.quantity import format_amount, parse
from shared.decide import transitions
from shared.decide.decisions import Admit, NotAdmitted, Preempt
from shared.decide.flavors import SearchSettings
from shared.decide.order import HeadOrder
from shared.decide.settings import CycleSettings, FairSharing
from shared.decide.single_cycle import Outcome, run_cycle
from tests.conformance.engine import Engine
from tests.conformance.objects import admission as read_admission
from tests.conformance.objects import key_of
from tests.conformance.scenario import NotCovered, demand_equal

Json = dict[str, Any]


def run(engine: Engine) -> None:
    """The step `cycle`."""
    outcome = run_cycle(engine.world, engine.now, settings=settings(engine))
    engine.outcome = outcome
    faults = engine.case.raw.get("faults") or {}
    unknown = set(faults) - {"workloadStatusWrite", "metadataChangedBeforeFirstStatusWrite"}
    if unknown:
        raise NotCovered(f"faults {sorted(unknown)}")
    if faults.get("workloadStatusWrite"):
        _reject(engine, outcome)
        return
    for key in faults.get("metadataChangedBeforeFirstStatusWrite") or ():
        engine.relabel(key)
    for decision in outcome.decisions:
        if isinstance(decision, Admit):
            _reserve(engine, decision)
        else:
            evict(engine, decision)
    for refused in outcome.refused:
        _report(engine, refused)


def _reject(engine: Engine, outcome: Outcome) -> None:
    """No write lands: each decision is rejected, nothing is reported."""
    for decision in outcome.decisions:
        if isinstance(decision, Admit):
            engine.world.settle(decision.key, engine.now)
        else:
            engine.world.settle_preempted(decision.key, engine.now)
    outcome.decisions.clear()


def fair_sharing(engine: Engine) -> FairSharing | None:
    """Fair sharing as configured by the case."""
    if "fairSharing" not in engine.config:
        return None
    within = engine.gate("FairSharingPreemptWithinNominal")
    strategies = (engine.config["fairSharing"] or {}).get("preemptionStrategies")
    if strategies is None:
        return FairSharing(preempt_within_nominal=within)
    return FairSharing(tuple(strategies), preempt_within_nominal=within)


def settings(engine: Engine) -> CycleSettings:
    """Gates and configuration of the case."""
    policy = engine.world.pending.policy
    strategy = (engine.config.get("resources") or {}).get("quotaCheckStrategy")
    return CycleSettings(
        fair=fair_sharing(engine),
        recompute_overlap=engine.gate("RecomputeAssignmentUponPreemptionTargetsOverlap"),
        preemption_gates=engine.gate("ConcurrentAdmission") or engine.gate("MultiKueueOrchestratedPreemption"),
        elastic_slices=engine.gate("ElasticJobsViaWorkloadSlices"),
        search=SearchSettings(
            ignore_undeclared=strategy == "IgnoreUndeclared" and engine.gate("QuotaCheckStrategy"),
            flavor_fungibility=engine.gate("FlavorFungibility"),
            concurrent_admission=engine.gate("ConcurrentAdmission"),
        ),
        order=HeadOrder(
            by_eviction=policy.by_eviction,
            priority_within_cohort=policy.priority_within_cohort,
            prioritize_preemptors=engine.gate("PrioritizePreemptorWorkloads"),
            prioritize_non_borrowing=engine.gate("FairSharingPrioritizeNonBorrowing"),
        ),
        partial_admission=engine.gate("PartialAdmission"),
        preserve_scan_progress=engine.gate("FlavorFungibilityPreserveScanProgress"),
    )


def _status(engine: Engine, key: str) -> api.WorkloadStatus:
    if key not in engine.statuses:
        raw = engine.raws[("Workload", key)].get("status") or {}
        engine.statuses[key] = convert(api.WorkloadStatus, _with_times(raw))
    return engine.statuses[key]


def _with_times(raw: Json) -> Json:
    """Conditions without a time have the zero time, checks may lack a message."""
    zero = {"lastTransitionTime": "1970-01-01T00:00:00Z", "message": ""}
    filled = {name: [{**zero, **one} for one in raw.get(name) or ()] for name in ("conditions", "admissionChecks")}
    return {**raw, **filled}


def _reserve(engine: Engine, admit: Admit) -> None:
    status = _status(engine, admit.key)
    admission = api.Admission(
        cluster_queue=admit.cluster_queue,
        pod_set_assignments=tuple(
            api.PodSetAssignment(
                name=one.name,
                count=one.count,
                flavors=one.flavors,
                resource_usage={resource: format_amount(resource, amount) for resource, amount in one.usage.items()},
            )
            for one in admit.admission.pod_sets
        ),
    )
    new = transitions.reserve(
        status, admission=admission, required_checks=admit.required_checks, now=_now(engine), generation=0
    )
    engine.statuses[admit.key] = new
    engine.events.append((admit.key, "Normal", "QuotaReserved"))
    if conds.is_true(new.conditions, "Admitted"):
        engine.events.append((admit.key, "Normal", "Admitted"))
    if admit.replaces:
        old = _status(engine, admit.replaces)
        engine.statuses[admit.replaces] = transitions.finish(
            old, names.REASON_SLICE_REPLACED, "replaced by a newer slice", _now(engine), 0
        )
        engine.events.append((admit.replaces, "Normal", names.REASON_SLICE_REPLACED))


def evict(engine: Engine, decision: Preempt) -> None:
    """The write a Preempt stands for, and its events."""
    status = _status(engine, decision.key)
    preempted = decision.reason if decision.eviction == names.REASON_PREEMPTED else ""
    engine.statuses[decision.key] = transitions.evict(
        status, decision.eviction, decision.message, _now(engine), 0, preempted_reason=preempted
    )
    engine.events.append((decision.key, "Normal", f"EvictedDueTo{decision.eviction}"))
    if preempted:
        engine.events.append((decision.key, "Normal", "Preempted"))
        engine.events.append((decision.preemptor, "Normal", "PreemptedWorkload"))


def _report(engine: Engine, refused: NotAdmitted) -> None:
    status = _status(engine, refused.key)
    reason = refused.refusal.reason
    engine.statuses[refused.key] = transitions.report_pending(
        status, reason, refused.message, refused.requests, _now(engine), 0, gated=refused.gated
    )
    engine.events.append((refused.key, "Warning", reason))


def _now(engine: Engine) -> datetime:
    return datetime.fromtimestamp(engine.now, UTC)


# --- expectations --------------------------------------------------------------------------------------------------


def check_admissions(engine: Engine, wanted: Json) -> None:
    actual = {key: charge.admission for key, charge in engine.world.charges.items()}
    demand_equal("workloads holding quota", set(actual), set(wanted))
    for key, raw in wanted.items():
        expected = read_admission(raw)
        assert expected is not None
        found = actual[key]
        demand_equal(f"admission of {key}", _rows(found), _rows(expected))


def _rows(admission: Any) -> tuple[str, list[tuple[str, int, Json, Json]]]:
    return admission.cluster_queue, [(p.name, p.count, dict(p.flavors), dict(p.usage)) for p in admission.pod_sets]


def _rows_of_preempts(engine: Engine, wanted: list[Json]) -> list[Json]:
    rows = []
    paths = {one["workload"] for one in wanted if "preemptorPath" in one}
    for preempt in (*engine.outcome.decisions, *engine.outcome.awaited):
        if not isinstance(preempt, Preempt) or preempt.eviction != names.REASON_PREEMPTED:
            continue
        row: Json = {"workload": preempt.key, "reason": preempt.reason, "preemptor": preempt.preemptor_uid}
        if preempt.key in paths:
            row |= {"preemptorPath": preempt.preemptor_path, "preempteePath": preempt.preemptee_path}
            demand_text = f"preemptor path: {preempt.preemptor_path}; preemptee path: {preempt.preemptee_path}"
            demand_equal("message names both paths", demand_text in preempt.message, True)
        if preempt.already_evicted:
            row["alreadyEvicted"] = True
        rows.append(row)
    return rows


def _uid(engine: Engine, key: str) -> str:
    incoming = [step["incoming"] for step in engine.case.raw["steps"] if "incoming" in step]
    known = {
        **{key_of(raw): raw for raw in incoming},
        **{k: raw for (kind, k), raw in engine.raws.items() if kind == "Workload"},
    }
    return str(known[key]["metadata"].get("uid", "")) if key in known else f"{key} (unknown)"


def _by_key(rows: list[Json]) -> list[tuple[str, str]]:
    return sorted((row["workload"], repr(sorted(row.items()))) for row in rows)


def check_preempted(engine: Engine, wanted: list[Json]) -> None:
    # A case knows the preemptor by the uid in the message; two workloads of a case may have the same one.
    wanted = [{**one, "preemptor": _uid(engine, one["preemptor"])} for one in wanted]
    demand_equal("preempted", _by_key(_rows_of_preempts(engine, wanted)), _by_key(wanted))


def check_preempted_count(engine: Engine, wanted: int) -> None:
    demand_equal("preemptedCount", len(_rows_of_preempts(engine, [])), wanted)


def check_evicted(engine: Engine, wanted: list[Json]) -> None:
    evictions = [one for one in engine.outcome.decisions if isinstance(one, Preempt)]
    actual = [{"workload": one.key, "reason": one.eviction} for one in evictions]
    demand_equal("evicted", _by_key(actual), _by_key(wanted))


def check_skipped(engine: Engine, wanted: dict[str, int]) -> None:
    actual = {queue: engine.outcome.skipped_preemptions.get(queue, 0) for queue in wanted}
    demand_equal("skippedPreemptions", actual, wanted)


def check_recomputations(engine: Engine, wanted: dict[str, dict[str, int]]) -> None:
    # The cases count only the ClusterQueues they name.
    actual: dict[str, dict[str, int]] = {queue: {} for queue in wanted}
    for (queue, result), count in engine.outcome.recomputations.items():
        if queue in wanted:
            actual[queue][result] = count
    demand_equal("preemptionRecomputations", actual, wanted)


def check_pod_set_flavors(engine: Engine, wanted: dict[str, str | None]) -> None:
    for key, expected in wanted.items():
        charge = engine.world.charges.get(key)
        flavors = charge.admission.flavors() if charge is not None else frozenset()
        demand_equal(f"flavors of {key}", flavors, {expected} if expected is not None else set())


def check_events(engine: Engine, wanted: list[Json]) -> None:
    demand_equal("events", engine.events, [(one["object"], one["type"], one["reason"]) for one in wanted])


def check_workloads(engine: Engine, wanted: list[Json]) -> None:
    keys = {key for kind, key in engine.raws if kind == "Workload"}
    demand_equal("workloads", keys, {raw["workload"] for raw in wanted})
    for raw in wanted:
        key = raw["workload"]
        actual = msgspec.to_builtins(_status(engine, key))
        expected = msgspec.to_builtins(
            convert(api.WorkloadStatus, _with_times({k: raw[k] for k in raw if k != "workload"}))
        )
        demand_equal(f"status of {key}", _comparable(actual), _comparable(expected))


def _comparable(status: Json) -> Json:
    """Without messages and generations, conditions by type, quantities by value."""
    found = dict(status)
    found["conditions"] = {
        one["type"]: (one["status"], one["reason"], one["lastTransitionTime"]) for one in status.get("conditions") or ()
    }
    found["admissionChecks"] = {one["name"]: one["state"] for one in status.get("admissionChecks") or ()}
    return {key: _by_value(value) for key, value in found.items() if value not in ({}, [], (), None)}


def _by_value(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: {name: parse(raw).nano for name, raw in one.items()}
            if key in ("resourceUsage", "resources") and isinstance(one, dict)
            else _by_value(one)
            for key, one in value.items()
        }
    if isinstance(value, list | tuple):
        return [_by_value(one) for one in value]
    return value
