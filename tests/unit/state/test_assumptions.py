from __future__ import annotations

from typing import Literal

import msgspec
import pytest

from shared.events.decisions import Batch, Decision, DecisionId, Positions, Preempt, SecondPass
from shared.events.outcomes import DecisionOutcome
from shared.state.assumptions import Assumptions
from tests.unit.state.builders import admit_of, workload

A, B = workload("a"), workload("b")


class View:
    """Versions and uids by key."""

    def __init__(self) -> None:
        self.versions: dict[str, int] = {}
        self.uids: dict[str, str] = {}
        self.assumptions = Assumptions(lambda key: self.versions.get(key, 0), lambda key: self.uids.get(key, ""))
        self.assumptions.open_epoch(1, 1)


@pytest.fixture
def view() -> View:
    return View()


def batch(*decisions: Decision, epoch: int = 1) -> Batch:
    return Batch(author="x", positions=Positions(epoch=epoch), decided_ns=5_900_000_000, decisions=decisions)


def outcome(
    status: Literal["applied", "rejected"],
    version: int,
    position: int = 2,
    index: int = 0,
    epoch: int = 1,
    key: str = "ns/a",
) -> DecisionOutcome:
    return DecisionOutcome(
        decision=DecisionId(epoch, position, index), key=key, uid="uid-a", status=status, version=version, why="since"
    )


def test_a_decision_counts_from_its_entry_on(view: View) -> None:
    assert view.assumptions.log(batch(admit_of(A), admit_of(B)), 2) == []
    assert view.assumptions.spending == 2
    assert view.assumptions.admit_of("ns/a") == (admit_of(A), 5)
    assert [assumed.id for assumed in view.assumptions.of("ns/b")] == [DecisionId(1, 2, 1)]


def test_the_echo_of_an_entry_is_recognised(view: View) -> None:
    view.assumptions.log(batch(admit_of(A)), 2)
    assert view.assumptions.log(batch(admit_of(A)), 2) is None
    assert view.assumptions.spending == 1


def test_applied_waits_for_the_view(view: View) -> None:
    view.assumptions.log(batch(admit_of(A)), 2)
    assert view.assumptions.outcome(outcome("applied", 9)) == []
    view.versions["ns/a"] = 8
    assert view.assumptions.seen("ns/a") == []
    assert view.assumptions.spending == 1
    view.versions["ns/a"] = 9
    [settled] = view.assumptions.seen("ns/a")
    assert settled.landed
    assert view.assumptions.spending == 0


def test_applied_settles_at_once_when_the_view_was_first(view: View) -> None:
    view.assumptions.log(batch(admit_of(A)), 2)
    view.versions["ns/a"] = 12
    [settled] = view.assumptions.outcome(outcome("applied", 9))
    assert settled.landed
    assert view.assumptions.admit_of("ns/a") is None


def test_rejected_settles_whatever_the_view(view: View) -> None:
    view.assumptions.log(batch(admit_of(A)), 2)
    [settled] = view.assumptions.outcome(outcome("rejected", 9))
    assert not settled.landed
    assert settled.why == "since"
    assert view.assumptions.rejections["ns/a"].version == 9
    assert view.assumptions.spending == 0


@pytest.mark.parametrize("status", ["applied", "rejected"])
def test_an_outcome_before_its_decision_is_kept(view: View, status: Literal["applied", "rejected"]) -> None:
    view.versions["ns/a"] = 9
    assert view.assumptions.outcome(outcome(status, 9)) == []
    settled = view.assumptions.log(batch(admit_of(A)), 2)
    assert settled is not None
    assert [s.landed for s in settled] == [status == "applied"]
    assert view.assumptions.spending == 0


def test_a_repeated_outcome_is_ignored(view: View) -> None:
    view.assumptions.log(batch(admit_of(A)), 2)
    view.assumptions.outcome(outcome("rejected", 9))
    assert view.assumptions.outcome(outcome("rejected", 9)) == []
    assert view.assumptions.rejections["ns/a"].count == 1


def test_an_outcome_of_another_epoch_means_another_decision(view: View) -> None:
    view.assumptions.open_epoch(2, 1)
    view.assumptions.log(batch(admit_of(A), epoch=2), 2)
    assert view.assumptions.outcome(outcome("rejected", 9, epoch=1)) == []
    assert view.assumptions.spending == 1


def test_a_batch_of_another_epoch_is_not_folded(view: View) -> None:
    assert view.assumptions.log(batch(admit_of(A), epoch=7), 2) is None
    assert view.assumptions.folded == 1


def test_a_new_epoch_voids_what_is_older(view: View) -> None:
    view.assumptions.log(batch(admit_of(A), admit_of(B)), 2)
    view.assumptions.outcome(outcome("rejected", 9))
    assert view.assumptions.open_epoch(2, 1) == ["ns/b"]
    assert (view.assumptions.spending, view.assumptions.folded, view.assumptions.epoch) == (0, 1, 2)
    assert not view.assumptions.rejections


def test_outcomes_of_the_coming_epoch_survive_its_opening(view: View) -> None:
    view.assumptions.outcome(outcome("rejected", 9, epoch=2))
    view.assumptions.open_epoch(2, 1)
    settled = view.assumptions.log(batch(admit_of(A), epoch=2), 2)
    assert settled is not None
    assert len(settled) == 1


