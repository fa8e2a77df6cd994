"""What a level-triggered writer remembers, and its loop, on the bus in memory with a clock of the test's own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from shared.bus.interface import CaughtUp, FeedItem, ObjectChanged, ObjectWrite, Reset, Settled
from shared.bus.nats_bus import NatsBus
from shared.events.commands import Command, SetActive, SetPriority, SetQueueStatus
from shared.events.decisions import Positions
from shared.events.objects import Condition, QueueUsage, Tombstone, Workload
from shared.events.outcomes import CommandOutcome
from shared.events.subjects import ObjectName
from shared.state.objects import Objects
from shared.state.open_commands import Agenda, CommandWriter, OpenCommands, Verdict
from shared.testing.simulated_bus import DecodedBroker

# --- agenda ---------------------------------------------------------------------------------------------------------


def test_keys_come_when_they_are_due_earliest_first() -> None:
    agenda = Agenda()
    agenda.at(20.0, "late")
    agenda.at(10.0, "soon")
    agenda.mark("now")
    assert agenda.next == 0.0
    assert agenda.take(10.0, 9) == ["now", "soon"]
    assert agenda.next == 20.0
    assert agenda.take(19.9, 9) == []
    assert agenda.take(20.0, 9) == ["late"]
    assert agenda.next is None


def test_a_key_waits_once_with_its_earliest_time() -> None:
    agenda = Agenda()
    agenda.at(20.0, "a")
    agenda.at(10.0, "a")
    agenda.at(15.0, "a")
    assert len(agenda) == 1
    assert agenda.take(30.0, 9) == ["a"]
    assert agenda.take(30.0, 9) == []


def test_a_taken_key_may_wait_again_with_a_later_time() -> None:
    agenda = Agenda()
    agenda.at(10.0, "a")
    assert agenda.take(10.0, 9) == ["a"]
    agenda.at(50.0, "a")
    assert agenda.take(49.0, 9) == []
    assert agenda.take(50.0, 9) == ["a"]


def test_no_more_than_the_limit_is_taken() -> None:
    agenda = Agenda()
    for key in "abc":
        agenda.mark(key)
    assert agenda.take(0.0, 2) == ["a", "b"]
    assert agenda.take(0.0, 2) == ["c"]


# --- open commands --------------------------------------------------------------------------------------------------


class Memory:
    """OpenCommands with a view of the test's making."""

    def __init__(self) -> None:
        self.versions: dict[tuple[str, str], int] = {}
        self.agenda = Agenda()
        self.open = OpenCommands("writer", lambda kind, key: self.versions.get((kind, key), 0))

    def select(self, now: float, *commands: Command) -> list[Command]:
        return self.open.select("key", commands, now, self.agenda)

    def settle(self, command: Command, now: float, version: int = 0, *, rejected: bool = False) -> str | None:
        status = "rejected" if rejected else "applied"
        outcome = CommandOutcome(command=command.id, subject="", status=status, version=version)  # type: ignore[arg-type]
        return self.open.settled(outcome, now)


def priority(value: int, version: int = 1, **changes: str) -> SetPriority:
    base = SetPriority(id="", kind="workload", namespace="ns", name="wl", version=version, priority=value)
    return msgspec.structs.replace(base, **changes)


def test_a_command_is_sent_once_while_it_is_open() -> None:
    memory = Memory()
    (sent,) = memory.select(0.0, priority(1))
    assert sent.id
    assert msgspec.structs.replace(sent, id="") == priority(1)
    assert memory.select(1.0, priority(1)) == []
    assert memory.select(2.0, priority(1, version=7)) == []
    assert len(memory.open) == 1


@pytest.mark.parametrize("changed", [priority(2), priority(1, incarnation="other"), priority(1, uid="other")])
def test_other_content_on_the_same_subject_replaces_it(changed: SetPriority) -> None:
    memory = Memory()
    (first,) = memory.select(0.0, priority(1))
    (second,) = memory.select(1.0, changed)
    assert second.id != first.id
    assert memory.settle(first, 2.0) is None
    assert len(memory.open) == 1
    assert memory.settle(second, 2.0) == "key"


def test_commands_of_other_types_are_open_beside_each_other() -> None:
    memory = Memory()
    active = SetActive(id="", kind="workload", namespace="ns", name="wl", active=False)
    assert len(memory.select(0.0, priority(1), active)) == 2
    assert len(memory.open) == 2


