"""The commands on queues and workloads against a real API server, called as a person calls them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio
import typer
import yaml
from typer.testing import CliRunner, Result

from cli.ctl.app import add_to
from devcluster.cluster import DevCluster
from devcluster.options import ClusterOptions
from tests.unit.state.test_simulate import job

REPOSITORY = Path(__file__).parents[2]
pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module")]

plugin = typer.Typer()
add_to(plugin)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster() -> AsyncIterator[DevCluster]:
    options = ClusterOptions(with_controllers=False, with_scheduler=False, with_kwok=False)
    async with DevCluster(options) as cluster:
        await cluster.kubectl("apply", "--server-side", "-k", str(REPOSITORY / "k8s" / "crds"))
        await cluster.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")
        await cluster.kubectl("create", "namespace", "ns")
        yield cluster


async def call(cluster: DevCluster, line: str, *, code: int = 0, answer: str = "") -> Result:
    path = f"{cluster.kubectl_program.parent}{os.pathsep}{os.environ['PATH']}"
    environment = {"KUBECONFIG": str(cluster.kubeconfig), "PATH": path}
    result = await asyncio.to_thread(CliRunner().invoke, plugin, line.split(), env=environment, input=answer)
    assert result.exit_code == code, (result.output, result.exception)
    return result


async def said(cluster: DevCluster, line: str) -> str:
    return (await call(cluster, line)).stdout.strip()


async def refused(cluster: DevCluster, line: str) -> str:
    return (await call(cluster, line, code=1)).stderr.strip()


def cells(text: str) -> list[list[str]]:
    return [line.split("   ") for line in text.splitlines()]


async def test_queues_and_flavors_are_created(cluster: DevCluster) -> None:
    line = "create rf spot --node-labels pool=spot --node-taints spot=true:NoSchedule --tolerations spot:NoSchedule"
    assert await said(cluster, line) == "resourceflavor.kueue.x-k8s.io/spot created"
    flavor = yaml.safe_load(await cluster.kubectl("get", "resourceflavor", "spot", "-o", "yaml"))
    assert flavor["spec"] == {
        "nodeLabels": {"pool": "spot"},
        "nodeTaints": [{"key": "spot", "value": "true", "effect": "NoSchedule"}],
        "tolerations": [{"key": "spot", "operator": "Exists", "effect": "NoSchedule"}],
    }
    assert "not found" in await refused(cluster, "create lq main -c team -n ns")
    line = "create clusterqueue team --cohort all --nominal-quota spot:cpu=3;memory=4Gi --borrowing-limit spot:cpu=1;memory=1Gi"
    assert await said(cluster, line + " --dry-run server") == (
        "clusterqueue.kueue.x-k8s.io/team created (server dry run)"
    )
    assert "not found" in await refused(cluster, "stop cq team")
    assert await said(cluster, line) == "clusterqueue.kueue.x-k8s.io/team created"
    assert await said(cluster, "-n ns create localqueue main -c team") == "localqueue.kueue.x-k8s.io/main created"
    assert await said(cluster, "create lq other -c nobody -i -n ns -o name") == "localqueue.kueue.x-k8s.io/other"


async def test_what_the_server_refuses_is_one_line(cluster: DevCluster) -> None:
    told = await refused(cluster, "create cq bad --queuing-strategy Random")
    assert told.startswith("error: ")
    assert "queueingStrategy" in told
    assert "already exists" in await refused(cluster, "create rf spot")


async def test_lists_have_kueuectls_columns(cluster: DevCluster) -> None:
    await cluster.kubectl("apply", "-f", "-", stdin="apiVersion: v1\nkind: List\nitems:" + versioned(job("low", "2")))
    queues = cells(await said(cluster, "list cq"))
    assert [word.strip() for word in queues[0]] == [
        "NAME", "COHORT", "PENDING WORKLOADS", "ADMITTED WORKLOADS", "ACTIVE", "AGE",
    ]  # fmt: skip
    assert await said(cluster, "list cq --active true -o name") == ""
    assert (await said(cluster, "list lq -n ns -c team -o name")).splitlines() == ["localqueue.kueue.x-k8s.io/main"]
    assert (await said(cluster, "list lq -A")).splitlines()[0].startswith("NAMESPACE")
    assert "pool=spot" in await said(cluster, "list rf")
    workloads = (await said(cluster, "list workload -n ns")).splitlines()
    assert workloads[0].split("   ")[0].strip() == "NAME"
    assert "PENDING" in workloads[1]
    assert (await said(cluster, "list kwl -n ns --status admitted")) == ""
    result = await call(cluster, "list workload -n default")
    assert result.stderr.strip() == "No resources found in default namespace."
    assert "invalid status value (odd)" in await refused(cluster, "list workload --status odd")
    wide = (await said(cluster, "list workload -n ns -o wide")).splitlines()
    assert wide[0].split()[-4:] == ["PRIORITY", "PODS", "FLAVORS", "REASON"]
    assert (await said(cluster, "list cq -o wide")).splitlines()[0].rstrip().endswith("STOP POLICY")
    assert (await said(cluster, "list rf -o wide")).splitlines()[0].rstrip().endswith("TOPOLOGY")
    items = msgspec.json.decode(await said(cluster, "list kwl -A -o json"))["items"]
    assert [one["metadata"]["name"] for one in items] == ["low"]


async def test_pages_have_one_head(cluster: DevCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUEUECTL_LIST_REQUEST_LIMIT", "1")
    lines = (await said(cluster, "list lq -n ns")).splitlines()
    assert [line.split()[0] for line in lines] == ["NAME", "main", "other"]
    monkeypatch.setenv("KUEUECTL_LIST_REQUEST_LIMIT", "few")
    assert "invalid list request limit" in await refused(cluster, "list lq -n ns")


async def test_stop_and_resume(cluster: DevCluster) -> None:
    async def spec(kind: str, name: str, field: str) -> str:
        return await cluster.kubectl("get", kind, name, "-n", "ns", "-o", f"jsonpath={{.spec.{field}}}")

    assert await said(cluster, "stop cq team") == "clusterqueue.kueue.x-k8s.io/team"
    assert await spec("clusterqueue", "team", "stopPolicy") == "HoldAndDrain"
    await said(cluster, "stop lq main -n ns --keep-already-running")
    assert await spec("localqueue", "main", "stopPolicy") == "Hold"
    await said(cluster, "resume cq team --dry-run client")
    assert await spec("clusterqueue", "team", "stopPolicy") == "HoldAndDrain"
    await said(cluster, "resume cq team")
    await said(cluster, "resume localqueue main -n ns")
    assert await spec("clusterqueue", "team", "stopPolicy") == await spec("localqueue", "main", "stopPolicy") == "None"
    assert await said(cluster, "stop workload low -n ns") == "workload.kueue.x-k8s.io/low stopped"
    assert await spec("workload", "low", "active") == "false"
    assert await said(cluster, "resume workload low -n ns") == "workload.kueue.x-k8s.io/low resumed"


async def test_templates_are_kubectls(cluster: DevCluster) -> None:
    # kubectl writes to our standard output, which a runner in this process does not see.
    assert "allowed formats" in await refused(cluster, "list lq -n ns -o wider")
    await call(cluster, "stop cq team -o jsonpath={.spec.stopPolicy}")
    await call(cluster, "resume cq team -o go-template={{.spec.stopPolicy}}")


async def test_explain_and_story(cluster: DevCluster) -> None:
    flavor = "apiVersion: kueue.x-k8s.io/v1beta2\nkind: ResourceFlavor\nmetadata: {name: default}\n"
    await cluster.kubectl("apply", "-f", "-", stdin=flavor)
    told = await said(cluster, "explain low -n ns")
    assert "Workload:  ns/low" in told
    assert "Now:" in told
    assert msgspec.json.decode(await said(cluster, "explain low -n ns -o json"))["workload"] == "ns/low"
    assert "not found in namespace ns" in await refused(cluster, "explain nobody -n ns")
    assert "created" in await said(cluster, "story low -n ns")


async def test_delete_goes_by_way_of_the_owner(cluster: DevCluster) -> None:
    manifest = """
