"""What can go wrong, each as something that is done to the stack and undone again. Each returns when it is repaired, not when the stack has recovered."""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Awaitable, Callable, Iterable

import msgspec

from devcluster.stack import SERVICES
from tests.chaos.wiring import WiredStack

LEASE_S = 3.0
"""Of the gateway (Kubernetes) and of the services' roles (NATS)."""
LEADERS = ("watcher", "scheduler", "queue_manager", "preemptor")
"""Of which one instance is active."""
SLOW_BYTES_PER_S = 60_000.0

Do = Callable[[WiredStack, random.Random], Awaitable[None]]


class Fault(msgspec.Struct, frozen=True):
    """`lasts_s`: how long it keeps admissions away by itself, at most; a stack that does its part goes on `grace_s` after that."""

    name: str
    do: Do
    lasts_s: float = 0.0
    grace_s: float = 20.0


def kill(name: str) -> Fault:
    async def do(stack: WiredStack, draw: random.Random) -> None:
        await stack.restart(draw.choice(stack.instances(name)), signal.SIGKILL)

    return Fault(f"kill {name}", do)


def freeze(name: str) -> Fault:
    """For less than a lease, or for more."""

    async def do(stack: WiredStack, draw: random.Random) -> None:
        frozen = stack.services[draw.choice(stack.instances(name))]
        frozen.freeze()
        try:
            await asyncio.sleep(draw.uniform(0.5, 2 * LEASE_S))
        finally:
            frozen.thaw()

    return Fault(f"freeze {name}", do, lasts_s=2 * LEASE_S)


def two_at_once(name: str) -> Fault:
    """The active one is frozen until a standby has taken over; then both believe that they are active, for a moment. One of them goes in the end."""

    async def do(stack: WiredStack, draw: random.Random) -> None:
        active = stack.services[stack.instances(name)[0]]
        standby = await stack.add(name)
        await stack.wait_ready()
        active.freeze()
        try:
            await asyncio.sleep(LEASE_S + 2)
        finally:
            active.thaw()
        await asyncio.sleep(draw.uniform(0, 1))
        await stack.wait_ready()
        await stack.remove(standby, draw.choice((signal.SIGTERM, signal.SIGKILL)))

    # Until one takes over; and again when it goes, while the other one may have been started anew.
    return Fault(f"two {name}s at once", do, lasts_s=LEASE_S)


async def replace(stack: WiredStack, name: str, draw: random.Random) -> None:
    """One more instance; once it is ready the elder one goes for good, in an orderly way or not."""
    elder = stack.instances(name)[0]
    await stack.add(name)
    await stack.wait_ready()
    await stack.remove(elder, draw.choice((signal.SIGTERM, signal.SIGKILL)))


def add_and_remove(name: str) -> Fault:
    """While jobs flow."""

    async def do(stack: WiredStack, draw: random.Random) -> None:
        await replace(stack, name, draw)

    return Fault(f"replace {name}", do, lasts_s=LEASE_S, grace_s=2.0)


async def _kill_nats(stack: WiredStack, draw: random.Random) -> None:
    await stack.nats.kill(signal.SIGKILL)
    await asyncio.sleep(draw.uniform(0, 2))
    await stack.nats.start()


async def _freeze_nats(stack: WiredStack, draw: random.Random) -> None:
    await stack.nats.kill(signal.SIGSTOP)
    try:
        await asyncio.sleep(draw.uniform(1, 2 * LEASE_S))
    finally:
        await stack.nats.kill(signal.SIGCONT)


async def _wipe_nats(stack: WiredStack, draw: random.Random) -> None:
    await stack.nats.kill(signal.SIGKILL)
    stack.replace_store(None)
    await stack.nats.start()


async def _lose_tail(stack: WiredStack, draw: random.Random) -> None:
    """The host of NATS crashed, and its disk is as it was some seconds before: acknowledged messages are gone, and their sequences are given again."""
    await stack.nats.kill(signal.SIGSTOP)
    try:
        stack.copy_store()
    finally:
        await stack.nats.kill(signal.SIGCONT)
    await asyncio.sleep(draw.uniform(1, 3))
    await stack.nats.kill(signal.SIGKILL)
    stack.replace_store(stack.copied_store)
    await stack.nats.start()


async def _restart_api_server(stack: WiredStack, draw: random.Random) -> None:
    stack.cluster.kill("kube-apiserver", draw.choice((signal.SIGKILL, signal.SIGTERM)))
    await asyncio.sleep(draw.uniform(0, 1))
    await stack.cluster.restart("kube-apiserver")


async def _reset_bus(stack: WiredStack, draw: random.Random) -> None:
    for _ in range(draw.randint(1, 4)):
        stack.bus.reset()
        await asyncio.sleep(draw.uniform(0.05, 1))


async def _reset_api(stack: WiredStack, draw: random.Random) -> None:
    for _ in range(draw.randint(1, 4)):
        stack.api.reset()
        await asyncio.sleep(draw.uniform(0.05, 1))


async def _slow_bus(stack: WiredStack, draw: random.Random) -> None:
    stack.bus.bytes_per_s = SLOW_BYTES_PER_S
    try:
        await asyncio.sleep(8)
    finally:
        stack.bus.bytes_per_s = None


async def _full_disk(stack: WiredStack, draw: random.Random) -> None:
    """What NATS could not write leaves its streams unwritable until it is started again, whatever room there is by then."""
    assert stack.disk is not None
    stack.disk.fill()
    await asyncio.sleep(draw.uniform(3, 6))
    stack.disk.clear()
    await stack.nats.restart()


async def _two_parts(stack: WiredStack, draw: random.Random) -> None:
    """Of which the second falls while the first is coming back."""
    for name in draw.sample(LEADERS, 2):
        await stack.restart(draw.choice(stack.instances(name)), signal.SIGKILL)
        await asyncio.sleep(draw.uniform(0, 0.8))


def faults(stack: WiredStack) -> Iterable[Fault]:
    """Every kind once."""
    for name in SERVICES:
        yield kill(name)
        yield freeze(name)
        yield add_and_remove(name)
    yield two_at_once("scheduler")
    yield two_at_once("watcher")
    yield Fault("kill two services", _two_parts)
    yield Fault("kill NATS", _kill_nats, lasts_s=2)
    yield Fault("freeze NATS", _freeze_nats, lasts_s=2 * LEASE_S)
    yield Fault("wipe NATS", _wipe_nats)
    yield Fault("NATS loses its last seconds", _lose_tail, lasts_s=3)
    yield Fault("restart API server", _restart_api_server, lasts_s=10)
    yield Fault("reset connections to NATS", _reset_bus, lasts_s=4)
    yield Fault("reset connections to API server", _reset_api, lasts_s=4)
    yield Fault("slow NATS", _slow_bus, lasts_s=8)
    if stack.disk is not None:
        yield Fault("full disk of NATS", _full_disk, lasts_s=7)
