"""What a change of a Workload was for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.changes import Flags, Purpose, SeenCondition, flags_of, purpose_of

NEW = Flags()
ADMITTED = Flags(reserved=True, admitted=True)
EVICTED = Flags(reserved=True, admitted=True, evicted=True)
RELEASED = Flags(reserved=False, admitted=False, evicted=True)


@pytest.mark.parametrize(
    ("before", "after", "purpose"),
    [
        (None, NEW, "creation"),
        (NEW, Flags(reserved=False), "pending"),
        (NEW, NEW, "pending"),
        (NEW, Flags(reserved=True), "admission"),
        (NEW, ADMITTED, "admission"),
        (Flags(reserved=True, admitted=False), ADMITTED, "admission"),
        (ADMITTED, EVICTED, "eviction"),
        (EVICTED, RELEASED, "release"),
        (RELEASED, Flags(reserved=False, admitted=False, evicted=True, requeued=True), "requeue"),
        # Who is admitted again loses the marks of its eviction in the same write.
        (RELEASED, Flags(reserved=True, admitted=True, evicted=False), "admission"),
        (ADMITTED, Flags(reserved=True, admitted=True, finished=True), "finish"),
        (EVICTED, Flags(reserved=False, admitted=False, evicted=True, finished=True), "finish"),
        (ADMITTED, ADMITTED, "other"),
    ],
)
def test_purposes(before: Flags | None, after: Flags, purpose: Purpose) -> None:
    assert purpose_of(before, after) == purpose


def test_flags_tell_false_from_absent_and_leave_strangers_out() -> None:
    conditions = (
        SeenCondition("QuotaReserved", "True"),
        SeenCondition("Evicted", "False"),
        SeenCondition("PodsReady", "True"),
        SeenCondition("Requeued", "Unknown"),
    )
    assert flags_of(conditions) == Flags(reserved=True, evicted=False, requeued=False)


FLAGS = st.builds(Flags, *(st.sampled_from([None, False, True]) for _ in range(5)))


@given(FLAGS, FLAGS)
def test_what_ends_a_workload_is_never_taken_for_an_admission(before: Flags, after: Flags) -> None:
    purpose = purpose_of(before, after)
    if purpose == "admission":
        assert (after.reserved and not before.reserved) or (after.admitted and not before.admitted)
        assert before.finished or not after.finished
    if purpose == "pending":
        assert not after.reserved


@given(FLAGS)
def test_a_state_that_does_not_move_neither_admits_nor_evicts(flags: Flags) -> None:
    assert purpose_of(flags, flags) in ("pending", "other")
