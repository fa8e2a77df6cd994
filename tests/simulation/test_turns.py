"""What tells the state that a decision was about from the one that it was written on."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shared.events.objects import Workload
from tests.simulation.turns import State, Turns

PENDING: State = (1, False, False)
HOLDS: State = (1, True, False)
EVICTED: State = (1, True, True)


def shown(version: int, incarnation: str) -> Workload:
    return Workload(name="w", uid="u", version=version, incarnation=incarnation)


def test_a_decision_is_about_the_state_that_objects_showed_as_its_incarnation() -> None:
    turns = Turns()
    turns.committed("u", 10, PENDING)
    turns.stored(shown(10, "first"))
    assert turns.is_about("u", "first")
    turns.committed("u", 20, HOLDS)
    assert not turns.is_about("u", "first")
    assert not turns.is_about("u", "never shown")
    assert not turns.is_about("another", "first")
    assert turns.is_about("u", "")


def test_what_changes_nothing_that_matters_is_the_same_state() -> None:
    turns = Turns()
    turns.committed("u", 10, PENDING)
    turns.stored(shown(10, "first"))
    turns.committed("u", 15, PENDING)
    assert turns.is_about("u", "first")


def test_a_late_projection_is_of_the_state_that_it_was_made_of() -> None:
    turns = Turns()
    turns.committed("u", 10, PENDING)
    turns.committed("u", 20, HOLDS)
    turns.stored(shown(12, "first"))
    assert not turns.is_about("u", "first")
    turns.stored(shown(20, "second"))
    assert turns.is_about("u", "second")


def test_a_state_that_came_back_is_another_one_until_it_was_shown() -> None:
    turns = Turns()
    turns.committed("u", 10, PENDING)
    turns.stored(shown(10, "first"))
    turns.committed("u", 20, HOLDS)
    turns.committed("u", 30, PENDING)
    assert not turns.is_about("u", "first")
    turns.stored(shown(30, "first"))
    assert turns.is_about("u", "first")


@given(st.lists(st.sampled_from((PENDING, HOLDS, EVICTED, (2, False, False))), min_size=1), st.data())
def test_only_what_was_shown_since_the_last_change_is_the_present(states: list[State], data: st.DataObject) -> None:
    turns = Turns()
    for version, state in enumerate(states):
        turns.committed("u", version, state)
    last = len(states) - 1
    while last and states[last - 1] == states[-1]:
        last -= 1
    version = data.draw(st.integers(0, len(states) - 1))
    turns.stored(shown(version, "x"))
    assert turns.is_about("u", "x") == (version >= last)
