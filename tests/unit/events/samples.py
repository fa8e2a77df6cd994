"""Makes a sample of any message: every field filled, deterministically, from its type. Writes the golden file of those that have none there yet.

    python -m tests.unit.events.samples

adds new messages and never touches what is there: those bytes are on somebody's disk.
"""

import json
import types
import typing
from pathlib import Path
from typing import Any

import msgspec

from shared.events import cloudevents, commands, deadletters, decisions, objects, outcomes
from shared.events.codec import Codec

GOLDEN = Path(__file__).parent / "golden.json"

FAMILIES: dict[str, tuple[Codec[Any], tuple[type, ...]]] = {
    "objects": (objects.codec, typing.get_args(objects.Object)),
    "decisions": (decisions.codec, typing.get_args(decisions.Entry)),
    "outcomes": (outcomes.codec, typing.get_args(outcomes.Outcome)),
    "commands": (commands.codec, typing.get_args(commands.Command)),
    "dead": (deadletters.codec, (deadletters.DeadLetter,)),
}
EVENTS: tuple[type, ...] = typing.get_args(cloudevents.Data)


def tag_of(type_: type) -> str:
    return str(typing.cast("Any", type_).__struct_config__.tag)


def sample(type_: Any, name: str = "x") -> Any:
    """A value of the type in which every field differs from an empty one; of a union in a tuple, one of each."""
    origin = typing.get_origin(type_)
    arguments = typing.get_args(type_)
    if origin is typing.Annotated:
        return sample(arguments[0], name)
    if origin is typing.Literal:
        return arguments[-1]
    if origin in (types.UnionType, typing.Union):
        return sample(next(a for a in arguments if a is not type(None)), name)
    if origin is tuple:
        elements = arguments[:1] if arguments[-1] is ... else arguments
        members = [m for e in elements for m in (typing.get_args(e) if _is_struct_union(e) else (e,))]
        return tuple(sample(m, f"{name}{n}") for n, m in enumerate(members))
    if origin is dict:
        return {"key": sample(arguments[1], name)}
    if isinstance(type_, type) and issubclass(type_, msgspec.Struct):
        hints = typing.get_type_hints(type_, include_extras=True)
        return type_(**{f.name: sample(f.type, f.name) for f in msgspec.structs.fields(type_) if f.name in hints})
    return {str: name, int: 7 + len(name), bool: True, float: 1.5, bytes: b"\x00bytes"}[type_]


def _is_struct_union(type_: Any) -> bool:
    members = typing.get_args(type_)
    return bool(members) and all(isinstance(m, type) and issubclass(m, msgspec.Struct) for m in members)


def plain(value: Any) -> Any:
    """As JSON would hold it."""
    return msgspec.json.decode(msgspec.json.encode(value))


def envelope(data: Any) -> cloudevents.CloudEvent:
    """A public event around its data."""
    return cloudevents.CloudEvent(
        id="id",
        source="sluice",
        type=f"{cloudevents.TYPE_PREFIX}{cloudevents.event_name(data)}.v1",
        subject=f"{data.namespace}/{data.workload}",
        time="2026-01-02T03:04:05Z",
        traceparent="00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        data=data,
    )


def read_golden() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
    return found


def main() -> None:
    golden = read_golden()
    for codec, members in FAMILIES.values():
        for member in members:
            if tag_of(member) not in golden:
                message = sample(member)
                golden[tag_of(member)] = {"hex": codec.encode(message).hex(), "value": plain(message)}
    for member in EVENTS:
        tag = f"{cloudevents.TYPE_PREFIX}{tag_of(member)}.v1"
        if tag not in golden:
            event = envelope(sample(member))
            golden[tag] = {"json": cloudevents.encode(event).decode(), "value": json.loads(cloudevents.encode(event))}
    GOLDEN.write_text(json.dumps(golden, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
