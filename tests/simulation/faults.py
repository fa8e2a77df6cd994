"""What goes wrong, and when: a plan drawn from the seed, and the doing of each kind.

Every fault is one that a cluster can do to us: it stays within what Kubernetes and NATS promise at their worst. Effects that wait for their moment (a crash
at the next patch) are counted when they come about. All of it ends with the active part of a scenario.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any

from shared.testing.simulated_api import Call, Fault, Late, Refuse, TimeOut
from shared.testing.simulated_bus import Fault as BusFault
from shared.testing.simulated_bus import Publish
from tests.simulation import reactions
from tests.simulation.scenario import Step

if TYPE_CHECKING:
    from tests.simulation.world import World

STREAMS = ("OBJECTS", "DECISIONS", "OUTCOMES", "COMMANDS")
_PURPOSE = {"OBJECTS": ("objects", "epoch"), "DECISIONS": ("decisions",), "OUTCOMES": ("outcomes",)}
"""Stream -> consumers that read it."""
_CRASH_AT = {
    "watcher": ("patch ", "create ", "OBJECTS", "OUTCOMES", "COMMANDS", "DECISIONS", "leases"),
    "scheduler": ("DECISIONS", "sluice.commands"),
    "queue_manager": ("sluice.commands",),
    "preemptor": ("sluice.commands",),
    "provisioning_request": ("sluice.commands",),
    "webhook": ("",),
}
_COUNT = (28, 40)


def plan(draw: Random, active_s: float, slots: tuple[str, ...]) -> tuple[Step, ...]:
    """At least 20, spread over the active part."""
    steps = []
    kinds = tuple(_WEIGHTS)
    weights = tuple(_WEIGHTS.values())
    for _ in range(draw.randrange(*_COUNT)):
        kind = draw.choices(kinds, weights)[0]
        at = round(draw.uniform(1.5, active_s - 2.0), 3)
        steps.append(Step(at, kind, _DRAW[kind](draw, slots)))
    steps += reactions.plan(draw, active_s)
    return tuple(sorted(steps, key=lambda step: step.at))


def inflict(world: World, step: Step) -> None:
    """Do it."""
    _DO[step.do](world, *step.args)


def _slot(draw: Random, slots: tuple[str, ...]) -> str:
    """The gateway and the schedulers are where most can go wrong."""
    weights = [4 if slot.startswith(("watcher", "scheduler")) else 1 for slot in slots]
    return draw.choices(slots, weights)[0]


# --- processes ---------------------------------------------------------------------------------------------------------


def _draw_kill(draw: Random, slots: tuple[str, ...]) -> tuple[Any, ...]:
    return _slot(draw, slots), round(draw.choice((0.05, 0.3, 1.0, 4.0)) * draw.uniform(0.5, 1.5), 3)


def _kill(world: World, slot: str, away_s: float) -> None:
    world.kill(slot, away_s)
    world.counted("crash")


def _draw_crash(draw: Random, slots: tuple[str, ...]) -> tuple[Any, ...]:
    slot = _slot(draw, slots)
    what = draw.choice(_CRASH_AT[slot.rpartition("-")[0]])
    return slot, draw.choice(("there", "back")), what, round(draw.uniform(0.05, 3.0), 3)


def _crash(world: World, slot: str, way: str, what: str, away_s: float) -> None:
    world.arm_crash(slot, way, what, away_s)


def _draw_pause(draw: Random, slots: tuple[str, ...]) -> tuple[Any, ...]:
    return _slot(draw, slots), round(draw.choice((0.2, 1.0, 2.5, 5.0)) * draw.uniform(0.5, 1.5), 3)


def _pause(world: World, slot: str, seconds: float) -> None:
    world.pause(slot, seconds)
    world.counted("stopped for a while")


def _restart(world: World, slot: str, away_s: float) -> None:
    world.terminate(slot, away_s)
    world.counted("restart")


def _draw_clock(draw: Random, slots: tuple[str, ...]) -> tuple[Any, ...]:
    return _slot(draw, slots), round(draw.choice((-1, 1)) * draw.choice((0.4, 3.0, 30.0)) * draw.uniform(0.5, 1.5), 3)


def _clock(world: World, slot: str, seconds: float) -> None:
    world.slots[slot].skew += seconds
    world.counted("clock step")


# --- connections -------------------------------------------------------------------------------------------------------


def _draw_cut(draw: Random, slots: tuple[str, ...]) -> tuple[Any, ...]:
    slot = _slot(draw, slots)
    which = draw.choice(("api", "bus")) if slot.startswith("watcher") else "bus"
    return slot, which, round(draw.choice((0.0, 0.0, 0.5, 3.0)) * draw.uniform(0.5, 1.5), 3)


def _cut(world: World, slot: str, which: str, down_s: float) -> None:
    world.cut(slot, which, down_s)
    world.counted("connection dropped")


def _draw_slow_link(draw: Random, slots: tuple[str, ...]) -> tuple[Any, ...]:
    return (
        _slot(draw, slots),
        draw.choice(("api", "bus")),
        draw.choice((0.05, 0.3, 1.0)),
        round(draw.uniform(0.5, 4.0), 3),
    )


def _slow_link(world: World, slot: str, which: str, most_s: float, seconds: float) -> None:
    world.slow(slot, which, most_s, seconds)
    world.counted("delay")


# --- the API server ----------------------------------------------------------------------------------------------------


def _draw_refuse(draw: Random, _: tuple[str, ...]) -> tuple[Any, ...]:
    return draw.choice((429, 429, 500, 503)), draw.choice((0.1, 0.5, 1.0)), round(draw.uniform(0.1, 2.0), 3)


def _refuse(world: World, status: int, share: float, seconds: float) -> None:
    def fault(call: Call) -> Fault | None:
        if world.draw.random() >= share:
            return None
        world.counted(f"API server refuses {status}")
        return Refuse(status, retry_after=1 if status == 429 else 0)

    world.api_faults(fault, seconds)


def _draw_time_out(draw: Random, _: tuple[str, ...]) -> tuple[Any, ...]:
    how = draw.choice(("before", "after", "after", "late", "late"))
    return how, draw.choice(("", "workloads", "jobs")), draw.randrange(1, 4), round(draw.uniform(0.02, 1.9), 3)


def _time_out(world: World, how: str, plural: str, times: int, late_s: float) -> None:
    left = times

    def fault(call: Call) -> Fault | None:
        nonlocal left
        writes = call.verb in ("create", "patch", "update", "delete")
        if left <= 0 or not writes or (plural and call.resource.plural != plural) or call.resource.plural == "leases":
            return None
        left -= 1
        if how == "late":
            world.counted("API server acts late")
            return Late(late_s)
        world.counted(f"API server times out {how} commit")
        return TimeOut(how == "after")

    world.api_faults(fault, 5.0)


def _break_watches(world: World) -> None:
    world.api.break_watches()
    world.counted("watches broken")


def _compact(world: World) -> None:
    world.api.compact()
    world.api.break_watches()
    world.counted("410 Gone")


def _draw_seconds(draw: Random, _: tuple[str, ...]) -> tuple[Any, ...]:
    return (round(draw.choice((0.1, 0.5, 2.0)) * draw.uniform(0.5, 1.5), 3),)


def _restart_api(world: World, seconds: float) -> None:
    world.restart_api(seconds)
    world.counted("API server restarted")


# --- the bus -----------------------------------------------------------------------------------------------------------


def _draw_publish(draw: Random, _: tuple[str, ...]) -> tuple[Any, ...]:
    how = draw.choice(("lose", "lose_ack", "lose_ack", "twice", "twice", "break_before", "break_after", "break_late"))
    return how, draw.choice(STREAMS), draw.randrange(1, 4)


_COUNTED_AS = {
    "lose": "publish lost",
    "lose_ack": "acknowledgement lost",
    "twice": "duplicate",
    "break_before": "connection dropped",
    "break_after": "connection dropped",
    "break_late": "publish arrives late",
    "full": "stream full",
}


def _publish(world: World, how: BusFault, stream: str, times: int) -> None:
    left = times

    def fault(publish: Publish) -> BusFault | None:
        nonlocal left
        if left <= 0 or not publish.stream.startswith(stream):
            return None
        left -= 1
        world.counted(_COUNTED_AS[how])
        return how

    world.bus_faults(fault, 5.0)


def _draw_full(draw: Random, _: tuple[str, ...]) -> tuple[Any, ...]:
    return draw.choice(("DECISIONS", "OUTCOMES", "OBJECTS")), round(draw.uniform(0.2, 2.0), 3)


def _full(world: World, stream: str, seconds: float) -> None:
    def fault(publish: Publish) -> BusFault | None:
        if not publish.stream.startswith(stream):
            return None
        world.counted("stream full")
        return "full"

    world.bus_faults(fault, seconds)


def _draw_reorder(draw: Random, slots: tuple[str, ...]) -> tuple[Any, ...]:
    slot = _slot(draw, slots).rpartition("-")[0]
    return (
        draw.choice(STREAMS[:3]),
        draw.choice((slot, "")),
        round(draw.choice((0.05, 0.3, 2.0)) * draw.uniform(0.5, 1.5), 3),
    )


def _reorder(world: World, stream: str, service: str, seconds: float) -> None:
    world.broker.delay(seconds, *_PURPOSE[stream], service=service)
    world.counted("reorder between subjects")


def _drop_delivery(world: World, stream: str, service: str, _: float) -> None:
    world.broker.drop_delivery(*_PURPOSE[stream], service=service)
    world.counted("delivery lost")


def _draw_service(draw: Random, slots: tuple[str, ...]) -> tuple[Any, ...]:
    return (_slot(draw, slots).rpartition("-")[0],)


def _slow_consumer(world: World, service: str) -> None:
    world.broker.drop_consumers(service=service)
    world.counted("slow consumer")


def _draw_role(draw: Random, _: tuple[str, ...]) -> tuple[Any, ...]:
    return (draw.choice(("scheduler", "scheduler", "queue_manager", "preemptor")),)


def _two_leaders(world: World, role: str) -> None:
    world.broker.drop_lease(role)
    world.counted("two leaders")


def _wipe(world: World) -> None:
    world.broker.wipe()
    world.counted("streams wiped")


def _draw_lost_tail(draw: Random, _: tuple[str, ...]) -> tuple[Any, ...]:
    return draw.randrange(1, 20), draw.choice(("", "", "OBJECTS", "DECISIONS", "OUTCOMES"))


def _lose_tail(world: World, count: int, stream: str) -> None:
    for name in sorted(world.broker.streams):
        if name.startswith(stream) and (not stream or name.startswith(("OBJECTS", "DECISIONS", "OUTCOMES"))):
            world.broker.lose_tail(count, name)
    world.counted("lost tail")


def _remake(world: World, stream: str) -> None:
    for name in sorted(world.broker.streams):
        if name.startswith(stream):
            world.broker.remake(name)
    world.counted("streams wiped")


def _restart_bus(world: World, seconds: float) -> None:
    world.restart_bus(seconds)
    world.counted("NATS restarted")


def _stall_bus(world: World, seconds: float) -> None:
    world.stall_bus(seconds)
    world.counted("NATS stopped for a while")


def _call(world: World, do: Callable[[World], None]) -> None:
    """Of tests that know exactly what they want."""
    do(world)


def _nothing(_: Random, __: tuple[str, ...]) -> tuple[Any, ...]:
    return ()


_WEIGHTS: dict[str, int] = {
    "kill": 4,
    "crash": 8,
    "pause": 4,
    "restart": 2,
    "clock": 2,
    "cut": 3,
    "slow_link": 3,
    "refuse": 3,
    "time_out": 5,
    "break_watches": 1,
    "compact": 1,
    "restart_api": 1,
    "publish": 6,
    "full": 1,
    "reorder": 4,
    "drop_delivery": 2,
    "slow_consumer": 2,
    "two_leaders": 3,
    "wipe": 1,
    "lose_tail": 1,
    "remake": 1,
    "restart_bus": 1,
    "stall_bus": 1,
}
_DRAW: dict[str, Callable[[Random, tuple[str, ...]], tuple[Any, ...]]] = {
    "kill": _draw_kill,
    "crash": _draw_crash,
    "pause": _draw_pause,
    "restart": _draw_kill,
    "clock": _draw_clock,
    "cut": _draw_cut,
    "slow_link": _draw_slow_link,
    "refuse": _draw_refuse,
    "time_out": _draw_time_out,
    "break_watches": _nothing,
    "compact": _nothing,
    "restart_api": _draw_seconds,
    "publish": _draw_publish,
    "full": _draw_full,
    "reorder": _draw_reorder,
    "drop_delivery": _draw_reorder,
    "slow_consumer": _draw_service,
    "two_leaders": _draw_role,
    "wipe": _nothing,
    "lose_tail": _draw_lost_tail,
    "remake": lambda draw, _: (draw.choice(("OBJECTS", "OUTCOMES", "COMMANDS", "DECISIONS")),),
    "restart_bus": _draw_seconds,
    "stall_bus": _draw_seconds,
}
_DO: dict[str, Callable[..., None]] = {
    "kill": _kill,
    "crash": _crash,
    "pause": _pause,
    "restart": _restart,
    "clock": _clock,
    "cut": _cut,
    "slow_link": _slow_link,
    "refuse": _refuse,
    "time_out": _time_out,
    "break_watches": _break_watches,
    "compact": _compact,
    "restart_api": _restart_api,
    "publish": _publish,
    "full": _full,
    "reorder": _reorder,
    "drop_delivery": _drop_delivery,
    "slow_consumer": _slow_consumer,
    "two_leaders": _two_leaders,
    "wipe": _wipe,
    "lose_tail": _lose_tail,
    "remake": _remake,
    "restart_bus": _restart_bus,
    "stall_bus": _stall_bus,
    "call": _call,
    **reactions.DO,
}
