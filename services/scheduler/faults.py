"""Keeps one workload that no decision can be made about from stopping all others (R9).

A cycle that raises leaves the World half changed: it is made anew from the objects and assumptions, and the heads that were in hand are looked at one by one.
Those that raise are set aside as invalid until their object changes; if none does alone, all of them are.
"""

from __future__ import annotations

import msgspec

from shared.decide.flavors import assign
from shared.model.world import World
from shared.state.scheduling import SchedulerState
from shared.state.validation import recomputed


def quarantine(state: SchedulerState, why: str, now: float) -> bool:
    """After a failed cycle: a sound World, without the workloads that broke it. False if no workload was in hand."""
    queues = state.world.pending.queues
    suspects = {q.inflight.info.key: name for name, q in queues.items() if q.inflight is not None}
    if not suspects:
        return False
    known_invalid = {key: info.invalid for key, info in state.world.workloads.items() if info.invalid}
    world = recomputed(state, now)
    state.take_over(world)
    broken = [key for key, queue in suspects.items() if _breaks(world, queue, key)] or list(suspects)
    for key, invalid in {**known_invalid, **dict.fromkeys(broken, why)}.items():
        info = world.workloads.get(key)
        if info is not None and info.invalid != invalid:
            world.upsert(msgspec.structs.replace(info, invalid=invalid), now)
    return True


def _breaks(world: World, queue: str, key: str) -> bool:
    config, info = world.cluster_queues.get(queue), world.workloads.get(key)
    if config is None or info is None:
        return False
    try:
        assign(info, config, world.forest, world.flavors)
    except Exception:  # noqa: BLE001 - whatever it is, the failed cycle has logged it
        return True
    return False