def test_the_time_of_a_transition_is_not_part_of_a_wish() -> None:
    def status(changed: int, message: str = "m") -> Command:
        condition = Condition("Active", True, "Ready", message, changed)
        usage = QueueUsage()
        return SetQueueStatus(
            id="", kind="clusterqueue", name="q", pending=0, reserving=0, admitted=0,
            reservation=usage, usage=usage, active=condition,
        )  # fmt: skip

    memory = Memory()
    (sent,) = memory.select(0.0, status(100))
    assert isinstance(sent, SetQueueStatus)
    assert sent.active.changed == 100
    assert memory.select(1.0, status(101)) == []
    assert len(memory.select(1.0, status(101, "other"))) == 1


def test_without_an_answer_it_is_asked_again_with_growing_patience() -> None:
    memory = Memory()
    now, pauses = 0.0, []
    memory.select(now, priority(1))
    for _ in range(6):
        due = memory.agenda.next
        assert due is not None
        assert memory.select(due - 0.1, priority(1)) == []
        memory.agenda.take(due, 9)
        assert len(memory.select(due, priority(1))) == 1
        pauses.append(due - now)
        now = due
    assert pauses == [60, 120, 240, 480, 600, 600]


def test_an_answer_ahead_of_the_view_keeps_the_key_from_being_judged() -> None:
    memory = Memory()
    memory.versions["workload", "ns/wl"] = 5
    (sent,) = memory.select(0.0, priority(1))
    assert memory.settle(sent, 1.0, version=8) == "key"
    assert memory.open.waiting("key", 1.0) == 31.0
    memory.versions["workload", "ns/wl"] = 7
    assert list(memory.open.viewed("workload", "ns/wl")) == ["key"]
    assert memory.open.waiting("key", 2.0) == 31.0
    memory.versions["workload", "ns/wl"] = 8
    assert list(memory.open.viewed("workload", "ns/wl")) == ["key"]
    assert memory.open.waiting("key", 3.0) is None
    assert list(memory.open.viewed("workload", "ns/wl")) == []


def test_a_view_that_never_comes_is_not_waited_for_forever() -> None:
    memory = Memory()
    (sent,) = memory.select(0.0, priority(1))
    memory.settle(sent, 1.0, version=8)
    assert memory.open.waiting("key", 30.9) == 31.0
    assert memory.open.waiting("key", 31.0) is None
    assert memory.open.waiting("key", 31.0) is None


def test_a_refusal_about_an_object_that_was_never_seen_is_not_waited_for() -> None:
    memory = Memory()
    (sent,) = memory.select(0.0, priority(1))
    memory.settle(sent, 1.0, version=8, rejected=True)
    assert memory.open.waiting("key", 1.0) is None


def test_an_answer_that_the_view_shows_already_is_not_waited_for() -> None:
    memory = Memory()
    memory.versions["workload", "ns/wl"] = 8
    (sent,) = memory.select(0.0, priority(1))
    memory.settle(sent, 1.0, version=8)
    assert memory.open.waiting("key", 1.0) is None


@pytest.mark.parametrize("rejected", [True, False])
def test_what_is_wanted_in_spite_of_an_answer_is_asked_again_with_growing_pauses(rejected: bool) -> None:
    memory = Memory()
    now, pauses = 0.0, []
    (sent,) = memory.select(now, priority(1))
    for _ in range(8):
        memory.settle(sent, now, rejected=rejected)
        assert memory.select(now, priority(1)) == []
        due = memory.agenda.next
        assert due is not None
        memory.agenda.take(due, 9)
        pauses.append(due - now)
        now = due
        (sent,) = memory.select(now, priority(1))
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60]


def test_after_a_rejection_other_content_goes_at_once() -> None:
    memory = Memory()
    (sent,) = memory.select(0.0, priority(1))
    memory.settle(sent, 0.0, rejected=True)
    assert len(memory.select(0.0, priority(1, incarnation="new"))) == 1


def test_what_is_no_longer_wanted_is_forgotten_once_answered() -> None:
    memory = Memory()
    (sent,) = memory.select(0.0, priority(1))
    assert memory.select(1.0) == []
    assert memory.select(2.0, priority(1)) == []
    memory.settle(sent, 3.0, rejected=True)
    assert memory.select(3.0) == []
    assert len(memory.select(3.0, priority(1))) == 1


def test_unknown_and_repeated_outcomes_are_nobodys() -> None:
    memory = Memory()
    (sent,) = memory.select(0.0, priority(1))
    assert memory.settle(priority(1, id="unknown"), 1.0) is None
    assert memory.settle(sent, 1.0) == "key"
    assert memory.settle(sent, 1.0) is None


def test_a_reset_forgets_everything() -> None:
    memory = Memory()
    memory.select(0.0, priority(1))
    memory.open.clear()
    assert len(memory.open) == 0
    assert len(memory.select(0.0, priority(1))) == 1


# --- the writer -----------------------------------------------------------------------------------------------------


