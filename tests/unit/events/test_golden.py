"""Bytes that were written once must be read for ever: golden bytes of every message, and what a newer writer may add."""

import json
from typing import Any

import msgspec
import pytest

from shared.events import cloudevents, decisions
from shared.events.codec import Codec, MalformedMessage
from shared.events.decisions import DecisionId
from tests.unit.events.samples import EVENTS, FAMILIES, plain, read_golden, sample, tag_of

GOLDEN = read_golden()
MESSAGES = [
    pytest.param(codec, member, id=tag_of(member)) for codec, members in FAMILIES.values() for member in members
]
MEMBERS = [member for _, members in FAMILIES.values() for member in members]


def golden_bytes(member: type) -> bytes:
    return bytes.fromhex(GOLDEN[tag_of(member)]["hex"])


def test_every_message_has_golden_bytes() -> None:
    events = {f"{cloudevents.TYPE_PREFIX}{tag_of(member)}.v1" for member in EVENTS}
    assert {tag_of(member) for member in MEMBERS} | events <= set(GOLDEN), "python -m tests.unit.events.samples"


def test_tags_name_family_and_version() -> None:
    for family, (_, members) in FAMILIES.items():
        for member in members:
            head, _, version = tag_of(member).rpartition("/")
            assert head.startswith(f"{family}."), member
            assert version.isdigit(), member


@pytest.mark.parametrize(("codec", "member"), MESSAGES)
def test_old_bytes_mean_what_they_meant(codec: Codec[Any], member: type) -> None:
    decoded = codec.decode(golden_bytes(member))
    assert type(decoded) is member
    assert plain(decoded) == GOLDEN[tag_of(member)]["value"]
    assert codec.decode(codec.encode(decoded)) == decoded


@pytest.mark.parametrize(("codec", "member"), MESSAGES)
def test_a_full_message_comes_back(codec: Codec[Any], member: type) -> None:
    message = sample(member)
    assert codec.decode(codec.encode(message)) == message


def with_future_fields(value: Any) -> Any:
    """What a newer program writes: a field more in every Struct that is one, which a map with a tag or with field names is."""
    if isinstance(value, dict):
        return {**{k: with_future_fields(v) for k, v in value.items()}, **({"zz_new": [1]} if "t" in value else {})}
    if isinstance(value, list):
        return [with_future_fields(v) for v in value]
    return value


@pytest.mark.parametrize(("codec", "member"), MESSAGES)
def test_unknown_fields_are_skipped(codec: Codec[Any], member: type) -> None:
    raw = msgspec.msgpack.decode(golden_bytes(member))
    extended = with_future_fields(raw)
    assert extended != raw
    assert codec.decode(msgspec.msgpack.encode(extended)) == codec.decode(golden_bytes(member))


def test_identities_may_grow_too() -> None:
    encoded = msgspec.msgpack.encode([3, 4, 5, "new"])
    assert msgspec.msgpack.decode(encoded, type=DecisionId) == DecisionId(3, 4, 5)


@pytest.mark.parametrize(("codec", "member"), MESSAGES)
def test_broken_bytes_are_malformed_and_nothing_else(codec: Codec[Any], member: type) -> None:
    whole = golden_bytes(member)
    for length in range(len(whole)):
        with pytest.raises(MalformedMessage):
            codec.decode(whole[:length])
    other = next(m for m in MEMBERS if not tag_of(m).startswith(f"{codec.family}."))
    with pytest.raises(MalformedMessage, match=codec.family):
        codec.decode(golden_bytes(other))


def test_a_later_version_is_malformed_for_an_older_program() -> None:
    raw = msgspec.msgpack.decode(golden_bytes(decisions.Batch))
    raw["t"] = "decisions.Batch/2"
    with pytest.raises(MalformedMessage):
        decisions.codec.decode(msgspec.msgpack.encode(raw))


@pytest.mark.parametrize("member", EVENTS, ids=tag_of)
def test_public_events_stay_readable(member: type) -> None:
    golden = GOLDEN[f"{cloudevents.TYPE_PREFIX}{tag_of(member)}.v1"]
    event = cloudevents.decode(golden["json"].encode())
    assert type(event.data) is member
    assert json.loads(cloudevents.encode(event)) == golden["value"]
    assert cloudevents.encode(event).count(b'"specversion"') == 1
    raw = json.loads(golden["json"])
    raw["sluicenew"] = raw["data"]["new"] = 1
    assert cloudevents.decode(json.dumps(raw).encode()) == event


@pytest.mark.parametrize("member", EVENTS, ids=tag_of)
def test_public_events_are_cloudevents(member: type) -> None:
    written = json.loads(cloudevents.encode(cloudevents.decode(golden_json(member))))
    assert written["specversion"] == "1.0"
    assert {"id", "source", "type", "subject", "time", "data"} <= set(written)
    # Attribute names of the specification: lower-case letters and digits.
    assert all(k.isalnum() and k == k.lower() for k in written)


def golden_json(member: type) -> bytes:
    text: str = GOLDEN[f"{cloudevents.TYPE_PREFIX}{tag_of(member)}.v1"]["json"]
    return text.encode()


def test_an_event_of_nobody_is_malformed() -> None:
    for data in (b"{", b"{}", b'{"specversion":"0.3"}'):
        with pytest.raises(MalformedMessage):
            cloudevents.decode(data)
