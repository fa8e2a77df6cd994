"""One function per message: what a batch of cycles becomes on the bus, and the answers to `positions` and `explain`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from services.scheduler.reports import PendingReports
from shared.decide.cycle import Admit as DecidedAdmit
from shared.decide.cycle import Batch as DecidedBatch
from shared.decide.cycle import Preempt as DecidedPreempt
from shared.events.decisions import Admit, Batch, Decision, Positions, Preempt
from shared.events.objects import PodSetAssignment
from shared.model.refusal import Refusal
from shared.state.scheduling import SchedulerState
from shared.state.story import Chapter

State = Literal["unknown", "decided", "holds_quota", "preempting", "waiting", "parked", "held_back", "not_queued"]


class Explanation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer to `explain`, as JSON.

    `state`: unknown workload; decided (in the log, not settled); holds_quota; preempting (waits for victims); waiting (in line), parked (until
    something changes that could help), held_back (after a rejected decision), not_queued (finished, deactivated, gated, or without an open queue).
    """

    workload: str
    state: State
    cluster_queue: str = ""
    place: int | None = None
    """Workloads before it in line; 0 for the head."""
    reason: str = ""
    message: str = ""
    refusal: Refusal | None = None
    like: str = ""
    """A workload of the same shape that was looked at in its place."""
    looked_at: float | None = None
    """Seconds since the epoch."""
    based_on: Positions | None = None
    positions: Positions
    victims: tuple[str, ...] = ()
    """Workloads that are on their way out for it, as far as their evictions are not settled."""
    preempted_for: str = ""
    """The workload that takes the quota of this one."""
    story: tuple[Chapter, ...] = ()


def batch_message(
    decided: DecidedBatch, *, author: str, positions: Positions, now: float, traces: Sequence[str] = ()
) -> Batch:
    """The entry of the log that a batch becomes; `traces`: traceparents of its decisions, in their order."""
    return Batch(
        author=author,
        positions=positions,
        decided_ns=int(now * 1e9),
        decisions=tuple(
            _decision(decision, trace)
            for decision, trace in zip(decided.decisions, traces or ("",) * len(decided.decisions), strict=True)
        ),
    )


def _decision(decision: DecidedAdmit | DecidedPreempt, trace: str) -> Decision:
    return _admit(decision, trace) if isinstance(decision, DecidedAdmit) else _preempt(decision, trace)


def _admit(admit: DecidedAdmit, trace: str) -> Admit:
    return Admit(
        key=admit.key,
        uid=admit.uid,
        incarnation=admit.incarnation,
        domain=admit.domain,
        trace=trace,
        cluster_queue=admit.cluster_queue,
        pod_sets=tuple(
            PodSetAssignment(name=p.name, count=p.count, flavors=p.flavors, usage=p.usage)
            for p in admit.admission.pod_sets
        ),
        required_checks=admit.required_checks,
        queued_since=admit.queued_since,
        considered=admit.considered,
        replaces=admit.replaces,
        replaced_uid=admit.replaced_uid,
    )


def _preempt(preempt: DecidedPreempt, trace: str) -> Preempt:
    return Preempt(
        key=preempt.key,
        uid=preempt.uid,
        incarnation=preempt.incarnation,
        domain=preempt.domain,
        trace=trace,
        reason=preempt.reason,
        message=preempt.message,
        preemptor=preempt.preemptor,
        preemptor_uid=preempt.preemptor_uid,
        cluster_queue=preempt.cluster_queue,
        preemptor_cluster_queue=preempt.preemptor_cluster_queue,
        priority=preempt.priority,
        preemptor_priority=preempt.preemptor_priority,
        eviction=preempt.eviction,
    )


def positions(state: SchedulerState) -> bytes:
    """Answer to `positions`: where this scheduler stands, as JSON."""
    return msgspec.json.encode(state.positions)


def explain(state: SchedulerState, reports: PendingReports, payload: bytes, now: float) -> bytes:
    """Answer to `explain`; the request is the workload's key, `namespace/name`."""
    key = payload.decode(errors="replace").strip()
    refused = reports.refused.get(key)
    where, place = _place(state, key, now)
    charge = state.world.charges.get(key)
    queue = charge.admission.cluster_queue if charge is not None else state.world.pending.place_of(key) or ""
    shown = refused if where in ("preempting", "waiting", "parked", "held_back") else None
    answer = Explanation(
        workload=key,
        state=where,
        cluster_queue=queue,
        place=place,
        reason=str(shown.entry.refusal.reason) if shown is not None else "",
        message=shown.entry.message if shown is not None else "",
        refusal=shown.entry.refusal if shown is not None else None,
        like=shown.like if shown is not None else "",
        looked_at=shown.at if shown is not None else None,
        based_on=shown.positions if shown is not None else None,
        positions=state.positions,
        victims=tuple(sorted(v for v, preemptor in state.world.preempting.items() if preemptor == key)),
        preempted_for=state.world.preempting.get(key, ""),
        story=state.story(key),
    )
    return msgspec.json.encode(answer)


def _place(state: SchedulerState, key: str, now: float) -> tuple[State, int | None]:
    world = state.world
    if key in world.assumed:
        return "decided", None
    if key in world.charges:
        return "holds_quota", None
    if key not in world.workloads:
        return "unknown", None
    if state.is_held_back(key, now):
        return "held_back", None
    name = world.pending.place_of(key)
    if name is None:
        return "not_queued", None
    queue = world.pending.queues[name]
    before = next(place for place, item in enumerate(queue.items()) if item.info.key == key)
    if queue.preemptor is not None and queue.preemptor.key == key:
        return "preempting", before
    return ("parked" if key in queue.inadmissible else "waiting"), before
