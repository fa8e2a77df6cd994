"""Releases of Sluice that exist for a test alone: `python -m tests.chaos.release RELEASE SERVICE` runs a service of one.

Three messages have a second version, in which a field has another name: a workload's projection, an admission, the outcome of a decision. `reads` reads both
versions and writes the first; `writes` reads both and writes the second. So a rolling upgrade goes in two steps, each in any order, as the checklist of
CONTRIBUTING has it; today's program ends when it meets a second version. `missing_versions` looks at the bus itself: that second versions really crossed it.
"""

from __future__ import annotations

import importlib
import random
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from devcluster.stack import SERVICES
from shared.bus.jetstream import TROUBLE
from shared.bus.nats_bus import NatsGatewayBus, connect
from shared.events import subjects
from shared.events.codec import Codec
from tests.chaos.faults import LEASE_S, Fault, replace
from tests.chaos.wiring import WiredStack
from tests.eventually import eventually

RELEASES = ("reads", "writes")
RENAMED = {
    "objects.Workload": ("queue_name", "queue"),
    "decisions.Admit": ("cluster_queue", "into"),
    "outcomes.Decision": ("status", "result"),
}
"""Message -> its field in the first version, and in the second."""


def _convert(value: Any, old: int, new: int) -> Any:
    """The message with all that is in it, in the other version."""
    if isinstance(value, list):
        return [_convert(inner, old, new) for inner in value]
    if not isinstance(value, dict):
        return value
    converted = {key: _convert(inner, old, new) for key, inner in value.items()}
    name, _, version = str(converted.get("t", "")).rpartition("/")
    if name in RENAMED and version == str(old):
        converted["t"] = f"{name}/{new}"
        before, after = RENAMED[name][old - 1], RENAMED[name][new - 1]
        if before in converted:
            converted[after] = converted.pop(before)
    return converted


def rewritten(data: bytes, old: int, new: int) -> bytes:
    """The same bytes if nothing in them is of version `old`."""
    if not any(f"{name}/{old}".encode() in data for name in RENAMED):
        return data
    return msgspec.msgpack.encode(_convert(msgspec.msgpack.decode(data), old, new))


def install(release: str) -> None:
    """Make this process one of that release."""
    encode, decode = Codec.encode, Codec.decode

    def reads(self: Codec[Any], data: bytes) -> Any:
        try:
            return decode(self, rewritten(data, 2, 1))
        except (msgspec.DecodeError, UnicodeDecodeError):
            return decode(self, data)

    def writes(self: Codec[Any], message: Any) -> bytes:
        return rewritten(encode(self, message), 1, 2)

    Codec.decode = reads  # type: ignore[method-assign]
    if release == "writes":
        Codec.encode = writes  # type: ignore[method-assign]


def upgrades(draw: random.Random) -> Iterable[Fault]:
    """A rolling upgrade by two releases, service by service."""
    for release in RELEASES:
        order = list(SERVICES)
        draw.shuffle(order)
        for name in order:
            yield _upgrade(release, name)


def second_versions(messages: Sequence[bytes]) -> set[str]:
    """Which of the renamed messages these hold in their second version."""
    return {name for name in RENAMED for data in messages if f"{name}/2".encode() in data}


async def missing_versions(stack: WiredStack, seconds: float = 20.0) -> set[str]:
    """Which of them did not cross the bus in their second version, although jobs flowed for so long after the upgrade."""
    missing = set(RENAMED)
    bus = await connect("watcher", stack.nats.url, "watcher", stack.nats.password("watcher"), gateway=True)

    async def all_seen() -> bool:
        missing.difference_update(second_versions(await _newest(bus)))
        return not missing

    try:
        await eventually(all_seen, seconds)
    finally:
        await bus.close()
    return missing


async def _newest(bus: NatsGatewayBus) -> list[bytes]:
    """The newest messages of the three streams."""
    try:
        epoch = (await bus.epochs("0"))[-1]
        found = [
            await bus._js.last_message("OBJECTS", subjects.objects_of_kind("workload")),
            await bus._js.last_message(subjects.decisions_stream("0", epoch), subjects.decisions("0", epoch)),
            await bus._js.last_message("OUTCOMES", subjects.OUTCOMES_OF_DECISIONS),
        ]
    except (IndexError, *TROUBLE):
        return []
    return [message.data for message in found if message is not None]


def _upgrade(release: str, name: str) -> Fault:
    async def do(stack: WiredStack, draw: random.Random) -> None:
        stack.release = release
        await replace(stack, name, draw)

    return Fault(f"rolling upgrade to a release that {release} version 2", do, lasts_s=LEASE_S, grace_s=2.0)


if __name__ == "__main__":
    install(sys.argv[1])
    importlib.import_module(f"services.{sys.argv[2]}.__main__").main()
