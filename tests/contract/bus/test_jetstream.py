"""What our code relies on in JetStream itself, asked in raw requests: sequences, expectations, duplicates, limits, ages, purges, and consumers' positions."""

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest

from shared.bus.client import header
from shared.bus.connection import Answer, Connection
from shared.bus.jetstream import (
    DELETE_FAILED,
    MESSAGE_NOT_FOUND,
    NO_MESSAGE_AT_SEQUENCE,
    S_NS,
    STREAM_MISMATCH,
    STREAM_NAME_IN_USE,
    WRONG_LAST_SEQUENCE,
    ConsumerConfig,
    JetStream,
    JetStreamError,
    StreamConfig,
    StreamState,
)
from shared.bus.lease import OPERATION, bucket_config
from shared.bus.permissions import lease_subject
from shared.bus.publishing import (
    EXPECTED_LAST,
    EXPECTED_LAST_OF_SUBJECT,
    EXPECTED_STREAM,
    MESSAGE_ID,
    MESSAGE_TTL,
    Ack,
    Failure,
    Outgoing,
    Publisher,
    Result,
)
from tests.contract.bus.conftest import eventually
from tests.contract.bus.servers import Server

SUBJECT = "sluice.objects.workload.team-a.a"
OTHER = "sluice.objects.workload.team-a.b"
LOG = "sluice.decisions.0.1"


