"""The search for flavors: the table of choices, mismatching nodes, groups, units, levels."""

from __future__ import annotations

from typing import Any

import pytest

from shared.decide.assignment import Assignment, Grade, GranularMode, Mode, preferred
from shared.decide.flavors import SearchSettings, assign
from shared.events import objects as o
from shared.model.cluster_queue import Fungibility
from shared.model.pending import ScanProgress
from shared.model.world import World
from tests.unit.model.builders import cohort, flavor, group, info, pod_set, queue, workload, world

N, C, P, R, F = (
    GranularMode.NO_FIT,
    GranularMode.NO_PREEMPTION_CANDIDATES,
    GranularMode.PREEMPT,
    GranularMode.RECLAIM,
    GranularMode.FIT,
)


class Told:
    """An oracle that answers by flavor."""

    def __init__(self, built: World, **grades: Grade) -> None:
        self.built = built
        self.grades = grades

    def simulate(self, index: int, amount: int, level: int) -> Grade:
        return self.grades[self.built.interned.pair(index)[0]]


def search(built: World, source: o.Workload, name: str = "cq", **options: Any) -> Assignment:
    return assign(info(source), built.cluster_queues[name], built.forest, built.flavors, **options)


def two_flavors(spot: tuple[GranularMode, int], od: tuple[GranularMode, int], **policies: str) -> tuple[World, Told]:
    """A queue with flavors spot and od in which a request of 4 gets these grades."""
    quotas, used, lender = {}, {}, {}
    for name, (mode, level) in (("spot", spot), ("od", od)):
        # Level 1 by borrowing from a cohort; full usage where preemption is asked; 1 where it can never fit.
        quotas[name] = {N: "cpu=1", F: "cpu=4" if level == 0 else "cpu=0"}.get(mode, "cpu=4")
        used[name] = 4000 if mode not in (N, F) else 0
        lender[name] = "cpu=4" if mode is F and level else "cpu=0"
    built = world(
        flavor("spot"),
        flavor("od"),
        queue("cq", group(**quotas), cohort="pool", **policies),
        queue("lender", group(**lender), cohort="pool"),
    )
    for name, amount in used.items():
        built.forest.add_usage("cq", {built.interned.index(name, "cpu"): amount})
    return built, Told(built, spot=Grade(*spot), od=Grade(*od))


MAY, TRY, POB = "MayStopSearch", "TryNextFlavor", "PreemptionOverBorrowing"


@pytest.mark.parametrize(
    ("spot", "od", "borrow", "preempt", "preference", "chosen", "tried"),
    [
        ((F, 1), (F, 0), MAY, TRY, "", "spot", 0),
        ((F, 1), (F, 0), TRY, TRY, "", "od", -1),
        ((P, 0), (F, 0), MAY, TRY, "", "od", -1),
        ((P, 0), (F, 0), MAY, MAY, "", "spot", 0),
        ((P, 0), (F, 0), TRY, MAY, "", "spot", 0),
        ((P, 0), (F, 1), TRY, TRY, "BorrowingOverPreemption", "od", -1),
        ((P, 0), (F, 1), TRY, TRY, POB, "spot", -1),
        ((P, 0), (P, 0), MAY, TRY, "", "spot", -1),
        ((C, 0), (N, 0), MAY, MAY, "", "spot", -1),
        ((C, 0), (P, 1), TRY, TRY, POB, "od", -1),
        ((R, 0), (P, 0), MAY, TRY, "", "spot", -1),
        ((N, 0), (N, 0), MAY, TRY, "", None, None),
    ],
)
def test_table_of_choices(
    spot: tuple[GranularMode, int],
    od: tuple[GranularMode, int],
    borrow: str,
    preempt: str,
    preference: str,
    chosen: str | None,
    tried: int | None,
) -> None:
    built, told = two_flavors(
        spot, od, when_can_borrow=borrow, when_can_preempt=preempt, fungibility_preference=preference
    )
    found = search(built, workload("a", cpu="4"), oracle=told)
    choice = found.pod_sets[0].flavors.get("cpu")
    assert (choice.flavor if choice else None, choice.tried if choice else None) == (chosen, tried)
    assert found.progress is not None
    assert found.progress.flavors_left() is (tried == 0)
    if chosen is None:
        assert (found.mode, found.usage) == (Mode.NO_FIT, {})
        assert found.refusal() in ("ExceedsMaxQuota", "WaitingForQuota")


def test_the_search_resumes_behind_the_last_flavor_tried() -> None:
    built, told = two_flavors((F, 0), (F, 0))
    source = workload("a", cpu="4")
    assert search(built, source, oracle=told).pod_sets[0].flavors["cpu"].flavor == "spot"
    resumed = search(built, source, oracle=told, progress=ScanProgress(((("cpu", 0),),)))
    assert resumed.pod_sets[0].flavors["cpu"].flavor == "od"
    again = search(built, source, oracle=told, progress=ScanProgress(((("cpu", -1),),)))
    assert again.pod_sets[0].flavors["cpu"].flavor == "spot"
    ignoring = SearchSettings(flavor_fungibility=False)
    off = search(built, source, oracle=told, progress=ScanProgress(((("cpu", 0),),)), settings=ignoring)
    assert off.pod_sets[0].flavors["cpu"].flavor == "spot"


