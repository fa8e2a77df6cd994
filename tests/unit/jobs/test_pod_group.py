"""The rules of groups of pods: which count, which are too many, which are replaced, and when it is over (job specification 14.6 to 14.11)."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.api import names
from shared.jobs.pod_group import (
    IncompleteGroup,
    active,
    check_complete,
    compose,
    copied_labels,
    finished,
    in_order_of_keeping,
    in_order_of_replacement,
    is_suspended,
    ready,
    reclaimable,
    roles,
    same_shape,
    sorted_pods,
    surplus,
    youngest,
)
from shared.jobs.pod_view import (
    TERMINATION_TARGET,
    Pod,
    PodCondition,
    PodStatusView,
    group_name,
    is_active,
    is_forced,
    role,
    total_count,
)
from shared.jobs.podset_info import PermanentError
from tests.unit.jobs.pods import NOW, names_of, pod

replace = msgspec.structs.replace
FAST = {names.POD_GROUP_FAST_ADMISSION: "true"}
SERVING = {names.POD_GROUP_SERVING: "true"}
STUBBORN = {names.RETRIABLE_IN_GROUP: "false"}


def test_the_group_of_a_pod() -> None:
    by_label = pod("p", labels={names.POD_GROUP_NAME: "label"})
    both = pod("p", labels={names.POD_GROUP_NAME: "label"}, annotations={names.POD_GROUP_NAME: "annotation"})
    assert [group_name(p.metadata) for p in (pod("p"), by_label, both)] == ["", "label", "annotation"]


@pytest.mark.parametrize(
    ("text", "expected"), [("3", 3), ("0", None), ("-1", None), ("x", None), ("", None), ("٣", None)]
)
def test_the_count_of_a_group(text: str, expected: int | None) -> None:
    assert total_count(pod("p", total=text).metadata) == expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, True),
        ({"phase": "Succeeded"}, True),
        ({"phase": "Failed"}, False),
        ({"deleted": 1}, True),
        ({"deleted": 1, "node": ""}, False),
    ],
)
def test_which_pods_count(changes: dict[str, Any], expected: bool) -> None:
    assert is_active(pod("p", **changes)) is expected


def test_who_is_kept() -> None:
    found = [
        pod("no-finalizer", age=9, finalizer=False),
        pod("gated", age=9, gated=True),
        pod("young", age=1),
        pod("old", age=9),
    ]
    assert names_of(in_order_of_keeping(found)) == ["old", "young", "gated", "no-finalizer"]


def test_who_is_replaced_first() -> None:
    found = [
        pod("let-go", phase="Failed", failed=1, finalizer=False),
        pod("long-ago", phase="Failed", failed=90),
        pod("lately", phase="Failed", failed=1),
        pod("deleted-long-ago", deleted=95, node=""),
        pod("no-time", phase="Failed"),
    ]
    ordered = names_of(in_order_of_replacement(found, NOW))
    assert ordered == ["no-time", "lately", "long-ago", "deleted-long-ago", "let-go"]


def test_a_group_as_it_should_be() -> None:
    pods = sorted_pods([pod(f"p{n}") for n in range(3)])
    found = compose(pods, {"a": 3}, NOW)
    assert (found.kept, found.excess, found.replaced, found.absent) == (pods, (), (), 0)


def test_a_failed_pod_is_missed_and_kept_until_it_is_replaced() -> None:
    pods = [pod("p0"), pod("p1"), pod("bad", phase="Failed", failed=5)]
    found = compose(sorted_pods(pods), {"a": 3}, NOW)
    assert (len(found.kept), found.replaced, found.absent) == (3, (), 1)
    found = compose(sorted_pods([*pods, pod("new", gated=True)]), {"a": 3}, NOW)
    assert names_of(found.replaced) == ["bad"]
    assert names_of(found.kept) == ["new", "p0", "p1"]
    assert found.absent == 0


def test_pods_of_an_unknown_role_are_not_kept() -> None:
    found = compose((pod("p0"), pod("stranger", role="b")), {"a": 1}, NOW)
    assert names_of(found.kept) == ["p0"]
    assert (found.excess, found.replaced) == ((), ())


def test_of_a_fast_group_only_a_role_without_any_pod_is_missed() -> None:
    assert compose((pod("p0", annotations=FAST),), {"a": 3}, NOW).absent == 0
    assert compose((pod("p0", annotations=FAST, phase="Failed"),), {"a": 3}, NOW).absent == 1


PODS = st.builds(
    pod,
    name=st.integers(0, 10_000).map(lambda n: f"p{n}"),
    age=st.integers(0, 50),
    role=st.sampled_from("abc"),
    phase=st.sampled_from(["Pending", "Running", "Succeeded", "Failed"]),
    gated=st.booleans(),
    finalizer=st.booleans(),
    deleted=st.none() | st.integers(-30, 30),
    node=st.sampled_from(["", "n"]),
    failed=st.none() | st.integers(0, 50),
)
GROUPS = st.lists(PODS, max_size=12, unique_by=lambda one: one.metadata.name)
COUNTS = st.dictionaries(st.sampled_from("abc"), st.integers(0, 5))


@given(GROUPS, COUNTS)
def test_every_pod_of_a_known_role_is_kept_too_many_or_replaced(pods: list[Pod], counts: dict[str, int]) -> None:
    found = compose(sorted_pods(pods), counts, NOW)
    placed = [*found.kept, *found.excess, *found.replaced]
    assert sorted(names_of(placed)) == sorted(p.metadata.name for p in pods if role(p) in counts)
    assert all(map(is_active, found.excess))
    assert not any(map(is_active, found.replaced))
    for name, count in counts.items():
        kept = [p for p in found.kept if role(p) == name]
        running = [p for p in kept if is_active(p)]
        assert len(running) == min(count, sum(is_active(p) for p in pods if role(p) == name))
        # A failed pod stands where nothing has replaced it, and nowhere else.
        assert len(kept) <= max(count, len(running))


@given(GROUPS, COUNTS, st.randoms())
def test_the_order_of_arrival_does_not_matter(pods: list[Pod], counts: dict[str, int], order: random.Random) -> None:
    shuffled = list(pods)
    order.shuffle(shuffled)
    one, other = (compose(sorted_pods(p), counts, NOW) for p in (pods, shuffled))
    assert one == other


@given(GROUPS, COUNTS)
def test_what_was_composed_stays_composed(pods: list[Pod], counts: dict[str, int]) -> None:
    first = compose(sorted_pods(pods), counts, NOW)
    again = compose(first.kept, counts, NOW)
    assert (again.kept, again.excess, again.replaced) == (first.kept, (), ())


def test_roles() -> None:
    pods = sorted_pods([pod("p0", role="b", age=3), pod("p1", role="a"), pod("p2", role="b"), pod("x", phase="Failed")])
    found = {name: (first.metadata.name, count) for name, (first, count) in roles(pods).items()}
    assert found == {"a": ("p1", 1), "b": ("p0", 2)}
    assert list(found) == ["a", "b"]


def test_the_one_role_of_a_fast_group() -> None:
    assert {name: count for name, (_, count) in roles((pod("p0", annotations=FAST),)).items()} == {"a": 3}
    with pytest.raises(IncompleteGroup):
        roles((pod("p0", annotations=FAST, phase="Failed"),))


def test_too_many_roles() -> None:
    assert len(roles([pod(f"p{n}", role=f"{n:02}") for n in range(18)])) == 18
    with pytest.raises(PermanentError, match="at most 18"):
        roles([pod(f"p{n}", role=f"{n:02}") for n in range(19)])


@pytest.mark.parametrize(
    ("pods", "why"),
    [
        ([pod("p0", total="x")], "does not say how many"),
        ([pod("p0", total="2")], "not all 2 pods"),
        ([pod("p0", total="1", labels={names.POD_GROUP_POD_INDEX: "1"})], "not in 0 to 0"),
        ([pod("p0", total="1", labels={names.POD_GROUP_POD_INDEX: "x"})], "not in 0 to 0"),
        ([pod("p0", total="2"), pod("p1", total="2", queue="r")], "another queue"),
        ([pod("p0", total="2"), pod("p1", total="3")], "another total"),
        ([pod("p0", total="2"), pod("p1", total="2", phase="Failed")], "not all 2 pods"),
    ],
)
def test_why_there_is_no_workload(pods: list[Pod], why: str) -> None:
    with pytest.raises(PermanentError, match=why):
        check_complete(pods)


@pytest.mark.parametrize(
    "pods",
    [
        [pod("p0", total="1", labels={names.POD_GROUP_POD_INDEX: "0"})],
        [pod("p0", total="3", annotations=FAST)],
        [pod("p0", total="1"), pod("p1", total="9", queue="r", phase="Failed")],
    ],
)
def test_complete(pods: list[Pod]) -> None:
    check_complete(pods)


def test_surplus_before_there_is_a_workload() -> None:
    pods = sorted_pods([pod("p0", age=9, total="2"), pod("p1", age=8, total="2"), pod("p2", age=7, total="2")])
    assert names_of(surplus(pods)) == ["p2"]
    assert surplus(pods[:2]) == ()


@pytest.mark.parametrize(
    ("wanted", "present", "ended", "expected"),
    [
        ({"a": 1}, [("a", 1)], False, True),
        ({"a": 1}, [("a", 3)], False, True),
        ({"a": 3}, [("a", 1)], False, False),
        ({"a": 3}, [("a", 1)], True, True),
        ({"b": 1}, [("a", 1), ("b", 1)], False, True),
        ({"a": 1, "b": 1}, [("a", 1)], False, False),
        ({"b": 1, "a": 1}, [("a", 1), ("b", 1)], False, False),
        ({"c": 1}, [("a", 1)], True, False),
        ({}, [("a", 1)], False, True),
    ],
)
def test_the_shape_of_a_workload(
    wanted: dict[str, int], present: list[tuple[str, int]], ended: bool, expected: bool
) -> None:
    assert same_shape(wanted, present, finished=ended) is expected


@pytest.mark.parametrize(
    ("pods", "message"),
    [
        ([pod(f"p{n}", phase="Succeeded") for n in range(3)], "Pods succeeded: 3/3."),
        ([pod(f"p{n}", phase="Succeeded") for n in range(2)], None),
        ([pod("p0", phase="Failed", annotations=STUBBORN)], "Pods succeeded: 0/3."),
        ([pod("p0", phase="Failed", annotations=STUBBORN), pod("p1")], None),
        ([pod("p0", phase="Failed"), pod("p1", phase="Succeeded")], None),
        ([pod("p0", phase="Succeeded", total="1", annotations=SERVING)], None),
        ([pod("p0", phase="Succeeded", total="x")], None),
        ([], None),
    ],
)
def test_when_it_is_over(pods: list[Pod], message: str | None) -> None:
    assert finished(pods) == message


def test_suspended_while_a_pod_is_gated_or_has_ended() -> None:
    assert not is_suspended([pod("p0"), pod("p1")])
    assert is_suspended([pod("p0"), pod("p1", gated=True)])
    assert is_suspended([pod("p0"), pod("p1", phase="Succeeded")])


def test_ready_when_all_are_there_and_ready() -> None:
    three = [pod(f"p{n}", ready=True) for n in range(3)]
    assert ready(three)
    assert not ready(three[:2])
    assert not ready([*three[:2], pod("p2")])
    assert not ready([])


@pytest.mark.parametrize(
    ("changes", "slow", "fast"),
    [
        ({}, True, True),
        ({"phase": "Pending"}, False, False),
        ({"phase": "Succeeded"}, False, False),
        ({"deleted": -30}, True, False),
        ({"deleted": 0}, False, False),
        ({"deleted": 5}, False, False),
    ],
)
def test_who_holds_on_to_its_node(changes: dict[str, Any], slow: bool, fast: bool) -> None:
    assert active([pod("p", **changes)], NOW) is slow
    assert active([pod("p", **changes)], NOW, fast_release=True) is fast


def test_what_is_given_back_before_the_end() -> None:
    pods = [pod("p0", phase="Succeeded"), pod("p1", phase="Succeeded"), pod("p2", role="b"), pod("p3", phase="Failed")]
    assert reclaimable(pods) == {"a": 2}
    assert reclaimable([pod("p0", phase="Succeeded", annotations=SERVING)]) == {}


def test_labels_of_all_pods_that_agree() -> None:
    pods = [pod("p0", labels={"team": "blue"}), pod("p1")]
    assert copied_labels(pods, ("team", "other")) == {"team": "blue"}
    with pytest.raises(PermanentError, match="team"):
        copied_labels([*pods, pod("p2", labels={"team": "red"})], ("team",))


def gone(grace: int | None, *, phase: str = "Running", stopped: bool = False) -> Pod:
    """A pod that somebody deletes with this grace period."""
    found = pod("p", deleted=None if grace is None else 0, phase=phase)
    conditions = (PodCondition(type=TERMINATION_TARGET, status="True"),) if stopped else ()
    metadata = replace(found.metadata, deletion_grace_period_seconds=grace)
    return replace(found, metadata=metadata, status=PodStatusView(phase=phase, conditions=conditions))


@pytest.mark.parametrize(
    ("found", "forced", "counts"),
    [
        (gone(0), True, False),
        (gone(0, phase="Succeeded"), True, False),
        (gone(30), False, True),
        (gone(None), False, True),
        (gone(0, stopped=True), False, True),
        (gone(0, phase="Failed", stopped=True), False, False),
    ],
)
def test_a_pod_that_is_deleted_by_force_counts_no_more(found: Pod, forced: bool, counts: bool) -> None:
    assert (is_forced(found), is_active(found)) == (forced, counts)


def test_it_is_missed_and_its_place_is_free() -> None:
    found = compose([gone(0), pod("q")], {"a": 2}, NOW)
    assert (found.absent, names_of(found.excess)) == (1, [])
    found = compose([gone(0), pod("q"), pod("r")], {"a": 2}, NOW)
    assert (found.absent, names_of(found.excess)) == (0, [])


@given(st.lists(st.integers(0, 1000), min_size=1))
def test_the_youngest(ages: list[int]) -> None:
    found = youngest([pod(str(age), age=age) for age in ages])
    assert (NOW - found).total_seconds() == min(ages)


def test_of_no_pods_the_youngest_is_old() -> None:
    assert youngest([]) < NOW
