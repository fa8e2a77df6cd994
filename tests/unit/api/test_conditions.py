from datetime import UTC, datetime, timedelta

import pytest

from shared.api.conditions import (
    MAX_MESSAGE_BYTES,
    MAX_NOTE_BYTES,
    Condition,
    Conditions,
    cut,
    find,
    is_false,
    is_true,
    make,
    remove,
    set_condition,
)

T0 = datetime(2026, 1, 2, 3, 4, 5, 600_000, tzinfo=UTC)
LATER = T0 + timedelta(minutes=5)


def admitted(status: bool, reason: str = "R", message: str = "m", now: datetime = T0, generation: int = 0) -> Condition:
    return make("Admitted", status, reason, message, now=now, observed_generation=generation)


def test_make_cuts_the_time_to_seconds() -> None:
    assert admitted(True).last_transition_time == T0.replace(microsecond=0)


def test_a_new_type_is_appended() -> None:
    other = make("Active", True, "Ready", "", now=T0)
    assert set_condition((other,), admitted(True)) == (other, admitted(True))


def test_the_time_moves_only_with_the_status() -> None:
    before = set_condition((), admitted(False, "NoReservation", "first", T0, 1))
    same = set_condition(before, admitted(False, "UnsatisfiedAdmissionChecks", "second", LATER, 2))
    (condition,) = same
    assert condition.last_transition_time == T0.replace(microsecond=0)
    assert (condition.reason, condition.message, condition.observed_generation) == (
        "UnsatisfiedAdmissionChecks",
        "second",
        2,
    )
    (flipped,) = set_condition(same, admitted(True, "Admitted", "", LATER, 2))
    assert flipped.last_transition_time == LATER.replace(microsecond=0)


def test_neighbours_and_order_stay() -> None:
    conditions: Conditions = (
        make("A", True, "R", "", now=T0),
        make("B", True, "R", "", now=T0),
        make("C", True, "R", "", now=T0),
    )
    changed = set_condition(conditions, make("B", False, "S", "", now=LATER))
    assert [condition.type for condition in changed] == ["A", "B", "C"]
    assert changed[0] is conditions[0]
    assert changed[2] is conditions[2]
    assert is_false(changed, "B")


def test_writing_the_same_again_changes_nothing() -> None:
    once = set_condition((), admitted(True))
    assert set_condition(once, admitted(True, now=LATER)) == once


def test_reading() -> None:
    conditions = (admitted(True), make("Evicted", False, "QuotaReserved", "", now=T0))
    assert is_true(conditions, "Admitted")
    assert not is_false(conditions, "Admitted")
    assert is_false(conditions, "Evicted")
    assert not is_true(conditions, "Evicted")
    assert not is_true(conditions, "Missing")
    assert not is_false(conditions, "Missing")
    assert find(conditions, "Missing") is None
    assert find(conditions, "Evicted") is conditions[1]


def test_unknown_is_neither() -> None:
    unknown = (
        Condition(
            type="Active", status="Unknown", reason="R", message="", last_transition_time=T0.replace(microsecond=0)
        ),
    )
    assert not is_true(unknown, "Active")
    assert not is_false(unknown, "Active")


def test_remove() -> None:
    conditions = (admitted(True), make("Evicted", False, "QuotaReserved", "", now=T0))
    assert remove(conditions, "Admitted") == conditions[1:]
    assert remove(conditions, "Missing") == conditions


@pytest.mark.parametrize("limit", [MAX_MESSAGE_BYTES, MAX_NOTE_BYTES])
def test_cut_has_exactly_the_limit(limit: int) -> None:
    assert cut("x" * limit, limit) == "x" * limit
    long = cut("x" * (limit + 1), limit)
    assert len(long) == limit
    assert long.endswith("x ...")


def test_cut_counts_bytes_and_splits_no_character() -> None:
    text = cut("é" * 1000, 101)
    assert len(text.encode()) <= 101
    assert text.endswith("é ...")


def test_messages_are_cut_whoever_made_the_condition() -> None:
    long = Condition(
        type="A", status="True", reason="R", message="y" * 40_000, last_transition_time=T0.replace(microsecond=0)
    )
    (written,) = set_condition((), long)
    assert len(written.message) == MAX_MESSAGE_BYTES
    assert len(admitted(True, message="y" * 40_000).message) == MAX_MESSAGE_BYTES
