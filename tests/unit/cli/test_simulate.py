"""`sluice simulate`: the command as it is called."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import typer
from typer.testing import CliRunner

from cli.simulate import Answer, simulate_command
from tests.unit.state.test_simulate import HELD, QUEUES, job

app = typer.Typer()
app.command()(simulate_command)


def run(text: str, tmp_path: Path, *options: str, code: int = 0) -> str:
    file = tmp_path / "state.yaml"
    file.write_text(text)
    result = CliRunner().invoke(app, [str(file), *options])
    assert result.exit_code == code, result.output
    return result.output


def as_json(text: str, tmp_path: Path, *options: str) -> Answer:
    return msgspec.json.decode(run(text, tmp_path, "-o", "json", *options), type=Answer)


def test_tables_of_decisions_reasons_and_amounts(tmp_path: Path) -> None:
    told = run(QUEUES + job("low", "2", status=HELD) + job("high", "3", 9), tmp_path).splitlines()
    cells = [line.split() for line in told]
    assert cells[:3] == [
        ["DECISION", "WORKLOAD", "CLUSTERQUEUE", "DETAIL"],
        ["preempt", "ns/low", "cq", "for", "ns/high", "(InClusterQueue)"],
        ["admit", "ns/high", "cq", "main", "x1:", "cpu=default"],
    ]
    assert cells[4] == ["WAITING", "CLUSTERQUEUE", "REASON", "MESSAGE"]
    assert cells[5][:3] == ["ns/low", "cq", "WaitingForQuota"]
    assert told[5].index("cq") == told[4].index("CLUSTERQUEUE")
    assert cells[8] == ["ns/low", "main", "default", "cpu", "2", "0", "0", "2", "0", "3"]


def test_nothing_to_decide(tmp_path: Path) -> None:
    assert run("", tmp_path).splitlines() == ["Nothing can be decided."]


def test_json_tells_the_same(tmp_path: Path) -> None:
    told = as_json(QUEUES + job("low", "2", status=HELD) + job("high", "3", 9) + job("bad", "many"), tmp_path)
    assert [(one.decision, one.workload) for one in told.decisions] == [("preempt", "ns/low"), ("admit", "ns/high")]
    assert told.decisions[0].preemptor == "ns/high"
    assert told.decisions[1].flavors == {"main": {"cpu": "default"}}
    low = next(one for one in told.waiting if one.workload == "ns/low")
    assert low.why is not None
    assert (low.why.stopped_by, low.why.flavors[0].missing) == ("no_candidates", 2000)
    assert any("bad" in why for why in told.unusable)
    assert told.settled


def test_fair_sharing_is_a_choice(tmp_path: Path) -> None:
    """Of two queues that want to borrow, the one that borrows nothing so far comes first with fair sharing; the older one without."""
    queue = """
- kind: ClusterQueue
  metadata: {{name: {name}}}
  spec:
    cohortName: pool
    namespaceSelector: {{}}
    resourceGroups:
    - coveredResources: [cpu]
      flavors: [{{name: default, resources: [{{name: cpu, nominalQuota: {nominal}}}]}}]
- {{kind: LocalQueue, metadata: {{name: {name}, namespace: ns}}, spec: {{clusterQueue: {name}}}}}
"""
    held = HELD.replace("clusterQueue: cq", "clusterQueue: a")
    text = "kind: List\nitems:\n- {kind: ResourceFlavor, metadata: {name: default}}\n" + "".join(
        queue.format(name=name, nominal=nominal) for name, nominal in (("a", 0), ("b", 0), ("lender", 4))
    )
    text += (job("running", "2", status=held) + job("one", "2", 1)).replace("queueName: lq", "queueName: a")
    text += job("two", "2").replace("queueName: lq", "queueName: b")
    assert [one.workload for one in as_json(text, tmp_path).decisions] == ["ns/one"]
    assert [one.workload for one in as_json(text, tmp_path, "--fair-sharing").decisions] == ["ns/two"]


CONFIG = """
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
resources:
  excludeResourcePrefixes: [net.example.com/]
  transformations:
  - {input: example.com/mig, strategy: Replace, outputs: {cpu: 2}}
"""


def test_counts_and_gates_are_those_of_the_configuration(tmp_path: Path) -> None:
    asks = "{cpu: 1, net.example.com/vpc: 1, example.com/mig: 1}"
    text = QUEUES + job("a", "1").replace("{cpu: 1}", asks)
    assert as_json(text, tmp_path).decisions == ()
    config = tmp_path / "config.yaml"
    config.write_text(CONFIG)
    assert [one.workload for one in as_json(text, tmp_path, "--config", str(config)).decisions] == ["ns/a"]
    gated = job("b", "1").replace("name: b,", "name: b, annotations: {kueue.x-k8s.io/admission-gated-by: a/b},", 1)
    assert [one.reason for one in as_json(QUEUES + gated, tmp_path).waiting] == ["AdmissionGated"]
    told = as_json(QUEUES + gated, tmp_path, "--feature-gates", "AdmissionGatedBy=false")
    assert [one.workload for one in told.decisions] == ["ns/b"]
    assert "no such feature gate" in run(text, tmp_path, "--feature-gates", "Nothing=true", code=1)


def test_limits_and_overhead_of_the_cluster_count(tmp_path: Path) -> None:
    limits = """
- apiVersion: v1
  kind: LimitRange
  metadata: {name: l, namespace: ns}
  spec: {limits: [{type: Container, max: {cpu: 2}}]}
"""
    told = as_json(QUEUES + limits + job("a", "3") + job("b", "2"), tmp_path)
    assert [one.workload for one in told.decisions] == ["ns/b"]
    assert [(one.workload, one.reason) for one in told.waiting] == [("ns/a", "Misconfigured")]


@pytest.mark.parametrize("text", ["a: [", "\x00"])
def test_a_file_that_cannot_be_read_ends_with_a_line_and_a_status(text: str, tmp_path: Path) -> None:
    told = run(text, tmp_path, code=1)
    assert "state.yaml" in told
    assert "Traceback" not in told


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, [str(tmp_path / "none.yaml")])
    assert result.exit_code == 2


def test_standard_input() -> None:
    result = CliRunner().invoke(app, ["-", "-o", "json"], input=QUEUES + job("a", "1"))
    assert [one.workload for one in msgspec.json.decode(result.output, type=Answer).decisions] == ["ns/a"]
