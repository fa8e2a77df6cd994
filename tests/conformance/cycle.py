"""A scheduling cycle on a case's state, and what it left: reservations, statuses as they would be written, events."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from shared.api import conditions as conds
from shared.api import workload_status as api
from shared.api.decoding import convert
from shared.api.quantity import format_amount, parse
from shared.decide import transitions
from shared.decide.cycle import Admit, CycleSettings, NotAdmitted, run_cycle
from shared.decide.flavors import SearchSettings
from shared.decide.order import HeadOrder
from shared.model.pending import RequeueReason
from tests.conformance.engine import Engine
from tests.conformance.objects import admission as read_admission
from tests.conformance.scenario import NotCovered, demand_equal

Json = dict[str, Any]


def run(engine: Engine) -> None:
    """The step `cycle`."""
    if "fairSharing" in engine.config or engine.case.raw.get("faults"):
        raise NotCovered("fair sharing and faults")
    outcome = run_cycle(engine.world, engine.now, settings=_settings(engine))
    for admit in outcome.admits:
        _reserve(engine, admit)
    for refused in outcome.refused:
        _report(engine, refused)


def _settings(engine: Engine) -> CycleSettings:
    policy = engine.world.pending.policy
    return CycleSettings(
        search=SearchSettings(
            flavor_fungibility=engine.gate("FlavorFungibility"),
            concurrent_admission=engine.gate("ConcurrentAdmission"),
        ),
        order=HeadOrder(
            by_eviction=policy.by_eviction,
            priority_within_cohort=policy.priority_within_cohort,
            prioritize_preemptors=engine.gate("PrioritizePreemptorWorkloads"),
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


def _report(engine: Engine, refused: NotAdmitted) -> None:
    status = _status(engine, refused.key)
    reason = refused.refusal.reason
    engine.statuses[refused.key] = transitions.report_pending(
        status, reason, refused.message, refused.requests, _now(engine), 0
    )
    engine.events.append((refused.key, "Warning", reason))
    if refused.requeue is RequeueReason.PENDING_PREEMPTION:
        raise NotCovered("preemption")


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


def check_none(name: str, engine: Engine, wanted: list[Json]) -> None:
    """Preemptions and evictions: none happen yet."""
    demand_equal(name, [], wanted)


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
