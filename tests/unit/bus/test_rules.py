"""The small decisions of the bus that need no server: what replaces what, when to give up, what a delivery says of itself."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.bus.client import header, parse_headers
from shared.bus.commands import DeliveryCounter, open_command
from shared.bus.connection import Answer
from shared.bus.consumer import Received, parse_reply
from shared.bus.jetstream import S_NS, ConsumerConfig, stream_config
from shared.bus.objects_store import NOTHING, Stored, supersedes
from shared.bus.publishing import Failure
from shared.events import commands, streams, subjects

states = st.builds(
    Stored,
    sequence=st.integers(1, 100),
    version=st.integers(-1, 6),
    digest=st.integers(0, 3),
    tombstone=st.booleans(),
)
write = st.tuples(st.integers(0, 6), st.integers(0, 3), st.booleans())


@given(write, states)
def test_a_lower_version_never_replaces_and_a_higher_always(new: tuple[int, int, bool], known: Stored) -> None:
    version, digest, tombstone = new
    if version < known.version:
        assert not supersedes(version, digest, tombstone, known)
    if version > known.version:
        assert supersedes(version, digest, tombstone, known)


@given(write)
def test_anything_replaces_nothing_and_nothing_replaces_itself(new: tuple[int, int, bool]) -> None:
    version, digest, tombstone = new
    assert supersedes(version, digest, tombstone, NOTHING)
    assert not supersedes(version, digest, tombstone, Stored(1, version, digest, tombstone))


def test_of_the_same_version_a_tombstone_wins_for_good() -> None:
    assert supersedes(5, 1, True, Stored(1, 5, 2, False))
    assert not supersedes(5, 1, False, Stored(1, 5, 2, True))


@given(st.lists(write, min_size=1, max_size=12).flatmap(lambda w: st.tuples(st.just(w), st.permutations(w))))
def test_every_order_of_writes_ends_with_the_newest(
    orders: tuple[list[tuple[int, int, bool]], list[tuple[int, int, bool]]],
) -> None:
    # Digests follow from the version here, as the same state projects in the same way within one program.
    writes = orders[0]
    ends = set()
    for order in orders:
        known = NOTHING
        for version, _, tombstone in order:
            if supersedes(version, version, tombstone, known):
                known = Stored(known.sequence + 1, version, version, tombstone)
        ends.add((known.version, known.tombstone))
    newest = max(v for v, _, _ in writes)
    assert ends == {(newest, any(t for v, _, t in writes if v == newest))}


def test_deliveries_count_per_stream_and_sequence() -> None:
    counter = DeliveryCounter(limit=2)
    assert not counter.failed("COMMANDS", 1)
    assert not counter.failed("COMMANDS", 2)
    assert not counter.failed("DECISIONS_0_1", 1)
    assert counter.failed("COMMANDS", 1)
    assert counter.attempts("COMMANDS", 1) == 2
    counter.forget("COMMANDS", 1)
    counter.forget("COMMANDS", 1)
    assert counter.attempts("COMMANDS", 1) == 0
    assert DeliveryCounter().limit == streams.DELIVERY_LIMIT


@pytest.mark.parametrize(
    "reply",
    [
        "$JS.ACK.OBJECTS.scheduler-0-objects.1.42.7.1700000000000000001.3",
        "$JS.ACK.hub.accounthash.OBJECTS.scheduler-0-objects.1.42.7.1700000000000000001.3.random",
    ],
)
def test_replies_of_both_forms(reply: str) -> None:
    assert parse_reply(reply) == (42, 7, 1700000000000000001, 3)


def test_headers_and_status() -> None:
    raw = b"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: 5\r\nNats-Last-Stream: 9\r\n\r\n"
    assert parse_headers(raw) == {"Nats-Last-Consumer": "5", "Nats-Last-Stream": "9"}
    assert parse_headers(None) == {}
    assert header(raw, b"Nats-Last-Stream") == "9"
    assert header(raw, b"Last-Stream") == ""
    assert header(None, b"x") == ""
    assert Answer(b"", b"NATS/1.0 503\r\n\r\n").status == "503"
    assert Answer(b"", b"NATS/1.0\r\na: b\r\n\r\n").status == ""
    assert Answer(b"x", None).status == ""


def test_only_wrong_expectations_are_lost_races() -> None:
    assert Failure("wrong last sequence", 10071).lost_race
    assert Failure("expected stream does not match", 10060).lost_race
    assert not Failure("maximum bytes exceeded", 10077).lost_race


def test_stream_settings_follow_the_table() -> None:
    by_name = {s.name: stream_config(s, 3) for s in streams.STREAMS}
    assert by_name["OBJECTS"].max_msgs_per_subject == 1
    assert by_name["OBJECTS"].allow_msg_ttl
    assert by_name["OBJECTS"].max_age == 0
    assert by_name["COMMANDS"].max_msgs_per_subject == 1
    assert by_name["EVENTS"].max_age == 7 * 86_400 * S_NS
    assert {c.num_replicas for c in by_name.values()} == {3}
    log = stream_config(streams.decisions_of("0", 4), 1)
    assert (log.name, log.subjects, log.discard) == ("DECISIONS_0_4", ("sluice.decisions.0.4",), "new")
    assert log.max_age == 0


def test_what_the_server_would_assume_otherwise_is_spelled_out() -> None:
    config = ConsumerConfig(name="n", deliver_subject="d", deliver_policy="all")
    written = msgspec.json.decode(msgspec.json.encode(config))
    assert written["flow_control"] is True
    assert written["ack_policy"] == "none"
    assert written["mem_storage"] is True
    assert msgspec.json.decode(msgspec.json.encode(stream_config(streams.STREAMS[0], 1)))["storage"] == "file"


def received(subject: str, payload: bytes) -> Received:
    return Received(subject, 5, 1, payload, None)


def test_a_command_stands_under_the_subject_that_its_content_gives_it() -> None:
    evict = commands.Evict(id="i", kind="workload", namespace="ns", name="w", reason="r", message="m")
    subject = commands.subject_of("preemptor", evict)
    found = open_command(received(subject, commands.codec.encode(evict)), "then")
    assert (found.command, found.writer, found.sequence, found.attempts) == (evict, "preemptor", 5, 1)
    for wrong in (
        subjects.command("preemptor", "evict", "workload", "ns", "other"),
        subjects.command("preemptor", "set-active", "workload", "ns", "w"),
        subjects.objects("workload", "ns", "w"),
    ):
        with pytest.raises(ValueError):
            open_command(received(wrong, commands.codec.encode(evict)), "then")
