"""Messages of another release on the bus: who decides by them ends instead of deciding without them, and nothing of them is thrown away."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from shared.bus.nats_bus import NatsGatewayBus
from shared.bus.publishing import Ack, Outgoing
from shared.events import commands, decisions, objects, outcomes, subjects
from shared.events.codec import Codec, UnknownVersion
from shared.events.decisions import Batch, DecisionId, Positions
from tests.contract.bus.conftest import Connect
from tests.contract.bus.messages import has, names, workload
from tests.contract.bus.test_feed import Read, open_epoch


def of_the_next_release(codec: Codec[Any], message: object) -> bytes:
    plain = msgspec.msgpack.decode(codec.encode(message))
    return msgspec.msgpack.encode(plain | {"t": plain["t"].replace("/1", "/2")})


WORKLOAD = Outgoing(
    subjects.objects("workload", "team-a", "new"),
    of_the_next_release(objects.codec, workload("new", 9).object),
)
OUTCOME = Outgoing(
    subjects.OUTCOMES_OF_DECISIONS,
    of_the_next_release(
        outcomes.codec,
        outcomes.DecisionOutcome(decision=DecisionId(1, 2, 0), key="team-a/x", uid="u", status="applied", version=5),
    ),
)
BATCH = Outgoing(
    subjects.decisions("0", 1),
    of_the_next_release(decisions.codec, Batch(author="next", positions=Positions(epoch=1), decided_ns=1)),
)


async def publish(gateway: NatsGatewayBus, message: Outgoing) -> None:
    assert isinstance(await gateway._publisher.try_one(message), Ack)


async def drain(messages: AsyncIterator[object]) -> None:
    async for _ in messages:
        pass


async def no_dead_letter(gateway: NatsGatewayBus) -> bool:
    return (await gateway._js.stream_info("DEADLETTER")).state.messages == 0


@pytest.mark.parametrize("foreign", [WORKLOAD, OUTCOME, BATCH], ids=["object", "outcome", "decision"])
async def test_who_decides_stops_reading(
    gateway: NatsGatewayBus, service: Connect, read: Read, foreign: Outgoing
) -> None:
    await open_epoch(gateway, 1)
    reader = read(await service("scheduler"), kinds=["workload"], decisions=True, outcomes=True)
    await reader.caught_up()
    await publish(gateway, foreign)
    with pytest.raises(UnknownVersion, match="/2 is of another release"):
        await reader.until(lambda items: False)
    assert await no_dead_letter(gateway)


async def test_who_only_reads_objects_goes_on(gateway: NatsGatewayBus, service: Connect, read: Read) -> None:
    await open_epoch(gateway, 1)
    reader = read(await service("webhook"), kinds=["workload"])
    await reader.caught_up()
    await publish(gateway, WORKLOAD)
    await gateway.put_objects([workload("known", 1)])
    assert names(await reader.until(has("known"))) == ["known"]


async def test_the_gateway_applies_no_log_that_it_cannot_read(gateway: NatsGatewayBus) -> None:
    await open_epoch(gateway, 1)
    await publish(gateway, BATCH)
    with pytest.raises(UnknownVersion):
        await drain(gateway.log(shard="0", epoch=1, after=0))
    assert await no_dead_letter(gateway)


async def test_the_gateway_answers_no_command_that_it_cannot_read(gateway: NatsGatewayBus, service: Connect) -> None:
    await open_epoch(gateway, 1)
    command = commands.Evict(
        kind="workload", namespace="team-a", name="a", uid="u", incarnation="i", reason="Preempted", message="m", id="x"
    )
    payload = of_the_next_release(commands.codec, command)
    preemptor = await service("preemptor")
    sent = Outgoing(commands.subject_of("preemptor", command), payload)
    assert isinstance(await preemptor._publisher.try_one(sent), Ack)
    with pytest.raises(UnknownVersion):
        await drain(gateway.commands())
    # It waits for a gateway that can.
    assert (await gateway._js.stream_info("COMMANDS")).state.messages == 1
    assert await no_dead_letter(gateway)


async def test_a_gateway_may_go_back_to_an_older_release(gateway: NatsGatewayBus) -> None:
    await publish(gateway, WORKLOAD)
    await gateway.load_objects()
    await gateway.put_objects([workload("new", 10)])
    found = await gateway.load_objects()
    assert [o.version for _, o in found.values()] == [10]
