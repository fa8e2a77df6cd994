from __future__ import annotations

from typing import Literal

import pytest

from services.scheduler.reports import PendingReports, RefusedHead
from shared.bus.interface import ObjectChanged
from shared.decide.cycle import NotAdmitted
from shared.events.commands import ReportPending
from shared.events.decisions import Positions
from shared.events.objects import Condition
from shared.events.outcomes import CommandOutcome
from shared.model.pending import RequeueReason
from shared.model.refusal import Refusal, Stop
from shared.state.objects import Objects
from tests.unit.state.builders import NOW, name_of, reserved, with_condition, workload

INTERVAL = 300.0


class Desk:
    """Reports of workloads held in an `Objects`."""

    def __init__(self, per_s: float = 100.0, burst: int = 100, *, legacy: bool = False) -> None:
        self.objects = Objects()
        self.reports = PendingReports("me", interval_s=INTERVAL, per_s=per_s, burst=burst, legacy_reasons=legacy)
        self.position = 0
        self.version = 0

    def see(self, name: str = "a", reason: str = "", message: str = "", **more: object) -> int:
        self.position += 1
        self.version += 1
        conditions = (_said(reason, message),) if reason else ()
        found = with_condition(workload(name), *conditions, version=self.version, **more)
        self.objects.apply(ObjectChanged(name_of(found), found, self.position))
        return self.version

    def refuse(self, reason: str, message: str = "m", name: str = "a") -> None:
        entry = NotAdmitted(
            key=f"ns/{name}",
            uid=f"uid-{name}",
            incarnation="i",
            version=self.version,
            cluster_queue="cq",
            refusal=Refusal(reason, stop=Stop("requests_refused", detail=message)),
            requeue=RequeueReason.NO_FIT,
            requests={"main": {"cpu": 1000}},
        )
        self.reports.refuse(entry.key, RefusedHead(entry, Positions(), NOW))

    def due(self, now: float = NOW) -> list[ReportPending]:
        return self.reports.due(self.objects, {"ns/a": "trace"}, now)

    def outcome(self, command: ReportPending, status: Literal["applied", "rejected"], version: int = 0) -> None:
        self.reports.outcome(CommandOutcome(command=command.id, subject="s", status=status, version=version))


def _said(reason: str, message: str) -> Condition:
    return Condition(type="QuotaReserved", status=False, reason=reason, message=message, changed=1)


@pytest.fixture
def desk() -> Desk:
    desk = Desk()
    desk.see()
    return desk


def test_a_first_reason_is_sent_at_once(desk: Desk) -> None:
    desk.refuse("WaitingForQuota", "why")
    [command] = desk.due()
    assert (command.reason, command.message, command.name, command.uid) == ("WaitingForQuota", "why", "a", "uid-a")
    assert (command.requests, command.version, command.trace) == ({"main": {"cpu": 1000}}, 1, "trace")
    assert command.id.startswith("me/")
    assert desk.due() == []


def test_what_the_object_says_already_is_not_sent(desk: Desk) -> None:
    desk.see(reason="WaitingForQuota", message="why")
    desk.refuse("WaitingForQuota", "why")
    assert desk.due() == []
    assert desk.reports.next_due(NOW) is None


def test_what_is_on_its_way_is_not_sent_again(desk: Desk) -> None:
    desk.refuse("WaitingForQuota", "why")
    desk.due()
    desk.refuse("WaitingForQuota", "why")
    assert desk.due() == []


def test_a_changed_reason_is_sent_at_once_again(desk: Desk) -> None:
    desk.refuse("WaitingForQuota")
    desk.due()
    desk.refuse("ExceedsMaxQuota")
    assert [command.reason for command in desk.due()] == ["ExceedsMaxQuota"]


def test_a_changed_message_waits(desk: Desk) -> None:
    desk.refuse("WaitingForQuota", "1 more")
    desk.due()
    desk.refuse("WaitingForQuota", "2 more")
    desk.refuse("WaitingForQuota", "3 more")
    assert desk.due(NOW + 1) == []
    assert desk.reports.next_due(NOW + 1) == NOW + INTERVAL
    assert [command.message for command in desk.due(NOW + INTERVAL)] == ["3 more"]