class PriorityJudge:
    """Wants priority 7 of every workload, from second `start` on; a workload called `bad` cannot be judged."""

    def __init__(self, start: float = 0.0) -> None:
        self.objects = Objects()
        self.start = start
        self.judged: list[str] = []

    def fold(self, item: FeedItem, now: float) -> Iterable[str]:
        if isinstance(item, Reset):
            self.objects.clear()
        if isinstance(item, ObjectChanged) and self.objects.apply(item) is not None:
            return [item.name.key]
        return []

    def version(self, kind: str, key: str) -> int:
        return self.objects.version(kind, key)

    def everything(self) -> Iterable[str]:
        return list(self.objects.all(Workload))

    def judge(self, key: str, now: float) -> Verdict:
        self.judged.append(key)
        workload = self.objects.get(Workload, key)
        if workload is None or workload.priority == 7:
            return Verdict()
        if workload.name == "bad":
            raise RuntimeError("cannot read it")
        if now < self.start:
            return Verdict((), self.start)
        command = SetPriority(id="", kind="workload", namespace="ns", name=workload.name, priority=7)
        return Verdict((command,))


def seen(name: str, version: int, value: int = 0, trace: str = "") -> ObjectChanged:
    workload = Workload(namespace="ns", name=name, uid=name, version=version, priority=value)
    return ObjectChanged(ObjectName("workload", "ns", name), workload, version, trace)


CAUGHT_UP = CaughtUp(Positions(epoch=1))


def writer(judge: PriorityJudge | None = None, *, leads: bool = True) -> CommandWriter:
    return CommandWriter("queue_manager", judge or PriorityJudge(), CollectorRegistry(), leads=leads)


def test_nothing_is_judged_before_the_replay_is_complete() -> None:
    subject = writer()
    subject.fold([Reset(1, ""), seen("a", 1)], 0.0)
    assert subject.step(0.0) == []
    subject.fold([seen("b", 2), CAUGHT_UP], 0.0)
    assert [c.name for c in subject.step(0.0)] == ["a", "b"]


def test_a_reset_judges_anew_what_was_asked_before() -> None:
    subject = writer()
    subject.fold([Reset(1, ""), seen("a", 1), CAUGHT_UP], 0.0)
    assert len(subject.step(0.0)) == 1
    subject.fold([Reset(2, ""), seen("a", 1)], 1.0)
    assert subject.step(1.0) == []
    subject.fold([CAUGHT_UP], 1.0)
    assert len(subject.step(1.0)) == 1


@pytest.mark.parametrize("outcome_first", [True, False])
def test_outcome_and_object_may_come_in_any_order(outcome_first: bool) -> None:
    subject = writer()
    subject.fold([Reset(1, ""), seen("a", 1), CAUGHT_UP], 0.0)
    (sent,) = subject.step(0.0)
    outcome = Settled(CommandOutcome(command=sent.id, subject="", status="applied", version=2), 1)
    items: list[FeedItem] = [outcome, seen("a", 2, 7)]
    for item in items if outcome_first else reversed(items):
        subject.fold([item], 1.0)
        assert subject.step(1.0) == []
    assert len(subject.open) == 0
    assert subject.step(1000.0) == []


def test_a_change_between_answer_and_view_is_not_judged() -> None:
    judge = PriorityJudge()
    subject = writer(judge)
    subject.fold([Reset(1, ""), seen("a", 1), CAUGHT_UP], 0.0)
    (sent,) = subject.step(0.0)
    subject.fold([Settled(CommandOutcome(command=sent.id, subject="", status="applied", version=3), 1)], 1.0)
    judge.judged.clear()
    subject.fold([seen("a", 2)], 2.0)
    assert subject.step(2.0) == []
    assert judge.judged == []
    subject.fold([seen("a", 3, 7)], 3.0)
    subject.step(3.0)
    assert judge.judged == ["ns/a"]


def test_timers_judge_without_any_change() -> None:
    subject = writer(PriorityJudge(start=100.0))
    subject.fold([Reset(1, ""), seen("a", 1), CAUGHT_UP], 0.0)
    assert subject.step(0.0) == []
    assert subject.agenda.next == 100.0
    assert subject.step(99.0) == []
    assert [c.name for c in subject.step(100.0)] == ["a"]


def test_a_key_that_cannot_be_judged_does_not_stop_the_others() -> None:
    registry = CollectorRegistry()
    subject = CommandWriter("queue_manager", PriorityJudge(), registry, leads=True)
    subject.fold([Reset(1, ""), seen("bad", 1), seen("good", 2), CAUGHT_UP], 0.0)
    assert [c.name for c in subject.step(0.0)] == ["good"]
    assert registry.get_sample_value("sluice_queue_manager_judgements_failed_total") == 1