@pytest.mark.parametrize(
    ("left", "right", "by_level", "better"),
    [
        (Grade(F, 2), Grade(P, 0), False, True),
        (Grade(F, 2), Grade(P, 0), True, False),
        (Grade(P, 1), Grade(P, 0), False, False),
        (Grade(P, 0), Grade(P, 1), False, True),
        (Grade(C, 0), Grade(P, 5), True, False),
        (Grade(N), Grade(N), False, False),
        (Grade(C, 0), Grade(N), False, True),
        (Grade(C, 1), Grade(C, 0), False, False),
        (Grade(F, 0), Grade(F, 0), True, False),
    ],
)
def test_preference(left: Grade, right: Grade, by_level: bool, better: bool) -> None:
    assert preferred(left, right, Fungibility(preemption_over_borrowing=by_level)) is better


@pytest.mark.parametrize(
    ("first", "pods", "code"),
    [
        (flavor("f", node_taints=(o.Taint("k", "v", "NoSchedule"),)), {}, "untolerated_taint"),
        (flavor("f", node_labels={"zone": "a"}), {"node_selector": {"zone": "b"}}, "affinity_mismatch"),
        (flavor("f", topology="racks"), {}, "flavor_topology_only"),
        (None, {}, "flavor_missing"),
    ],
)
def test_flavors_whose_nodes_do_not_suit_are_passed_over(
    first: o.ResourceFlavor | None, pods: dict[str, Any], code: str
) -> None:
    built = world(flavor("g"), queue("cq", group(f="cpu=9", g="cpu=9")), *([first] if first else []))
    source = workload("a", pod_sets=(pod_set(requests={"cpu": "1"}, **pods),))
    found = search(built, source)
    assert found.pod_sets[0].flavors["cpu"].flavor == "g"
    assert [attempt.reasons[0].code if attempt.reasons else "" for attempt in found.pod_sets[0].attempts] == [code, ""]
    assert found.pod_sets[0].reasons == ()
    alone = world(queue("cq", group(f="cpu=9")), *([first] if first else []))
    if code != "flavor_topology_only":
        refused = search(alone, source)
        assert (refused.mode, refused.refusal()) == (Mode.NO_FIT, "NoMatchingFlavor")
        assert [reason.code for reason in refused.pod_sets[0].reasons] == [code]


def test_an_affinity_that_cannot_be_read_fails_the_pod_set_whatever_other_flavors_there_are() -> None:
    odd: dict[str, Any] = {"affinity_terms": ((o.Requirement("zone", "Odd", ("?",)),),)}
    flavors = flavor("f", node_labels={"zone": "a"}), flavor("g")
    source = workload("a", pod_sets=(pod_set(requests={"cpu": "1"}, **odd), pod_set("later", requests={"cpu": "1"})))
    found = search(world(*flavors, queue("cq", group(f="cpu=9", g="cpu=9"))), source)
    assert (found.mode, found.refusal()) == (Mode.NO_FIT, "NoMatchingFlavor")
    assert [pod_set.name for pod_set in found.pod_sets] == ["main"]
    assert [reason.code for reason in found.pod_sets[0].reasons] == ["malformed_affinity"]
    # Where no flavor has the key, nobody looks at it.
    assert search(world(*flavors, queue("cq", group(g="cpu=9"))), source).mode is Mode.FIT


def test_tolerations_of_pod_or_flavor_open_a_tainted_flavor() -> None:
    taint, toleration = (o.Taint("k", "v", "NoSchedule"),), (o.Toleration("k", "Exists"),)
    built = world(flavor("f", node_taints=taint), queue("cq", group(f="cpu=9")))
    assert (
        search(built, workload("a", pod_sets=(pod_set(requests={"cpu": "1"}, tolerations=toleration),))).mode
        is Mode.FIT
    )
    built = world(flavor("f", node_taints=taint, tolerations=toleration), queue("cq", group(f="cpu=9")))
    assert search(built, workload("a")).mode is Mode.FIT


def test_groups_choose_apart_but_resources_of_a_group_share_a_flavor() -> None:
    built = world(
        flavor("small"),
        flavor("large"),
        flavor("gpus"),
        queue("cq", group(small=("cpu=8", "memory=1"), large=("cpu=8", "memory=64")), group(gpus="gpu=4")),
    )
    source = workload("a", pod_sets=(pod_set(requests={"cpu": "1", "memory": "32", "gpu": "2"}),))
    flavors = search(built, source).admission("cq").pod_sets[0].flavors
    assert flavors == {"cpu": "large", "memory": "large", "gpu": "gpus"}


