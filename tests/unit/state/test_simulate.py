"""The engine run on objects alone."""

from __future__ import annotations

from cli.simulate import lines, read_dump
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
    told = list(lines(result, dump.problems))
    assert told[:2] == [
        "preempt  ns/low in cq for ns/high (InClusterQueue)",
        "admit    ns/high to cq (main: cpu=default)",
    ]
    assert "WaitingForQuota" in told[2]


def test_what_cannot_be_used_is_told_and_the_rest_goes_on() -> None:
    dump = read_dump(QUEUES + job("bad", "many") + job("good", "1"))
    result = simulate(dump.objects, 1_800_000_000)
    assert [one.key for one in result.decisions] == ["ns/good"]
    assert any("bad" in line for line in lines(result, dump.problems))


def test_documents_and_unknown_kinds() -> None:
    dump = read_dump("kind: Secret\nmetadata: {name: s}\n---\nkind: ResourceFlavor\nmetadata: {name: default}\n")
    assert [one.name for one in dump.objects] == ["default"]
