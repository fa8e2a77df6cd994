"""Words for reasons."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import shared.decide
from shared.decide.assignment import Assignment, Attempt, GranularMode, PodSetError, PodSetResult
from shared.decide.reasons import (
    FLAVOR_WORDS,
    POD_SET_WORDS,
    STOP_WORDS,
    considered_flavors,
    flavor_reason,
    message,
    refusal_of,
    stop,
)
from shared.model.refusal import FlavorReason, PendingReason, PodSetRefusal, Refusal, Stop


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
        (FlavorReason("slice_flavor_pinned", "f", detail="g"), ("flavor f:", "flavor g")),
        (FlavorReason("flavor_without_topology", "f"), ("flavor f", "topology")),
        (FlavorReason("flavor_topology_unknown", "f"), ("flavor f", "Topology")),
        (FlavorReason("level_not_in_flavor", "f", detail="rack"), ("flavor f", "level rack")),
        (FlavorReason("no_placement", "f", detail="{2} of 3 pods"), ("flavor f", "{2} of 3 pods")),
    ],
)
def test_each_reason_names_its_facts(reason: FlavorReason, parts: tuple[str, ...]) -> None:
    text = flavor_reason(reason)
    assert all(part in text for part in parts)


def written_codes(module: str, call: str) -> set[str]:
    """The codes that the engine gives, read from its source: first arguments of `call`."""
    found: set[str] = set()
    for path in sorted((Path(shared.decide.__file__).parent).glob(module)):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == call and node.args:
                first = node.args[0]
                if isinstance(first, ast.Constant):
                    found.add(str(first.value))
    return found


def test_every_code_that_the_engine_gives_has_words() -> None:
    amounts = {"over_max_capacity", "short_of_unused_quota"}
    assert written_codes("*.py", "FlavorReason") == FLAVOR_WORDS.keys() | amounts
    assert written_codes("*.py", "PodSetError") == POD_SET_WORDS.keys()
    assert written_codes("*.py", "Stop") == STOP_WORDS.keys() | {"namespace_mismatch"}


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (Stop("checks_not_passed", ("a", "b")), "admission checks not passed: a, b"),
        (Stop("namespace_mismatch", ("ns", "cq")), "namespace ns does not match the selector of ClusterQueue cq"),
        (Stop("requests_refused", detail="{odd}"), "{odd}"),
        (Stop("preempting", count=1), "preempting 1 workload"),
        (Stop("preempting", count=2), "preempting 2 workloads"),
        (Stop("migrating", count=1), "migrating 1 workload to this flavor"),
    ],
)
def test_what_stops_a_workload_as_a_whole(found: Stop, text: str) -> None:
    assert stop(found) == text
    assert message(Refusal(PendingReason.PENDING_EVALUATION, stop=found)) == text


def test_message_joins_pod_sets_sorted_reasons_and_note() -> None:
    refusal = Refusal(
        "WaitingForQuota",
        (
            PodSetRefusal("one", (FlavorReason("flavor_missing", "z"), FlavorReason("flavor_missing", "a"))),
            PodSetRefusal("two", error="several_topology_flavors_assigned", flavors=("b", "c")),
            PodSetRefusal("three"),
        ),
        Stop("no_candidates"),
    )
    assert message(refusal) == (
        "pod set one: flavor a: no such ResourceFlavor, flavor z: no such ResourceFlavor; "
        "pod set two: more than one of its flavors has a topology: b, c; pod set three: no flavor is left to try; "
        "no workloads can be preempted to make room"
    )


def test_only_pod_sets_that_do_not_fit_are_named_once_per_reason() -> None:
    why = FlavorReason("flavor_missing", "f")
    assignment = Assignment(
        (PodSetResult("ok", 1, {}), PodSetResult("bad", 1, {}, reasons=(why, why), failed=True)), {}
    )
    refusal = refusal_of(assignment, "NoMatchingFlavor")
    assert refusal.pod_sets == (PodSetRefusal("bad", (why,)),)


def test_a_pod_set_that_fails_without_a_reason_or_with_an_error_is_told_too() -> None:
    error = PodSetError("several_topology_flavors_assigned", ("b", "c"))
    assignment = Assignment(
        (PodSetResult("none", 1, {}, failed=True), PodSetResult("topology", 1, {}, error=error)), {}
    )
    assert refusal_of(assignment, "NoMatchingFlavor").pod_sets == (
        PodSetRefusal("none"),
        PodSetRefusal("topology", error="several_topology_flavors_assigned", flavors=("b", "c")),
    )


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
