"""Is the state that was kept step by step what one would compute from scratch? For tests, after every step.

A snapshot names what decisions depend on and what must not depend on the interleaving of streams. Memory that only saves work (what is parked, scan
progress, equivalence) is left out of the comparison but is checked to be consistent in itself.
"""

from __future__ import annotations

from shared.bus.interface import ObjectChanged
from shared.events.subjects import ObjectName
from shared.model.world import World
from shared.state.folding import KINDS, Fold
from shared.state.scheduling import SchedulerState, admission_of


class StateDiverged(AssertionError):
    """The kept state is not the computed one; the message names the parts and both values."""


def snapshot(world: World) -> dict[str, object]:
    """The World in plain, comparable values; amounts by (flavor, resource)."""
    numbers: dict[str, object] = {}
    for (is_cohort, name), cells in world.forest.dump().items():
        node = f"{'cohort' if is_cohort else 'queue'}/{name}"
        numbers[node] = {world.interned.pair(index): values for index, values in cells.items()}
    return {
        "forest": {
            node: dict(sorted(cells.items())) for node, cells in sorted(numbers.items()) if isinstance(cells, dict)
        },
        "activities": dict(sorted(world.activities.items())),
        "workloads": dict(sorted(world.workloads.items())),
        "charges": {key: charge.admission for key, charge in sorted(world.charges.items())},
        "assumed": dict(sorted(world.assumed.items())),
        "preempting": dict(sorted(world.preempting.items())),
        "victims in order": {queue: list(world.ranked(queue)) for queue in sorted(world.members)},
        "members": {queue: sorted(keys) for queue, keys in sorted(world.members.items())},
        "waiting": {
            name: sorted(item.info.key for item in queue.items())
            for name, queue in sorted(world.pending.queues.items())
        },
        "local counts": {
            key: world.pending.local_pending_count(key)
            for key, queue in sorted(world.pending.local_queues.items())
            if queue in world.cluster_queues
        },
    }


def facts(state: SchedulerState) -> dict[str, object]:
    """All of a scheduler's state that depends on positions alone."""
    return snapshot(state.world) | {
        "objects": state.objects.dump(),
        "assumptions": state.assumptions.dump(),
        "positions": state.positions,
        "caught up": state.caught_up,
    }


def recomputed(state: SchedulerState, now: float) -> World:
    """The World as a newcomer would build it from the objects and assumptions held at `now`."""
    fold = Fold(state.policy, state.rules, state.afs)
    held = state.objects.dump()
    position = 0
    for kind in KINDS:
        if kind == "workload":
            continue
        for object_ in held.get(kind, {}).values():
            position += 1
            fold.change(ObjectChanged(ObjectName(kind, object_.namespace, object_.name), object_, position), now)
    for object_ in held.get("workload", {}).values():
        position += 1
        fold.change(ObjectChanged(ObjectName("workload", object_.namespace, object_.name), object_, position), now)
    for key in state.assumptions.workloads():
        admit, preempt = state.assumptions.admit_of(key), state.assumptions.preempt_of(key)
        if admit is not None:
            fold.world.assume(key, admission_of(admit[0]), at=admit[1])
        if preempt is not None:
            fold.world.assume_preempted(key, preempt.preemptor)
    for key in list(fold.world.workloads):
        if key not in fold.world.assumed and state.is_held_back(key, now):
            fold.world.pending.remove(key)
    return fold.world


def validate(state: SchedulerState, now: float) -> None:
    """Raises StateDiverged if the kept state is not the computed one, or contradicts itself."""
    kept, computed = snapshot(state.world), snapshot(recomputed(state, now))
    wrong = [part for part in kept if kept[part] != computed[part]]
    if wrong:
        lines = [f"{part}:\n  kept     {kept[part]!r}\n  computed {computed[part]!r}" for part in wrong]
        raise StateDiverged("\n".join(lines))
    for name, queue in state.world.pending.queues.items():
        in_flight = {queue.inflight.info.key} if queue.inflight is not None else set[str]()
        both = (queue.heap.keys() & queue.inadmissible.keys()) | (
            in_flight & (queue.heap.keys() | queue.inadmissible.keys())
        )
        if both:
            raise StateDiverged(f"in two places of {name}: {sorted(both)}")
    counted = state.world.charges.keys() & {
        item.info.key for queue in state.world.pending.queues.values() for item in queue.items()
    }
    if counted:
        raise StateDiverged(f"both waiting and counted: {sorted(counted)}")
