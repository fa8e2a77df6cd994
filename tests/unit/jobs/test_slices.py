"""Slices of elastic jobs: which one stands for the job, which are over, and which pods may run (job specification 10.7, 16.2)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.jobs.slices import Choice, PodOfSlice, Slice, choose, to_ungate

REPLACED, OUT_OF_SYNC = "WorkloadSliceReplaced", "OutOfSync"


def one(key: str, pods: int, *, reserved: bool = False, evicted: bool = False, replaces: str = "") -> Slice:
    return Slice(key=key, counts={"main": pods}, reserved=reserved, evicted=evicted, replaces=replaces)


@pytest.mark.parametrize(
    ("slices", "pods", "expected"),
    [
        ([], 3, Choice()),
        ([one("a", 3)], 3, Choice(selected="a")),
        ([one("a", 3)], 5, Choice(selected="a", resize=True)),
        ([one("a", 3, reserved=True)], 1, Choice(selected="a", resize=True)),
        ([one("a", 3, reserved=True)], 5, Choice()),
        ([one("a", 3, reserved=True), one("b", 5, replaces="a")], 5, Choice(selected="b")),
        ([one("a", 3, reserved=True), one("b", 5, replaces="a")], 7, Choice(selected="b", resize=True)),
        (
            [one("a", 3, reserved=True), one("b", 5, reserved=True, replaces="a")],
            5,
            Choice(selected="b", finish=(("a", REPLACED),)),
        ),
        (
            [one("a", 3, reserved=True, evicted=True), one("b", 5, replaces="a")],
            5,
            Choice(selected="b", finish=(("a", REPLACED),)),
        ),
        (
            [one("a", 3), one("b", 5, reserved=True)],
            5,
            Choice(selected="b", finish=(("a", OUT_OF_SYNC),)),
        ),
        (
            [one("a", 3, evicted=True), one("b", 5, evicted=True)],
            5,
            Choice(finish=(("a", OUT_OF_SYNC), ("b", OUT_OF_SYNC))),
        ),
    ],
)
def test_which_slice_stands_for_the_job(slices: list[Slice], pods: int, expected: Choice) -> None:
    assert choose(slices, {"main": pods}) == expected


def test_other_pod_sets_are_no_matter_of_slices() -> None:
    assert choose([one("a", 3)], {"main": 3, "more": 1}) == Choice(compatible=False)


SLICES = st.lists(
    st.builds(
        one,
        st.sampled_from("abcdef"),
        st.integers(1, 4),
        reserved=st.booleans(),
        evicted=st.booleans(),
        replaces=st.sampled_from(["", *"abcdef"]),
    ),
    max_size=5,
    unique_by=lambda slice_: slice_.key,
)


@given(SLICES, st.integers(1, 4))
def test_what_stands_for_the_job_is_never_finished_and_at_most_two_stay(slices: list[Slice], pods: int) -> None:
    found = choose(slices, {"main": pods})
    over = {key for key, _ in found.finish}
    assert found.selected not in over
    assert len(slices) - len(over) <= 2
    if found.selected and not found.resize:
        assert next(s for s in slices if s.key == found.selected).counts == {"main": pods}


@given(SLICES, st.integers(1, 4))
def test_after_the_others_are_finished_the_choice_is_the_same(slices: list[Slice], pods: int) -> None:
    first = choose(slices, {"main": pods})
    over = {key for key, _ in first.finish}
    left = [s for s in slices if s.key not in over]
    if first.selected and len(left) > 1:
        again = choose(left, {"main": pods})
        assert (again.selected, again.finish) == (first.selected, ())


PODS = st.lists(
    st.builds(PodOfSlice, st.text("xyz", min_size=1, max_size=4), st.sampled_from("ab"), st.booleans()),
    unique_by=lambda found: found.name,
)


@given(PODS, st.dictionaries(st.sampled_from("ab"), st.integers(0, 5)))
def test_no_more_pods_run_than_were_granted(pods: list[PodOfSlice], counts: dict[str, int]) -> None:
    chosen = set(to_ungate(pods, counts))
    assert chosen <= {p.name for p in pods if p.gated}
    for pod_set in "ab":
        running = sum(not p.gated for p in pods if p.pod_set == pod_set)
        let_go = sum(p.name in chosen for p in pods if p.pod_set == pod_set)
        waiting = sum(p.gated for p in pods if p.pod_set == pod_set)
        assert let_go == min(waiting, max(counts.get(pod_set, 0) - running, 0))


def test_in_the_order_of_their_names() -> None:
    pods = [PodOfSlice(name, "main", True) for name in ("c", "a", "b")]
    assert to_ungate(pods, {"main": 2}) == ("a", "b")