def test_a_standby_folds_and_takes_over_with_everything() -> None:
    subject = writer(leads=False)
    subject.fold([Reset(1, ""), seen("a", 1), CAUGHT_UP, seen("b", 2)], 0.0)
    assert subject.step(0.0) == []
    subject.lead(True)
    assert [c.name for c in subject.step(0.0)] == ["a", "b"]
    subject.lead(False)
    subject.fold([seen("c", 3)], 1.0)
    assert subject.step(1.0) == []


def test_commands_carry_on_the_trace_of_their_workload() -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    subject = writer()
    subject.fold([Reset(1, ""), seen("a", 1, trace=trace), seen("b", 2), CAUGHT_UP], 0.0)
    assert [c.trace for c in subject.step(0.0)] == [trace, ""]


def test_a_deleted_workload_wants_nothing() -> None:
    subject = writer()
    subject.fold([Reset(1, ""), seen("a", 1), CAUGHT_UP], 0.0)
    (sent,) = subject.step(0.0)
    gone = Tombstone(namespace="ns", name="a", uid="a", version=5)
    subject.fold([ObjectChanged(ObjectName("workload", "ns", "a"), gone, 5)], 1.0)
    subject.fold([Settled(CommandOutcome(command=sent.id, subject="", status="rejected", version=5), 1)], 1.0)
    assert subject.step(1000.0) == []


def test_commands_are_counted_by_type() -> None:
    registry = CollectorRegistry()
    subject = CommandWriter("queue_manager", PriorityJudge(), registry, leads=True)
    subject.fold([Reset(1, ""), seen("a", 1), CAUGHT_UP], 0.0)
    subject.step(0.0)
    labels = {"type": "SetPriority"}
    assert registry.get_sample_value("sluice_queue_manager_commands_sent_total", labels) == 1
    assert registry.get_sample_value("sluice_queue_manager_commands_open") == 1


# --- its loop -------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def running(bus: NatsBus, subject: CommandWriter, *, leased: bool = False) -> AsyncIterator[asyncio.Event]:
    """Yields an event that is set once the writer says that it is ready."""
    told = asyncio.Event()
    lease = bus.lease("queue_manager") if leased else None
    task = asyncio.create_task(
        subject.run(
            bus, ("workload",), lambda: 0.0, lease=lease, ready=lambda ready, why: told.set() if ready else told.clear()
        )
    )
    try:
        yield told
    finally:
        task.cancel()
        await asyncio.wait({task})
        await bus.close()


async def commands(broker: DecodedBroker, count: int) -> list[str]:
    changed = broker.listen()
    async with asyncio.timeout(5):
        while len(broker.command_history) < count:
            changed.clear()
            await changed.wait()
    return [c.name for c in broker.command_history]


async def put(broker: DecodedBroker, name: str, version: int = 1) -> None:
    item = seen(name, version)
    await broker.gateway().put_objects([ObjectWrite(item.name, item.object)])


async def test_the_loop_sends_what_the_judge_wants() -> None:
    broker = DecodedBroker()
    await put(broker, "a")
    async with running(broker.bus("queue_manager"), writer()) as told:
        await broker.gateway().open_epoch(shard="0", epoch=1, objects_position=1, why="")
        assert await commands(broker, 1) == ["a"]
        await put(broker, "b")
        assert await commands(broker, 2) == ["a", "b"]
        assert told.is_set()


async def test_a_new_epoch_asks_again() -> None:
    broker = DecodedBroker()
    await put(broker, "a")
    gateway = broker.gateway()
    await gateway.open_epoch(shard="0", epoch=1, objects_position=1, why="")
    async with running(broker.bus("queue_manager"), writer()):
        await commands(broker, 1)
        broker.wipe()
        await put(broker, "a")
        await gateway.load_objects()
        await gateway.open_epoch(shard="0", epoch=2, objects_position=1, why="wiped")
        assert await commands(broker, 1) == ["a"]


async def test_the_standby_acts_when_the_lease_is_free() -> None:
    broker = DecodedBroker()
    await put(broker, "a")
    await broker.gateway().open_epoch(shard="0", epoch=1, objects_position=1, why="")
    standby_judge = PriorityJudge()
    first, second = broker.bus("queue_manager"), broker.bus("queue_manager")
    async with running(first, writer(leads=False), leased=True):
        await commands(broker, 1)
        active_commands = len(broker.command_history)
        async with running(second, writer(standby_judge, leads=False), leased=True) as told:
            async with asyncio.timeout(5):
                await told.wait()
            await put(broker, "b")
            await commands(broker, active_commands + 1)
            assert standby_judge.judged == []
            await first.close()
            broker.drop_lease("queue_manager")
            await commands(broker, active_commands + 3)
            assert sorted(set(standby_judge.judged)) == ["ns/a", "ns/b"]
