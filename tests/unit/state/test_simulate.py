"""The engine run on objects alone."""

from __future__ import annotations

import pytest

from cli.cluster_dump import read_dump
from shared.decide.cycle import Admit, Preempt
from shared.state.simulate import simulate

QUEUES = """
apiVersion: v1
kind: List
items:
- {kind: ResourceFlavor, metadata: {name: default}}
- kind: ClusterQueue
  metadata: {name: cq}
  spec:
    namespaceSelector: {}
    preemption: {withinClusterQueue: LowerPriority}
    resourceGroups:
    - coveredResources: [cpu]
      flavors: [{name: default, resources: [{name: cpu, nominalQuota: 3}]}]
- {kind: LocalQueue, metadata: {name: lq, namespace: ns}, spec: {clusterQueue: cq}}
"""
HELD = """
  status:
    conditions:
    - {type: QuotaReserved, status: "True", reason: QuotaReserved, message: "", lastTransitionTime: "2026-01-01T00:00:00Z"}
    admission:
      clusterQueue: cq
      podSetAssignments: [{name: main, count: 1, flavors: {cpu: default}, resourceUsage: {cpu: 2}}]
"""


def job(name: str, cpu: str, priority: int = 0, status: str = "") -> str:
    return f"""
- kind: Workload
  metadata: {{name: {name}, namespace: ns}}
  spec:
    queueName: lq
    priority: {priority}
    podSets:
    - {{name: main, count: 1, template: {{spec: {{containers: [{{name: c, image: i, resources: {{requests: {{cpu: {cpu}}}}}}}]}}}}}}
{status}"""


def test_a_victim_gives_way_and_says_why_it_waits() -> None:
    dump = read_dump(QUEUES + job("low", "2", status=HELD) + job("high", "3", 9))
    result = simulate(dump.objects, 1_800_000_000)
    assert [(type(one), one.key) for one in result.decisions] == [(Preempt, "ns/low"), (Admit, "ns/high")]
    assert result.settled
    assert [entry.key for entry in result.refused] == ["ns/low"]
    assert [entry.refusal.reason for entry in result.refused] == ["WaitingForQuota"]
    assert result.held == ()


def test_what_cannot_be_used_is_told_and_the_rest_goes_on() -> None:
    dump = read_dump(QUEUES + job("bad", "many") + job("good", "1"))
    result = simulate(dump.objects, 1_800_000_000)
    assert [one.key for one in result.decisions] == ["ns/good"]
    assert any("bad" in why for why in (*result.faults, *dump.problems))


@pytest.mark.parametrize(
    ("old", "new", "reason", "part"),
    [
        ("namespaceSelector: {}", "namespaceSelector: {}\n    stopPolicy: Hold", "Suspended", "cq is inactive"),
        ("spec: {clusterQueue: cq}", "spec: {clusterQueue: cq, stopPolicy: Hold}", "Suspended", "LocalQueue lq"),
        ("spec: {clusterQueue: cq}", "spec: {clusterQueue: none}", "Misconfigured", "none does not exist"),
        ("queueName: lq", "queueName: other", "Misconfigured", "other does not exist"),
        ("queueName: lq", "queueName: lq\n    active: false", "Deactivated", "deactivated"),
        (
            "name: a, namespace: ns",
            "name: a, namespace: ns, annotations: {kueue.x-k8s.io/admission-gated-by: g}",
            "AdmissionGated",
            "gated",
        ),
        ("{name: default}}", "{name: another}}", "Suspended", "default"),
    ],
)
def test_what_is_not_even_tried_says_why(old: str, new: str, reason: str, part: str) -> None:
    text = QUEUES + job("a", "1")
    assert old in text
    result = simulate(read_dump(text.replace(old, new, 1)).objects, 1_800_000_000)
    assert result.decisions == ()
    assert result.passed_over == ()
    assert [(one.key, one.reason) for one in result.held] == [("ns/a", reason)]
    assert part in result.held[0].message


def test_a_backoff_that_runs_is_told_and_one_that_is_over_does_not_matter() -> None:
    waits = """
  status:
    requeueState: {count: 1, requeueAt: "2027-01-15T08:00:00Z"}
    conditions:
    - {type: QuotaReserved, status: "False", reason: PendingEvaluation, message: "", lastTransitionTime: "2026-01-01T00:00:00Z"}
"""
    objects = read_dump(QUEUES + job("a", "1", status=waits)).objects
    result = simulate(objects, 1_799_999_999)
    assert [(one.reason, one.message) for one in result.held] == [
        ("PendingEvaluation", "not before 2027-01-15T08:00:00Z")
    ]
    assert [one.key for one in simulate(objects, 1_800_000_000).decisions] == ["ns/a"]


def test_an_eviction_that_ends_by_hand_is_told() -> None:
    waits = """
  status:
    conditions:
    - {type: Requeued, status: "False", reason: Deactivated, message: "", lastTransitionTime: "2026-01-01T00:00:00Z"}
"""
    result = simulate(read_dump(QUEUES + job("a", "1", status=waits)).objects, 1_800_000_000)
    assert [one.message for one in result.held] == ["not queued again yet: Deactivated"]


def test_others_like_a_refused_one_are_passed_over() -> None:
    text = QUEUES + job("big", "3") + "".join(job(f"like-{n}", "1") for n in range(3))
    result = simulate(read_dump(text).objects, 1_800_000_000)
    assert [one.key for one in result.decisions] == ["ns/big"]
    assert len(result.refused) + len(result.passed_over) == 3
    assert result.held == ()
