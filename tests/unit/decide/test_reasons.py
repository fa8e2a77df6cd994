"""Words for reasons."""

from __future__ import annotations

import pytest

from shared.decide.assignment import Assignment, Attempt, GranularMode, PodSetResult
from shared.decide.reasons import considered_flavors, flavor_reason, message, refusal_of
from shared.model.refusal import FlavorReason, PodSetRefusal, Refusal


@pytest.mark.parametrize(
    ("reason", "parts"),
    [
        (
            FlavorReason("over_max_capacity", "f", "memory", requested=2**31, maximum=2**30),
            ("memory", "flavor f", "2Gi", "1Gi"),
        ),
        (
            FlavorReason("over_max_capacity", "f", "cpu", assumed=500, requested=1500, maximum=1000),
            ("1500m", "500m", "1"),
        ),
        (
            FlavorReason("short_of_unused_quota", "f", "cpu", requested=3000, missing=1500),
            ("3 requested", "1500m more"),
        ),
        (FlavorReason("resource_not_in_cluster_queue", resource="gpu"), ("gpu",)),
        (FlavorReason("untolerated_taint", "f", detail="k=v:NoSchedule"), ("flavor f", "k=v:NoSchedule")),
        (FlavorReason("affinity_mismatch", "f"), ("flavor f", "affinity")),
        (FlavorReason("flavor_missing", "f"), ("flavor f",)),
        (FlavorReason("flavor_topology_only", "f"), ("flavor f", "topology")),
        (FlavorReason("flavor_not_allowed", "f"), ("flavor f",)),
        (FlavorReason("malformed_affinity", "f", detail="operator 'Odd'"), ("flavor f", "operator 'Odd'")),
    ],
)
def test_each_reason_names_its_facts(reason: FlavorReason, parts: tuple[str, ...]) -> None:
    text = flavor_reason(reason)
    assert all(part in text for part in parts)


def test_message_joins_pod_sets_sorted_reasons_and_note() -> None:
    refusal = Refusal(
        "WaitingForQuota",
        (
            PodSetRefusal("one", (FlavorReason("flavor_missing", "z"), FlavorReason("flavor_missing", "a"))),
            PodSetRefusal("two", error="broken"),
        ),
        "nobody to preempt",
    )
    assert message(refusal) == (
        "pod set one: flavor a: no such ResourceFlavor, flavor z: no such ResourceFlavor; "
        "pod set two: broken; nobody to preempt"
    )


def test_only_pod_sets_that_do_not_fit_are_named_once_per_reason() -> None:
    why = FlavorReason("flavor_missing", "f")
    assignment = Assignment(
        (PodSetResult("ok", 1, {}), PodSetResult("bad", 1, {}, reasons=(why, why), failed=True)), {}
    )
    refusal = refusal_of(assignment, "NoMatchingFlavor")
    assert refusal.pod_sets == (PodSetRefusal("bad", (why,)),)


def test_considered_flavors() -> None:
    why = FlavorReason("flavor_missing", "b")
    attempts = (
        Attempt("b", 0, GranularMode.NO_FIT, 0, (why,)),
        Attempt("a", 0, GranularMode.PREEMPT, 1),
        Attempt("c", 0, GranularMode.FIT),
        Attempt("a", 1, GranularMode.FIT, 2),
    )
    result = PodSetResult("main", 1, {}, attempts=attempts)
    plain = PodSetResult("plain", 1, {}, attempts=(Attempt("c", 0, GranularMode.FIT),))
    assert considered_flavors(Assignment((result, plain), {})) == (
        "main: a(preemptionMode=Preempt;borrow=2), b(NoFit;flavor b: no such ResourceFlavor)"
    )
