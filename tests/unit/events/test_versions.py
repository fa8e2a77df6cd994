"""What a program makes of a message of another release: something else than of nonsense."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from shared.events import decisions, objects
from shared.events.codec import Codec, MalformedMessage, UnknownVersion
from shared.events.decisions import Positions
from tests.unit.events.samples import FAMILIES, sample, tag_of

MESSAGES = [
    pytest.param(codec, member, id=tag_of(member)) for codec, members in FAMILIES.values() for member in members
]


def untyped(message: Any) -> Any:
    return msgspec.msgpack.decode(msgspec.msgpack.encode(message))


@pytest.mark.parametrize(("codec", "member"), MESSAGES)
def test_the_next_version_is_known_for_what_it_is(codec: Codec[Any], member: type) -> None:
    tag = tag_of(member).replace("/1", "/2")
    # A family of one Struct needs no tag; with a field changed it is another version all the same.
    message = untyped(sample(member)) | {"t": tag}
    with pytest.raises(UnknownVersion) as raised:
        codec.decode(msgspec.msgpack.encode(message))
    assert raised.value.tag == tag
    assert "another release" in str(raised.value)


def test_a_part_of_another_release_counts_for_the_whole() -> None:
    admit = untyped(decisions.Admit(key="n/w", uid="u", incarnation="i", cluster_queue="cq"))
    batch = untyped(decisions.Batch(author="s", positions=Positions(epoch=1), decisions=(), decided_ns=1))
    batch["decisions"] = [admit | {"t": "decisions.Admit/7"}]
    with pytest.raises(UnknownVersion) as raised:
        decisions.codec.decode(msgspec.msgpack.encode(batch))
    assert raised.value.tag == "decisions.Admit/7"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"nonsense",
        msgspec.msgpack.encode({"t": "nonsense"}),
        msgspec.msgpack.encode({"t": 7}),
        msgspec.msgpack.encode(["objects.Workload/2"]),
        msgspec.msgpack.encode({"t": "objects.Workload/1", "name": 5}),
        msgspec.msgpack.encode({"t": "objects.Workload/1", "labels": {"t": "no tag"}}),
    ],
)
def test_nonsense_is_of_no_release(data: bytes) -> None:
    with pytest.raises(MalformedMessage) as raised:
        objects.codec.decode(data)
    assert not isinstance(raised.value, UnknownVersion)