def test_the_newest_admit_is_the_one_that_counts(view: View) -> None:
    view.assumptions.log(batch(admit_of(A)), 2)
    view.assumptions.log(batch(admit_of(A, "other")), 3)
    newest = view.assumptions.admit_of("ns/a")
    assert newest is not None
    assert newest[0].cluster_queue == "other"
    view.assumptions.outcome(outcome("rejected", 9, position=3))
    left = view.assumptions.admit_of("ns/a")
    assert left is not None
    assert left[0].cluster_queue == "cq"


def test_rejections_about_one_incarnation_are_counted(view: View) -> None:
    for position in (2, 3):
        view.assumptions.log(batch(admit_of(A)), position)
        view.assumptions.outcome(outcome("rejected", 9, position=position))
    assert view.assumptions.rejections["ns/a"].count == 2
    view.assumptions.log(batch(admit_of(workload("a", generation=2))), 4)
    view.assumptions.outcome(outcome("rejected", 9, position=4))
    assert view.assumptions.rejections["ns/a"].count == 1


def test_only_admits_and_preempts_spend(view: View) -> None:
    second = SecondPass(key="ns/a", uid="u", incarnation="i", cluster_queue="cq")
    victim = Preempt(
        key="ns/b", uid="u", incarnation="i", reason="InClusterQueue", message="", preemptor="ns/a", preemptor_uid="u"
    )
    view.assumptions.log(batch(second, victim), 2)
    assert view.assumptions.spending == 1
    assert view.assumptions.admit_of("ns/a") is None
    assert sorted(view.assumptions.workloads()) == ["ns/a", "ns/b"]


def test_outcomes_of_purged_entries_are_dropped_once_caught_up(view: View) -> None:
    view.assumptions.outcome(outcome("applied", 4, position=2))
    view.assumptions.log(batch(admit_of(B)), 5)
    view.assumptions.caught_up()
    assert view.assumptions.dump()["early"] == {}
    view.assumptions.outcome(outcome("applied", 4, position=9))
    view.assumptions.caught_up()
    assert view.assumptions.dump()["early"] == {DecisionId(1, 9, 0): outcome("applied", 4, position=9)}


def preempt_of(key: str = "ns/a", preemptor: str = "ns/p") -> Preempt:
    name = key.partition("/")[2]
    return Preempt(
        key=key,
        uid=f"uid-{name}",
        incarnation="i",
        reason="InClusterQueue",
        message="m",
        preemptor=preemptor,
        preemptor_uid="u",
    )


def test_a_preemption_counts_until_the_view_shows_it(view: View) -> None:
    view.uids["ns/a"] = "uid-a"
    view.assumptions.log(batch(preempt_of()), 2)
    assert view.assumptions.preempt_of("ns/a") == preempt_of()
    assert view.assumptions.spending == 1
    assert view.assumptions.outcome(outcome("applied", 9)) == []
    assert view.assumptions.preempt_of("ns/a") == preempt_of()
    view.versions["ns/a"] = 9
    [settled] = view.assumptions.seen("ns/a")
    assert (settled.id, settled.landed) == (DecisionId(1, 2, 0), True)
    assert view.assumptions.preempt_of("ns/a") is None
    assert view.assumptions.spending == 0


def test_a_rejected_preemption_counts_until_the_view_shows_why(view: View) -> None:
    view.uids["ns/a"], view.versions["ns/a"] = "uid-a", 8
    view.assumptions.log(batch(preempt_of()), 2)
    assert view.assumptions.outcome(outcome("rejected", 9)) == []
    assert view.assumptions.preempt_of("ns/a") == preempt_of()
    assert view.assumptions.rejections == {}, "the victim itself may be admitted"
    view.versions["ns/a"] = 9
    [settled] = view.assumptions.seen("ns/a")
    assert (settled.landed, settled.why) == (False, "since")
    assert view.assumptions.spending == 0


def test_a_rejection_since_the_victim_is_gone_waits_for_its_end(view: View) -> None:
    view.uids["ns/a"], view.versions["ns/a"] = "uid-a", 8
    view.assumptions.log(batch(preempt_of()), 2)
    gone = msgspec.structs.replace(outcome("rejected", 0), gone=True)
    assert view.assumptions.outcome(gone) == []
    view.uids["ns/a"] = ""
    assert len(view.assumptions.seen("ns/a")) == 1


def test_a_preemption_before_an_admission_is_about_an_older_state(view: View) -> None:
    view.assumptions.log(batch(preempt_of()), 2)
    view.assumptions.log(batch(admit_of(A)), 3)
    assert view.assumptions.preempt_of("ns/a") is None
    view.assumptions.log(batch(preempt_of(preemptor="ns/q")), 4)
    newest = view.assumptions.preempt_of("ns/a")
    assert newest is not None
    assert newest.preemptor == "ns/q"


def test_a_new_epoch_voids_preemptions(view: View) -> None:
    view.assumptions.log(batch(preempt_of()), 2)
    assert view.assumptions.open_epoch(2, 1) == ["ns/a"]
    assert view.assumptions.preempt_of("ns/a") is None