def test_a_reason_that_somebody_else_overwrote_is_said_again(desk: Desk) -> None:
    desk.refuse("WaitingForQuota", "why")
    [command] = desk.due()
    desk.outcome(command, "applied", version=2)
    desk.refuse("WaitingForQuota", "why")
    assert desk.due() == []
    desk.see(reason="WaitingForQuota", message="why")
    desk.see(reason="PendingEvaluation", message="evicted")
    desk.refuse("WaitingForQuota", "why")
    assert len(desk.due()) == 1


def test_old_words_are_told_apart_by_what_was_sent() -> None:
    desk = Desk(legacy=True)
    desk.see()
    desk.refuse("WaitingForQuota", "why")
    [command] = desk.due()
    assert (command.reason, command.message) == ("Pending", "why")
    desk.outcome(command, "applied", version=2)
    desk.see(reason="Pending", message="why")
    desk.refuse("WaitingForQuota", "why")
    assert desk.due() == []
    # Another message for the same reason waits, another reason does not.
    desk.refuse("WaitingForQuota", "a little less")
    assert desk.due() == []
    desk.refuse("ExceedsMaxQuota", "never")
    [command] = desk.due()
    assert (command.reason, command.message) == ("Pending", "never")
    desk.outcome(command, "applied", version=3)
    desk.see(reason="Pending", message="never")
    # Evicted meanwhile: somebody else's text is not ours, though the word is.
    desk.see(reason="Pending", message="evicted")
    desk.refuse("ExceedsMaxQuota", "never")
    assert [command.message for command in desk.due()] == ["never"]


def test_an_old_word_of_its_own() -> None:
    desk = Desk(legacy=True)
    desk.see()
    desk.refuse("WaitingForPodsReady", "why")
    assert [command.reason for command in desk.due()] == ["Waiting"]


def test_a_rejected_report_is_sent_at_the_next_refusal(desk: Desk) -> None:
    desk.refuse("WaitingForQuota", "why")
    [command] = desk.due()
    desk.outcome(command, "rejected")
    desk.refuse("WaitingForQuota", "why")
    assert len(desk.due()) == 1


def test_outcomes_of_others_are_ignored(desk: Desk) -> None:
    desk.refuse("WaitingForQuota", "why")
    [command] = desk.due()
    desk.reports.outcome(CommandOutcome(command="other/1", subject="s", status="rejected"))
    desk.refuse("WaitingForQuota", "why")
    assert desk.due() == []
    assert command.id != "other/1"


def test_the_rate_bounds_all_together() -> None:
    desk = Desk(per_s=2.0, burst=3)
    for number in range(6):
        desk.see(f"w{number}")
        desk.refuse("WaitingForQuota", name=f"w{number}")
    assert [command.name for command in desk.due()] == ["w0", "w1", "w2"]
    assert desk.reports.next_due(NOW) == NOW + 0.5
    assert [command.name for command in desk.due(NOW + 0.5)] == ["w3"]
    assert [command.name for command in desk.due(NOW + 60)] == ["w4", "w5"]


@pytest.mark.parametrize("end", ["reserved", "finished", "gone", "forgotten", "cleared"])
def test_who_waits_no_more_is_not_written_to(desk: Desk, end: str) -> None:
    desk.refuse("WaitingForQuota")
    held = reserved(workload("a"), version=9, finished=end == "finished")
    match end:
        case "reserved" | "finished":
            desk.objects.apply(ObjectChanged(name_of(held), held, 9))
        case "gone":
            desk.objects.clear()
        case "forgotten":
            desk.reports.forget("ns/a")
        case _:
            desk.reports.clear()
    assert desk.due() == []


def test_a_new_workload_of_the_name_is_told_again(desk: Desk) -> None:
    desk.refuse("WaitingForQuota", "why")
    desk.due()
    desk.see(uid="another")
    desk.refuse("WaitingForQuota", "why")
    assert [command.uid for command in desk.due()] == ["another"]