class Raw:
    """The gateway's connection, without its bus."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.js = JetStream(connection)
        self.publisher = Publisher(connection)

    async def publish(self, subject: str, payload: bytes = b"x", **headers: str) -> Result:
        named = {
            "last": EXPECTED_LAST,
            "of_subject": EXPECTED_LAST_OF_SUBJECT,
            "stream": EXPECTED_STREAM,
            "id_": MESSAGE_ID,
            "ttl": MESSAGE_TTL,
        }
        return await self.publisher.try_one(Outgoing(subject, payload, {named[k]: v for k, v in headers.items()}))

    async def state(self, stream: str) -> StreamState:
        return (await self.js.stream_info(stream)).state


@pytest.fixture
async def raw(server: Server) -> AsyncIterator[Raw]:
    connection = await server.connection("watcher")
    yield Raw(connection)
    await connection.close()


def latest(**changes: object) -> StreamConfig:
    config = StreamConfig(
        name="OBJECTS", subjects=("sluice.objects.>",), retention="limits", max_msgs_per_subject=1, max_bytes=-1,
        discard="old", num_replicas=1, duplicate_window=120 * S_NS,
    )  # fmt: skip
    return msgspec.structs.replace(config, **changes)


def log(**changes: object) -> StreamConfig:
    return latest(name="LOG", subjects=(LOG,), max_msgs_per_subject=-1, discard="new", **changes)


def code(result: Result) -> int:
    assert isinstance(result, Failure)
    return result.err_code


async def test_sequences_count_on_whatever_is_replaced(raw: Raw) -> None:
    await raw.js.create_stream(latest())
    assert await raw.state("OBJECTS") == StreamState(0, 0, 0)
    for sequence, subject in enumerate((SUBJECT, OTHER, SUBJECT), start=1):
        assert await raw.publish(subject) == Ack(sequence, "OBJECTS")
    assert await raw.state("OBJECTS") == StreamState(2, 2, 3)
    found = await raw.js.last_message("OBJECTS", SUBJECT)
    assert found is not None
    assert (found.seq, found.subject, found.data) == (3, SUBJECT, b"x")
    assert await raw.js.last_message("OBJECTS", "sluice.objects.none") is None


async def test_expectations(raw: Raw) -> None:
    await raw.js.create_stream(latest())
    await raw.publish(SUBJECT)
    assert code(await raw.publish(OTHER, of_subject="1")) == WRONG_LAST_SEQUENCE
    assert code(await raw.publish(SUBJECT, of_subject="0")) == WRONG_LAST_SEQUENCE
    assert code(await raw.publish(SUBJECT, last="0")) == WRONG_LAST_SEQUENCE
    assert code(await raw.publish(SUBJECT, stream="OTHER", last="9")) == STREAM_MISMATCH
    assert await raw.publish(OTHER, of_subject="0") == Ack(2, "OBJECTS")
    assert await raw.publish(SUBJECT, of_subject="1", stream="OBJECTS", last="2") == Ack(3, "OBJECTS")
    nobody = await raw.publish("sluice.outcomes.decisions")
    assert nobody == Failure("no such stream", sent=False, no_stream=True)


async def test_the_expectation_of_a_removed_subject_is_nothing(raw: Raw) -> None:
    await raw.js.create_stream(latest())
    await raw.publish(SUBJECT)
    await raw.js.delete_message("OBJECTS", 1)
    assert code(await raw.publish(SUBJECT, of_subject="1")) == WRONG_LAST_SEQUENCE
    assert await raw.publish(SUBJECT, of_subject="0") == Ack(2, "OBJECTS")


async def test_the_same_id_is_stored_once_within_the_window_and_again_after_it(raw: Raw) -> None:
    await raw.js.create_stream(latest(duplicate_window=S_NS // 2))
    assert await raw.publish(SUBJECT, id_="a") == Ack(1, "OBJECTS")
    assert await raw.publish(OTHER, id_="a") == Ack(1, "OBJECTS", duplicate=True)
    # What is expected is looked at before the id.
    assert code(await raw.publish(OTHER, id_="a", last="7")) == WRONG_LAST_SEQUENCE
    assert code(await raw.publish(OTHER, id_="a", of_subject="7")) == WRONG_LAST_SEQUENCE
    assert await raw.publish(OTHER, id_="a", last="1") == Ack(1, "OBJECTS", duplicate=True)
    assert await raw.publish(OTHER, id_="b") == Ack(2, "OBJECTS")

    async def again() -> bool:
        result = await raw.publish(SUBJECT, id_="a")
        assert isinstance(result, Ack)
        return not result.duplicate

    await eventually(again)
    assert await raw.state("OBJECTS") == StreamState(2, 2, 3)


async def test_what_was_replaced_keeps_its_id(raw: Raw) -> None:
    await raw.js.create_stream(latest())
    await raw.publish(SUBJECT, id_="a")
    await raw.publish(SUBJECT, id_="b")
    assert await raw.publish(SUBJECT, id_="a") == Ack(1, "OBJECTS", duplicate=True)


async def test_a_full_stream_refuses_the_new_or_drops_the_old(raw: Raw) -> None:
    await raw.js.create_stream(log(max_bytes=1000))
    stored = 0
    while isinstance(result := await raw.publish(LOG, b"x" * 100), Ack):
        stored += 1
        assert stored < 20
    assert (code(result), result.sent) == (10077, False)
    assert await raw.state("LOG") == StreamState(stored, 1, stored)
    # Room comes from what is purged, and sequences go on.
    await raw.js.purge_below("LOG", 3)
    assert await raw.publish(LOG, b"x" * 100, last=str(stored)) == Ack(stored + 1, "LOG")

    await raw.js.create_stream(latest(max_msgs_per_subject=-1, max_bytes=1000))
    for _ in range(20):
        assert isinstance(await raw.publish(SUBJECT, b"x" * 100), Ack)
    state = await raw.state("OBJECTS")
    assert state.last_seq == 20
    assert state.messages == 21 - state.first_seq < 10


async def test_purging(raw: Raw) -> None:
    await raw.js.create_stream(log())
    for _ in range(4):
        await raw.publish(LOG)
    await raw.js.purge_below("LOG", 3)
    assert await raw.state("LOG") == StreamState(2, 3, 4)
    await raw.js.purge_below("LOG", 2)
    assert await raw.state("LOG") == StreamState(2, 3, 4)
    await raw.js.purge_below("LOG", 5)
    assert await raw.state("LOG") == StreamState(0, 5, 4)
    # Beyond the end, the end moves.
    await raw.js.purge_below("LOG", 9)
    assert await raw.state("LOG") == StreamState(0, 9, 8)
    assert await raw.publish(LOG, last="8") == Ack(9, "LOG")


async def test_deleting_what_is_not_there_is_said(raw: Raw) -> None:
    await raw.js.create_stream(log())
    await raw.publish(LOG)
    await raw.publish(LOG)
    await raw.js.delete_message("LOG", 1)
    assert await raw.state("LOG") == StreamState(1, 2, 2)
    for sequence in (1, 7):
        answer = await raw.connection.request("$JS.API.STREAM.MSG.DELETE.LOG", b'{"seq":%d}' % sequence)
        error = msgspec.json.decode(answer.payload)["error"]
        assert error["err_code"] in (DELETE_FAILED, NO_MESSAGE_AT_SEQUENCE, MESSAGE_NOT_FOUND)
    await raw.js.delete_message("LOG", 2)
    assert await raw.state("LOG") == StreamState(0, 3, 2)


async def test_a_time_to_live_needs_a_stream_that_allows_it(raw: Raw) -> None:
    await raw.js.create_stream(latest(allow_msg_ttl=True))
    await raw.js.create_stream(log())
    assert code(await raw.publish(LOG, ttl="1s")) == 10166
    await raw.publish(SUBJECT, ttl="1s")
    await raw.publish(OTHER)

    async def gone() -> bool:
        return await raw.js.last_message("OBJECTS", SUBJECT) is None

    assert not await gone()
    await eventually(gone)
    assert await raw.state("OBJECTS") == StreamState(1, 2, 2)
    assert await raw.publish(SUBJECT, of_subject="0") == Ack(3, "OBJECTS")


async def test_streams_are_made_once_changed_and_named(raw: Raw) -> None:
    made = await raw.js.create_stream(latest())
    assert await raw.js.create_stream(latest()) == made
    with pytest.raises(JetStreamError) as refused:
        await raw.js.create_stream(latest(max_bytes=5000))
    assert refused.value.error.err_code == STREAM_NAME_IN_USE
    await raw.publish(SUBJECT)
    changed = await raw.js.update_stream(latest(max_bytes=5000))
    assert (changed.created, changed.state.messages) == (made.created, 1)
    await raw.js.create_stream(log())
    assert sorted(await raw.js.stream_names()) == ["LOG", "OBJECTS"]
    await raw.js.delete_stream("OBJECTS")
    await raw.js.delete_stream("OBJECTS")
    with pytest.raises(JetStreamError) as missing:
        await raw.js.stream_info("OBJECTS")
    assert missing.value.not_found
    again = await raw.js.create_stream(latest())
    assert again.created != made.created
    assert again.state == StreamState(0, 0, 0)


class Delivered:
    """What one consumer delivers: (stream sequence, consumer sequence, pending)."""

    def __init__(self) -> None:
        self.found: list[tuple[int, int, int]] = []
        self.stamps: list[int] = []
        self.activity = asyncio.Event()

    def __call__(self, subject: str, reply: str, payload: bytes, headers: bytes | None) -> None:
        if headers is None or not headers.startswith(b"NATS/1.0 1"):
            sequence, consumer, stamp, pending = (int(t) for t in reply.split(".")[5:9])
            self.found.append((sequence, consumer, pending))
            self.stamps.append(stamp)
            self.activity.set()

    async def until(self, count: int) -> list[tuple[int, int, int]]:
        async with asyncio.timeout(20):
            while len(self.found) < count:
                self.activity.clear()
                await self.activity.wait()
        return self.found


NAMES = {"OBJECTS": "watcher-0-load", "LOG": "watcher-0-decisions"}
"""Consumers that the gateway may make."""


async def consume(raw: Raw, stream: str, policy: str = "all", **options: object) -> tuple[Delivered, int, int]:
    """What comes, where it stood after it was made, and what it had still to send."""
    delivered = Delivered()
    inbox = f"{raw.connection.inbox_prefix}.{raw.connection.unique()}"
    await raw.connection.subscribe_direct(inbox, delivered)
    if stream == "LOG":
        options["filter_subject"] = LOG
    await raw.js.delete_consumer(stream, NAMES[stream])
    plain = ConsumerConfig(name=NAMES[stream], deliver_subject=inbox, deliver_policy=policy, idle_heartbeat=S_NS)
    config = msgspec.structs.replace(plain, **options)
    info = await raw.js.create_consumer(stream, config)
    return delivered, info.delivered.stream_seq, info.num_pending


async def test_where_a_consumer_begins(raw: Raw) -> None:
    await raw.js.create_stream(log())
    _, before, pending = await consume(raw, "LOG")
    assert (before, pending) == (0, 0)
    for _ in range(6):
        await raw.publish(LOG)
    await raw.js.purge_below("LOG", 3)
    delivered, before, pending = await consume(raw, "LOG")
    assert (before, pending) == (2, 4)
    assert await delivered.until(4) == [(3, 1, 3), (4, 2, 2), (5, 3, 1), (6, 4, 0)]
    assert delivered.stamps == sorted(set(delivered.stamps))
    for start, count, expected in ((5, 2, 4), (1, 4, 2), (7, 0, 6), (20, 0, 19)):
        delivered, before, pending = await consume(raw, "LOG", "by_start_sequence", opt_start_seq=start)
        assert (start, before, pending) == (start, expected, count)
        assert [s for s, _, _ in await delivered.until(count)] == list(range(7 - count, 7))
    await raw.js.purge_below("LOG", 7)
    _, before, pending = await consume(raw, "LOG")
    assert (before, pending) == (6, 0)


async def test_filters_and_the_last_of_each_subject(raw: Raw) -> None:
    await raw.js.create_stream(latest(max_msgs_per_subject=-1))
    queue = "sluice.objects.localqueue.team-a.q"
    for subject in (SUBJECT, OTHER, queue, SUBJECT, queue):
        await raw.publish(subject)
    delivered, _, pending = await consume(raw, "OBJECTS", "last_per_subject", filter_subject=SUBJECT)
    assert pending == 1
    assert await delivered.until(1) == [(4, 1, 0)]
    delivered, _, pending = await consume(
        raw, "OBJECTS", filter_subjects=("sluice.objects.workload.>", "sluice.objects.cohort.>")
    )
    assert pending == 3
    assert await delivered.until(3) == [(1, 1, 2), (2, 2, 1), (4, 3, 0)]
    await raw.publish(queue)
    await raw.publish(OTHER)
    assert (await delivered.until(4))[3:] == [(7, 4, 0)]


async def test_a_filter_stands_in_the_subject_of_the_request_or_the_request_is_refused(raw: Raw) -> None:
    await raw.js.create_stream(log())
    body = (
        b'{"stream_name":"LOG","config":{"name":"watcher-0-decisions","deliver_policy":"all","ack_policy":"none",'
        b'"deliver_subject":"_INBOX_watcher.x","filter_subject":"%b"}}'
    )
    for filter_, refused in ((b"sluice.>", True), (LOG.encode(), False)):
        answer = await raw.connection.request(f"$JS.API.CONSUMER.CREATE.LOG.watcher-0-decisions.{LOG}", body % filter_)
        assert (b'"error"' in answer.payload) == refused


async def test_heartbeats_say_how_much_was_delivered(raw: Raw) -> None:
    await raw.js.create_stream(log())
    beats: list[tuple[str, str]] = []
    heard = asyncio.Event()

    def receive(subject: str, reply: str, payload: bytes, headers: bytes | None) -> None:
        if headers is not None and headers.startswith(b"NATS/1.0 100 Idle Heartbeat"):
            beats.append((header(headers, b"Nats-Last-Consumer"), header(headers, b"Nats-Last-Stream")))
            heard.set()

    await raw.publish(LOG)
    await raw.publish(LOG)
    inbox = f"{raw.connection.inbox_prefix}.{raw.connection.unique()}"
    await raw.connection.subscribe_direct(inbox, receive)
    config = ConsumerConfig(
        name=NAMES["LOG"], deliver_subject=inbox, deliver_policy="by_start_sequence", opt_start_seq=2,
        filter_subject=LOG, idle_heartbeat=S_NS // 2,
    )  # fmt: skip
    await raw.js.create_consumer("LOG", config)
    async with asyncio.timeout(20):
        await heard.wait()
    assert beats[0] == ("1", "2")


async def test_a_direct_read_says_where_the_message_stands(raw: Raw, server: Server) -> None:
    await raw.js.create_stream(bucket_config(1))
    key = lease_subject("scheduler", "0")
    holder = Raw(await server.connection("scheduler"))

    async def read() -> Answer:
        return await holder.connection.request(f"$JS.API.DIRECT.GET.KV_LEASES.{key}")

    assert (await read()).status == "404"
    assert await holder.publish(key, b"me", of_subject="0") == Ack(1, "KV_LEASES")
    answer = await read()
    assert (answer.payload, answer.status, header(answer.headers, b"Nats-Sequence")) == (b"me", "", "1")
    await holder.publisher.try_one(Outgoing(key, b"", {OPERATION: "DEL"}))
    answer = await read()
    assert (header(answer.headers, OPERATION.encode()), header(answer.headers, b"Nats-Sequence")) == ("DEL", "2")

    async def expired() -> bool:
        return (await read()).status == "404"

    await eventually(expired)
    assert await raw.state("KV_LEASES") == StreamState(0, 3, 2)
    await holder.connection.close()
