"""What goes wrong at the worst moment: while something that was just decided is on its way to the API server.

A fault at a random time seldom meets the few milliseconds between an entry of the log and its patch. A reaction is armed at a random time and waits for the
next entry of its kind; what it then does is nothing that users, NATS and processes could not do by themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import TYPE_CHECKING, Any

from shared.events import decisions
from shared.events.decisions import Admit, Batch, Preempt
from shared.kube.resources import WORKLOADS
from shared.testing.simulated_bus import StoredMessage
from tests.simulation.scenario import Step, find

if TYPE_CHECKING:
    from tests.simulation.world import World

_COUNT = (4, 8)
_AT_ONCE_S = (0.0, 0.002, 0.01, 0.05)
_QUEUE_REST_S = 4.0
"""How long a queue stays stopped, so that a gateway that died meanwhile is replaced while it is."""


def plan(draw: Random, active_s: float) -> Iterator[Step]:
    """A few of them, armed somewhen in the active part."""
    kinds = tuple(_WEIGHTS)
    weights = tuple(_WEIGHTS.values())
    for _ in range(draw.randrange(*_COUNT)):
        kind = draw.choices(kinds, weights)[0]
        at = round(draw.uniform(1.0, active_s - 5.0), 3)
        yield Step(at, kind, _DRAW[kind](draw))


def _after(draw: Random) -> float:
    return round(draw.choice(_AT_ONCE_S) * draw.uniform(0.5, 1.5), 4)


def _times_after_and_for(draw: Random) -> tuple[Any, ...]:
    return draw.randrange(1, 4), _after(draw), round(draw.choice((0.005, 0.05, 0.5)) * draw.uniform(0.5, 1.5), 4)


def _times_and_after(draw: Random) -> tuple[Any, ...]:
    return draw.randrange(1, 4), _after(draw)


def _seconds(draw: Random) -> tuple[Any, ...]:
    return (round(draw.choice((0.2, 0.6, 1.5)) * draw.uniform(0.5, 1.5), 3),)


# --- how ---------------------------------------------------------------------------------------------------------------


def _at_entries(world: World, times: int, react: Callable[[Batch], bool]) -> None:
    """Show it the next batches of the log until so many were of its kind, or the active part is over."""
    left = times

    def stored(message: StoredMessage) -> None:
        nonlocal left
        if left <= 0 or not message.stream.startswith("DECISIONS") or world.loop.time() > world.scenario.active_s:
            return
        entry = decisions.codec.decode(message.payload)
        if isinstance(entry, Batch) and react(entry):
            left -= 1

    world.broker.subscribe(stored)


def _users(world: World, after_s: float, do: str, *args: Any) -> None:
    world.later(after_s, world._act, Step(0.0, do, args))


def _asked_for(world: World, key: str) -> tuple[str, str]:
    """(kind, key) of what users asked for: the job of this workload, or the workload itself."""
    namespace, name = key.split("/")
    found = find(world.api, WORKLOADS, namespace, name)
    owners = found["metadata"].get("ownerReferences", ()) if found is not None else ()
    job = next((owner["name"] for owner in owners if owner.get("controller")), None)
    return ("job", f"{namespace}/{job}") if job else ("workload", key)


def _first(batch: Batch, of: type[Admit] | type[Preempt]) -> Any:
    return next((decision for decision in batch.decisions if isinstance(decision, of)), None)


# --- what --------------------------------------------------------------------------------------------------------------


def _pause_decided(world: World, times: int, after_s: float, for_s: float) -> None:
    def react(batch: Batch) -> bool:
        admit = _first(batch, Admit)
        if admit is None:
            return False
        _users(world, after_s, "set_active", "workload", admit.key, False)
        _users(world, after_s + for_s, "set_active", "workload", admit.key, True)
        world.counted("edited once decided about")
        return True

    _at_entries(world, times, react)


def _replace_decided(world: World, times: int, after_s: float) -> None:
    def react(batch: Batch) -> bool:
        admit = _first(batch, Admit)
        if admit is None:
            return False
        _users(world, after_s, "replace", *_asked_for(world, admit.key))
        world.counted("replaced once decided about")
        return True

    _at_entries(world, times, react)


def _forsake_victims(world: World, times: int, after_s: float) -> None:
    """Whoever the quota is for goes."""

    def react(batch: Batch) -> bool:
        preempt = _first(batch, Preempt)
        if preempt is None:
            return False
        kind, key = _asked_for(world, preempt.preemptor)
        _users(world, after_s, f"delete_{kind}", key)
        world.counted("preemptor deleted")
        return True

    _at_entries(world, times, react)


def _dip_quota(world: World, times: int, after_s: float, for_s: float) -> None:
    def react(batch: Batch) -> bool:
        admit = _first(batch, Admit)
        if admit is None:
            return False
        _users(world, after_s, "dip_quota", admit.cluster_queue, for_s)
        world.counted("quota edited while deciding")
        return True

    _at_entries(world, times, react)


def _take_back(world: World) -> None:
    """A reservation that still waits for its checks is written, the gateway dies before it says so, and the queue is stopped."""

    def react(batch: Batch) -> bool:
        admit = next((d for d in batch.decisions if isinstance(d, Admit) and d.required_checks), None)
        if admit is None:
            return False
        for name, slot in world.slots.items():
            if slot.service == "watcher" and slot.runs:
                world.arm_crash(name, "there", "sluice.outcomes.decisions", 0.1)
        _users(world, 0.0, "stop_queue", admit.cluster_queue, "HoldAndDrain")
        _users(world, _QUEUE_REST_S, "stop_queue", admit.cluster_queue, "None")
        world.counted("stopped once decided about")
        return True

    _at_entries(world, 1, react)


def _split_brain(world: World, seconds: float) -> None:
    """Two schedulers believe that they are active, and neither hears what the other decides."""

    def react(_: Batch) -> bool:
        world.broker.drop_lease("scheduler")
        world.broker.delay(seconds, "decisions", service="scheduler")
        world.counted("two leaders")
        return True

    _at_entries(world, 1, react)


_WEIGHTS: dict[str, int] = {
    "pause_decided": 3,
    "replace_decided": 3,
    "forsake_victims": 3,
    "dip_quota": 3,
    "take_back": 2,
    "split_brain": 3,
}
_DRAW: dict[str, Callable[[Random], tuple[Any, ...]]] = {
    "pause_decided": _times_after_and_for,
    "replace_decided": _times_and_after,
    "forsake_victims": _times_and_after,
    "dip_quota": _times_after_and_for,
    "take_back": lambda _: (),
    "split_brain": _seconds,
}
DO: dict[str, Callable[..., None]] = {
    "pause_decided": _pause_decided,
    "replace_decided": _replace_decided,
    "forsake_victims": _forsake_victims,
    "dip_quota": _dip_quota,
    "take_back": _take_back,
    "split_brain": _split_brain,
}