apiVersion: batch/v1
kind: Job
metadata: {name: owner, namespace: ns}
spec:
  suspend: true
  template: {spec: {restartPolicy: Never, containers: [{name: c, image: pause}]}}
"""
    await cluster.kubectl("apply", "-f", "-", stdin=manifest)
    uid = await cluster.kubectl("get", "job", "owner", "-n", "ns", "-o", "jsonpath={.metadata.uid}")
    owner = [{"apiVersion": "batch/v1", "kind": "Job", "name": "owner", "uid": uid, "controller": True}]
    patch = msgspec.json.encode({"metadata": {"ownerReferences": owner}}).decode()
    await cluster.kubectl("patch", "workload", "low", "-n", "ns", "--type=merge", "-p", patch)
    row = (await said(cluster, "list workload -n ns --for job/owner")).splitlines()[1]
    assert "job.batch   owner" in row
    result = await call(cluster, "delete workload low nobody -n ns", answer="n\n")
    assert "  - job.batch/owner associated with the ns/low workload" in result.stdout
    assert "Deletion is canceled" in result.stdout
    assert '"nobody" not found' in result.stderr
    assert "requires at least 1 arg(s), only received 0" in await refused(cluster, "delete workload -n ns")
    assert await said(cluster, "delete workload low -n ns -y") == "job.batch/owner deleted"
    assert "not found" in await refused(cluster, "list workload -n ns --for job/owner")


async def test_version_and_bad_credentials(cluster: DevCluster) -> None:
    assert (await said(cluster, "version")).startswith("Client Version: v")
    assert await refused(cluster, "list cq --kubeconfig /nowhere") == "error: kubeconfig /nowhere: no such file"
    assert "cannot" in await refused(cluster, "list cq --as nobody")


def versioned(text: str) -> str:
    return text.replace("- kind: Workload", "- apiVersion: kueue.x-k8s.io/v1beta2\n  kind: Workload")