def test_pod_sets_add_up_and_may_differ_in_flavor() -> None:
    built = world(flavor("a"), flavor("b"), queue("cq", group(a="cpu=3", b="cpu=3")))
    pods = tuple(pod_set(name, requests={"cpu": "2"}) for name in ("one", "two"))
    found = search(built, workload("w", pod_sets=pods))
    assert [result.flavors["cpu"].flavor for result in found.pod_sets] == ["a", "b"]
    assert found.pod_sets[1].attempts[0].reasons[0].assumed == 2000
    together = tuple(pod_set(name, requests={"cpu": "2"}, topology={"podSetGroupName": "g"}) for name in ("one", "two"))
    refused = search(built, workload("w", pod_sets=together))
    assert (refused.mode, refused.refusal()) == (Mode.NO_FIT, "ExceedsMaxQuota")


def test_assignment_stops_at_the_first_pod_set_that_fails() -> None:
    built = world(queue("cq", group(default="cpu=3")))
    pods = tuple(pod_set(name, requests={"cpu": cpu}) for name, cpu in (("one", "1"), ("two", "9"), ("three", "1")))
    found = search(built, workload("w", pod_sets=pods))
    assert [result.mode for result in found.pod_sets] == [Mode.FIT, Mode.NO_FIT]


@pytest.mark.parametrize(
    ("requests", "settings", "mode"),
    [
        ({"gpu": "1"}, SearchSettings(), Mode.NO_FIT),
        ({"gpu": "0"}, SearchSettings(), Mode.FIT),
        ({"gpu": "1"}, SearchSettings(ignore_undeclared=True), Mode.FIT),
        ({}, SearchSettings(), Mode.FIT),
    ],
)
def test_resources_that_no_group_covers(requests: dict[str, str], settings: SearchSettings, mode: Mode) -> None:
    built = world(queue("cq", group(default="cpu=3")))
    found = search(built, workload("w", pod_sets=(pod_set(requests=requests),)), settings=settings)
    assert found.mode is mode
    assert found.admission("cq").pod_sets[0].flavors == {}
    if mode is Mode.NO_FIT:
        assert found.refusal() == "NoMatchingFlavor"


def test_pods_are_counted_where_there_is_quota_for_them() -> None:
    built = world(queue("cq", group(default=("cpu=9", "pods=3"))))
    three = workload("w", pod_sets=(pod_set(count=3, requests={"cpu": "1"}),))
    assert search(built, three).admission("cq").pod_sets[0].usage == {"cpu": 3000, "pods": 3}
    four = workload("w", pod_sets=(pod_set(count=4, requests={"cpu": "1"}),))
    assert search(built, four).mode is Mode.NO_FIT


@pytest.mark.parametrize(
    ("cpu", "used", "mode", "level", "reason"),
    [
        ("4", 0, Mode.FIT, 0, None),
        ("6", 0, Mode.FIT, 1, None),
        ("7", 0, Mode.NO_FIT, 0, "over_max_capacity"),
        ("4", 2000, Mode.FIT, 1, None),
        ("4", 4000, Mode.PREEMPT, 1, "short_of_unused_quota"),
        ("5", 4000, Mode.NO_FIT, 0, "short_of_unused_quota"),
    ],
)
def test_quota_modes(cpu: str, used: int, mode: Mode, level: int, reason: str | None) -> None:
    """Nominal 4, at most 2 borrowed, 4 lent by a sibling."""
    built = world(
        queue("cq", group(default="cpu=4,borrow=2"), cohort="pool"), queue("sib", group(default="cpu=4"), cohort="pool")
    )
    built.forest.add_usage("cq", {built.interned.index("default", "cpu"): used})
    found = search(built, workload("w", cpu=cpu))
    assert (found.mode, found.level) == (mode, level)
    assert [one.code for one in found.pod_sets[0].reasons] == ([reason] if reason else [])


def test_the_level_is_the_height_of_the_smallest_cohort_with_room() -> None:
    built = world(
        cohort("top", "", group(default="cpu=9")),
        cohort("mid", "top"),
        queue("cq", group(default="cpu=1"), cohort="mid"),
        queue("sib", group(default="cpu=2"), cohort="mid"),
    )
    assert [search(built, workload("w", cpu=cpu)).level for cpu in ("1", "3", "4")] == [0, 1, 2]


def test_variants_only_try_their_flavors() -> None:
    built = world(flavor("a"), flavor("b"), queue("cq", group(a="cpu=9", b="cpu=9")))
    source = workload("w", annotations={"kueue.x-k8s.io/workload-allowed-resource-flavors": "b"})
    on = SearchSettings(concurrent_admission=True)
    assert search(built, source).pod_sets[0].flavors["cpu"].flavor == "a"
    assert search(built, source, settings=on).pod_sets[0].flavors["cpu"].flavor == "b"
