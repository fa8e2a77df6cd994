"""Second looks: who needs one, when it is due, and that needs are judged again."""

from __future__ import annotations

import msgspec
import pytest

from shared.model.second_pass import LONGEST_DELAY_S, SecondPasses, delay, needs_second_pass
from shared.model.workload import Admission, ConditionInfo, PodSetAssignment, WorkloadInfo


def delayed(name: str = "w", **fields: object) -> WorkloadInfo:
    held = PodSetAssignment(name="main", count=1, flavors={"cpu": "f"}, usage={"cpu": 1}, delayed_topology=True)
    made = WorkloadInfo(
        namespace="ns",
        name=name,
        key=f"ns/{name}",
        checks=(("prov", "Ready"),),
        admission=Admission("cq", (held,)),
    )
    return msgspec.structs.replace(made, **fields)


@pytest.mark.parametrize(
    ("info", "needed"),
    [
        (delayed(), True),
        (delayed(checks=()), False),
        (delayed(checks=(("prov", "Ready"), ("other", "Pending"))), False),
        (delayed(admission=None), False),
        (delayed(finished=True), False),
        (delayed(admission=Admission("cq", (PodSetAssignment(name="main", count=1, flavors={}, usage={}),))), False),
        (delayed(conditions=(ConditionInfo("Evicted", True),)), False),
        (delayed(conditions=(ConditionInfo("Evicted", False),)), True),
        (delayed(conditions=(ConditionInfo("Admitted", True),)), False),
        (delayed(conditions=(ConditionInfo("QuotaReserved", False, "OnHold"),)), False),
    ],
)
def test_who_needs_a_second_pass(info: WorkloadInfo, needed: bool) -> None:
    assert needs_second_pass(info) is needed


@pytest.mark.parametrize(("attempt", "seconds"), [(0, 1), (1, 1), (2, 2), (3, 4), (5, 16), (6, 30), (1000, 30)])
def test_the_wait_doubles_up_to_a_bound(attempt: int, seconds: int) -> None:
    assert delay(attempt) == seconds
    assert seconds <= LONGEST_DELAY_S


def test_requests_come_due_in_order_and_once() -> None:
    passes = SecondPasses()
    known = {one.key: one for one in (delayed("a"), delayed("b"))}
    assert passes.request(known["ns/a"], 2, 100.0)
    assert passes.request(known["ns/b"], 1, 100.0)
    assert not passes.request(known["ns/a"], 1, 100.0)
    assert passes.next_due() == 101.0
    assert passes.ready(100.5, known.get) == []
    assert [one.key for one in passes.ready(102.0, known.get)] == ["ns/b", "ns/a"]
    assert passes.next_due() is None
    assert passes.ready(200.0, known.get) == []


def test_a_need_that_went_is_dropped() -> None:
    passes = SecondPasses()
    passes.request(delayed("a"), 1, 0.0)
    passes.request(delayed("b"), 1, 0.0)
    passes.request(delayed("c"), 1, 0.0)
    passes.cancel("ns/b")
    assert not passes.request(delayed("c", finished=True), 1, 0.0)
    gone = {"ns/a": delayed("a", checks=())}
    assert passes.ready(5.0, gone.get) == []
    assert passes.next_due() is None
