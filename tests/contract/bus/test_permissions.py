"""The permissions from the attacker's side: each user tries what is not its own, against the real server."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import pytest

from shared.bus.connection import Connection, NoResponders
from shared.bus.jetstream import ConsumerConfig, JetStream
from shared.bus.nats_bus import NatsGatewayBus, connect
from shared.bus.publishing import Ack, Outgoing, Publisher
from shared.events import streams, subjects
from tests.contract.bus.conftest import ConnectGateway
from tests.contract.bus.messages import workload
from tests.contract.bus.servers import RealServer, Server

over_nats = pytest.mark.asyncio(loop_factories=["nats"])
"""For what only a real server has: accounts and passwords."""

Login = Callable[[str], Awaitable[Connection]]


@pytest.fixture
async def login(server: Server, gateway: NatsGatewayBus) -> AsyncIterator[Login]:
    """A raw connection as a user, beside streams that exist."""
    await gateway.put_objects([workload("a", 1)])
    await gateway.open_epoch(shard="0", epoch=1, objects_position=1, why="test")
    async with AsyncExitStack() as stack:

        async def opened(user: str) -> Connection:
            connection = await server.connection(user)
            stack.push_async_callback(connection.close)
            return connection

        yield opened


async def refused(connection: Connection, subject: str, payload: bytes = b"{}") -> bool:
    """The server says so, which is more than the absence of an answer."""
    try:
        await connection.request(subject, payload, timeout_s=5)
    except PermissionError:
        return True
    return False


SERVICES = tuple(s for s in streams.SERVICES if s != streams.GATEWAY)


@pytest.mark.parametrize("user", SERVICES)
async def test_a_service_publishes_only_what_the_table_gives_it(login: Login, user: str) -> None:
    connection = await login(user)
    foreign = [
        subjects.objects("workload", "team-a", "a"),
        subjects.objects("epoch", "", "0"),
        subjects.OUTCOMES_OF_DECISIONS,
        subjects.event("team-a", "workload.admitted", "a"),
        *(subjects.command(s, "evict", "workload", "team-a", "a") for s in streams.SERVICES if s != user),
        *(subjects.dead_letter(s) for s in streams.SERVICES if s != user),
        *(f"_INBOX_{s}.stolen" for s in streams.SERVICES if s != user),
        *(f"$KV.LEASES.{s}.0" for s in streams.LEASE_HOLDERS if s != user),
        *(subjects.rpc(s, "get") for s in streams.SERVICES if s != user and s not in streams.RPC_CALLS.get(user, ())),
        "$JS.ACK.OBJECTS.watcher-0-objects.1.1.1.1.1",
    ]
    if user != "scheduler":
        foreign.append(subjects.decisions("0", 1))
    for subject in foreign:
        assert await refused(connection, subject), subject


@pytest.mark.parametrize("user", SERVICES)
async def test_a_service_neither_changes_streams_nor_reads_past_its_consumers(login: Login, user: str) -> None:
    connection = await login(user)
    log = subjects.decisions_stream("0", 1)
    for stream in ("OBJECTS", "OUTCOMES", "COMMANDS", "EVENTS", "DEADLETTER", "KV_LEASES", log):
        for call in ("CREATE", "UPDATE", "DELETE", "PURGE", "MSG.GET", "MSG.DELETE", "SNAPSHOT", "RESTORE"):
            assert await refused(connection, f"$JS.API.STREAM.{call}.{stream}"), (call, stream)
        for call in ("NAMES", "LIST"):
            assert await refused(connection, f"$JS.API.CONSUMER.{call}.{stream}"), (call, stream)
        assert await refused(connection, f"$JS.API.DIRECT.GET.{stream}"), stream
    for call in ("STREAM.NAMES", "STREAM.LIST", "INFO"):
        assert await refused(connection, f"$JS.API.{call}"), call
    for unreadable in (s.name for s in streams.STREAMS if user not in s.readers):
        assert await refused(connection, f"$JS.API.STREAM.INFO.{unreadable}"), unreadable


@pytest.mark.parametrize("user", SERVICES)
async def test_a_service_makes_and_ends_only_its_own_consumers(login: Login, user: str) -> None:
    connection = await login(user)
    other = next(s for s in SERVICES if s != user)
    for stream in ("OBJECTS", "OUTCOMES", "COMMANDS", subjects.decisions_stream("0", 1)):
        for name in (f"{other}-0-objects", f"{other}-0-decisions", f"{user}-x", f"{user}-{streams.REPLICAS}-objects"):
            for call in ("CREATE", "DURABLE.CREATE", "DELETE", "INFO", "MSG.NEXT", "PAUSE", "RESET"):
                assert await refused(connection, f"$JS.API.CONSUMER.{call}.{stream}.{name}"), (call, stream, name)
        assert await refused(connection, f"$JS.API.CONSUMER.CREATE.{stream}"), stream


def push(name: str, connection: Connection, filter_: str = "") -> ConsumerConfig:
    return ConsumerConfig(
        name=name, deliver_subject=f"{connection.inbox_prefix}.x", deliver_policy="all", filter_subject=filter_,
        flow_control=False,
    )  # fmt: skip


async def test_a_consumer_cannot_write_where_its_owner_may_not(login: Login, gateway: NatsGatewayBus) -> None:
    connection = await login("scheduler")
    js = JetStream(connection)
    log, name = subjects.decisions_stream("0", 1), "scheduler-0-decisions"
    before = (await gateway._js.stream_info("OBJECTS")).state
    heard = asyncio.Event()
    await connection.subscribe_direct(f"{connection.inbox_prefix}.x", lambda *_: heard.set())
    for target in (subjects.objects("workload", "team-a", "forged"), subjects.OUTCOMES_OF_DECISIONS):
        config = ConsumerConfig(
            name=name, deliver_subject=target, deliver_policy="all", filter_subject=subjects.decisions("0", 1),
            flow_control=False,
        )  # fmt: skip
        assert (await js.create_consumer(log, config)).num_pending == 1
        # A consumer that has an ear for what it delivers, made after it, is served: the forged one had its chance.
        heard.clear()
        other = "scheduler-1-decisions"
        await js.delete_consumer(log, other)
        await js.create_consumer(log, push(other, connection, subjects.decisions("0", 1)))
        async with asyncio.timeout(10):
            await heard.wait()
        await js.delete_consumer(log, name)
    assert (await gateway._js.stream_info("OBJECTS")).state == before
    assert (await gateway._js.stream_info("OUTCOMES")).state.messages == 0


async def test_the_webhook_reads_neither_decisions_nor_commands(login: Login) -> None:
    connection = await login("webhook")
    js = JetStream(connection)
    for stream in (subjects.decisions_stream("0", 1), "COMMANDS", "OUTCOMES", "EVENTS"):
        for purpose in ("objects", "decisions", "outcomes"):
            with pytest.raises(PermissionError):
                await js.create_consumer(stream, push(f"webhook-0-{purpose}", connection))
    assert (await js.create_consumer("OBJECTS", push("webhook-0-objects", connection))).num_pending == 2


async def test_the_consumer_of_logs_reads_nothing_but_logs(login: Login) -> None:
    connection = await login("preemptor")
    js = JetStream(connection)
    name, log = "preemptor-0-decisions", subjects.decisions_stream("0", 1)
    filter_ = subjects.decisions("0", 1)
    assert (await js.create_consumer(log, push(name, connection, filter_))).num_pending == 1
    # The subject of the request names any stream; what is read there is what the subject's filter says.
    with pytest.raises(PermissionError):
        await js.create_consumer("COMMANDS", push(name, connection))
    assert (await js.create_consumer("COMMANDS", push(name, connection, filter_))).num_pending == 0
    await connection.request(f"$JS.API.CONSUMER.DELETE.COMMANDS.{name}")
    smuggled = (
        b'{"stream_name":"COMMANDS","config":{"name":"%b","deliver_policy":"all","ack_policy":"none",'
        b'"deliver_subject":"_INBOX_preemptor.x","filter_subject":"sluice.commands.>"}}' % name.encode()
    )
    answer = await connection.request(f"$JS.API.CONSUMER.CREATE.COMMANDS.{name}.{filter_}", smuggled)
    assert b'"error"' in answer.payload


@pytest.mark.parametrize("user", [*SERVICES, "events_reader"])
async def test_nobody_listens_where_it_should_not(login: Login, another_gateway: ConnectGateway, user: str) -> None:
    connection = await login(user)
    heard: list[str] = []
    other = next(s for s in streams.SERVICES if s != user)
    for subject in (">", "sluice.>", "sluice.objects.>", "sluice.decisions.>", "sluice.commands.>", "sluice.rpc.>",
                    f"_INBOX_{other}.>", "_INBOX_*.>", "$JS.>", "$KV.>", "$SYS.>", "sluice.outcomes.>"):  # fmt: skip
        await connection.subscribe_direct(subject, lambda s, *_: heard.append(s))
    gateway = await another_gateway()
    await gateway.ensure_streams()
    await gateway.load_objects()
    await gateway.put_objects([workload("b", 7)])
    await gateway.settle([])
    # An answer to the other user: its inbox saw traffic while we listened.
    assert await gateway.check_streams(applied=1, epoch=1) == ""
    # Our own round trip comes after all of that.
    if user != "events_reader":
        await connection.request("$JS.API.STREAM.INFO.OBJECTS")
    else:
        await connection._client.flush(timeout=5)
    assert [s for s in heard if not s.startswith(f"_INBOX_{user}.")] == []


@over_nats
async def test_event_readers_hear_their_namespaces_and_can_say_nothing(login: Login, gateway: NatsGatewayBus) -> None:
    everybody, team_a = await login("events_reader"), await login("team_a_reader")
    heard: dict[str, list[str]] = {"events_reader": [], "team_a_reader": []}
    heard_all = asyncio.Event()
    last = subjects.event("team-a", "workload.finished", "z")

    def note(user: str) -> Callable[[str, str, bytes, bytes | None], None]:
        def handler(subject: str, *_: object) -> None:
            heard[user].append(subject)
            if all(h and h[-1] == last for h in heard.values()):
                heard_all.set()

        return handler

    await everybody.subscribe_direct("sluice.events.>", note("events_reader"))
    await team_a.subscribe_direct("sluice.events.team-a.>", note("team_a_reader"))
    for foreign in ("sluice.events.>", "sluice.events.team-b.>", "sluice.events.*.workload.>"):
        await team_a.subscribe_direct(foreign, note("team_a_reader"))
    await everybody._client.flush()
    await team_a._client.flush()
    sent = [subjects.event(ns, "workload.admitted", "x") for ns in ("team-a", "team-b", "team-a2")] + [last]
    await gateway.emit([(s, b'{"id":"%d"}' % n) for n, s in enumerate(sent)])
    async with asyncio.timeout(10):
        await heard_all.wait()
    assert heard["events_reader"] == sent
    assert set(heard["team_a_reader"]) == {sent[0], last}

    for connection in (everybody, team_a):
        for subject in (
            "$JS.API.INFO",
            "$JS.API.STREAM.INFO.EVENTS",
            "$JS.API.STREAM.NAMES",
            "$JS.API.STREAM.CREATE.MINE",
            "$JS.API.CONSUMER.CREATE.EVENTS.x",
            "$JS.API.CONSUMER.MSG.NEXT.EVENTS.x",
            "$JS.API.DIRECT.GET.EVENTS",
            "$JS.SLUICE.API.STREAM.INFO.EVENTS",
            "sluice.events.team-a.workload.admitted.fake",
            "sluice.objects.workload.team-a.a",
            "sluice.rpc.watcher.get",
            "_INBOX_watcher.x",
        ):
            assert await refused(connection, subject), subject


@over_nats
async def test_wrong_password_is_said_at_once(server: Server) -> None:
    assert isinstance(server, RealServer)
    with pytest.raises(PermissionError, match="scheduler"):
        await connect("scheduler", server.nats.url, "scheduler", "wrong")


async def test_every_service_may_do_its_own_work(login: Login) -> None:
    for user in SERVICES:
        connection = await login(user)
        publisher = Publisher(connection)
        for stream in streams.STREAMS:
            for pattern in () if stream.per_epoch else stream.publishers.get(user, ()):
                subject = pattern.replace(">", "a.b.c.d")
                assert isinstance(await publisher.try_one(Outgoing(subject, b"x")), Ack), (user, subject)
        for callee in streams.RPC_CALLS.get(user, ()):
            with pytest.raises(NoResponders):
                await connection.request(subjects.rpc(callee, "nobody"))
