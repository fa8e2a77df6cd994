"""Families of workloads that differ only in amounts: bounds, parking as one, and who comes later."""

from __future__ import annotations

from shared.model.pending_groups import Family, Item
from shared.model.pending_queue import PendingQueue, family_key
from shared.model.workload import ConditionInfo, PodSetInfo, WorkloadInfo


def waiting(name: str, cpu: int, created: int = 0, **fields: object) -> Item:
    values: dict[str, object] = {
        "shape": f"s{cpu}",
        "family": "f",
        "pod_sets": (PodSetInfo(name="main", count=1, requests={"cpu": cpu}),),
        **fields,
    }
    info = WorkloadInfo(namespace="ns", name=name, key=f"ns/{name}", created=created, **values)  # type: ignore[arg-type]
    return Item((-info.priority, float(created), "", info.key), info)


def line(*items: Item) -> PendingQueue:
    queue = PendingQueue("cq")
    for item in items:
        queue.push(item)
    return queue


def family_of(queue: PendingQueue, item: Item) -> Family:
    family = queue.leading_family(item.info)
    assert family is not None
    return family


def test_bounds_follow_what_comes_and_goes() -> None:
    first, small, large = waiting("a", 5, 1), waiting("b", 2, 2), waiting("c", 9, 3)
    queue = line(first, small, large)
    family = family_of(queue, first)
    assert family.bounds() == ({"cpu": 2}, {"cpu": 9})
    queue.discard("ns/b")
    assert family.bounds() == ({"cpu": 5}, {"cpu": 9})
    queue.push(waiting("d", 1, 4))
    queue.discard("ns/c")
    assert family.bounds() == ({"cpu": 1}, {"cpu": 5})


def test_a_family_leads_only_where_all_next_turns_are_its() -> None:
    one, other = waiting("a", 1, 1), waiting("b", 2, 2)
    queue = line(one, other)
    assert queue.leading_family(one.info) is not None
    queue.push(waiting("low", 3, 0, priority=-1))
    assert queue.leading_family(one.info) is not None
    queue.push(waiting("equal", 3, 9, family="g"))
    assert queue.leading_family(one.info) is None


def test_who_comes_after_a_parked_family_is_looked_at() -> None:
    one, other = waiting("a", 1, 1), waiting("b", 2, 2)
    queue = line(one, other)
    queue.park_family(family_of(queue, one), "WaitingForQuota")
    assert not queue.has_head()
    assert sorted(queue.inadmissible) == ["ns/a", "ns/b"]
    assert queue.parked_reason("ns/a") == "WaitingForQuota"
    assert queue.is_hopeless_shape("s1")
    assert not queue.is_hopeless_shape("s3")
    queue.push(waiting("c", 3, 3))
    assert list(queue.heap) == ["ns/c"]
    assert queue.retry(0.0, lambda namespace: True) == 2
    assert [queue.pop().key for _ in range(3)] == ["ns/a", "ns/b", "ns/c"]  # type: ignore[union-attr]


def test_groups_of_one_shape_are_merged_when_a_family_wakes() -> None:
    one = waiting("a", 1, 1)
    queue = line(one, waiting("b", 2, 2))
    queue.park_family(family_of(queue, one), "WaitingForQuota")
    queue.push(waiting("late", 1, 0))
    queue.retry(0.0, lambda namespace: True)
    assert sorted(queue.heap) == ["ns/a", "ns/b", "ns/late"]
    queue.park_shape("s1", "WaitingForQuota")
    assert list(queue.heap) == ["ns/b"]
    for key in ("ns/a", "ns/late", "ns/b"):
        assert queue.discard(key)
    assert len(queue) == 0
    assert not queue.has_head()


def test_namespaces_that_do_not_match_stay_parked() -> None:
    one = waiting("a", 1, 1)
    queue = line(one, waiting("b", 2, 2))
    queue.park_family(family_of(queue, one), "WaitingForQuota")
    queue.retry(0.0, lambda namespace: False)
    assert sorted(queue.inadmissible) == ["ns/a", "ns/b"]
    queue.retry(0.0, lambda namespace: True)
    assert sorted(queue.heap) == ["ns/a", "ns/b"]


def test_only_plain_workloads_have_a_family() -> None:
    assert family_key(waiting("a", 1).info) == "f|0"
    assert family_key(waiting("a", 1, priority=3).info) == "f|3"
    two = (PodSetInfo(name="x", count=1, requests={}), PodSetInfo(name="y", count=1, requests={}))
    for fields in (
        {"family": ""},
        {"checks": (("c", "Retry"),)},
        {"invalid": "bad"},
        {"replaces": "ns/old"},
        {"parent_uid": "p"},
        {"requeue_at": 5},
        {"pod_sets": two},
        {"conditions": (ConditionInfo("Requeued", False),)},
    ):
        assert family_key(waiting("a", 1, **fields).info) == ""
    assert family_key(waiting("a", 1, conditions=(ConditionInfo("Requeued", True),)).info) == "f|0"
