"""A dump as kubectl makes it of a real API server is what `sluice simulate` reads."""

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio
import typer
from typer.testing import CliRunner

from cli.simulate import Answer, simulate_command
from devcluster.cluster import DevCluster
from devcluster.options import ClusterOptions
from tests.unit.cli.test_cluster_dump import JOB
from tests.unit.state.test_simulate import QUEUES, job

REPOSITORY = Path(__file__).parents[2]
KINDS = "namespaces,jobs,resourceflavors,clusterqueues,localqueues,cohorts,workloads,workloadpriorityclasses"
app = typer.Typer()
app.command()(simulate_command)

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster() -> AsyncIterator[DevCluster]:
    options = ClusterOptions(with_controllers=False, with_scheduler=False, with_kwok=False)
    async with DevCluster(options) as cluster:
        await cluster.kubectl("apply", "--server-side", "-k", str(REPOSITORY / "k8s" / "crds"))
        await cluster.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")
        await cluster.kubectl("create", "namespace", "ns")
        yield cluster


def versioned(text: str) -> str:
    """The same manifests, with the versions that a server wants to see."""
    for kind in ("ResourceFlavor", "ClusterQueue", "LocalQueue", "Workload"):
        text = text.replace(f"kind: {kind}", f"apiVersion: kueue.x-k8s.io/v1beta2, kind: {kind}", 1)
        text = text.replace(
            f"- apiVersion: kueue.x-k8s.io/v1beta2, kind: {kind}\n",
            f"- apiVersion: kueue.x-k8s.io/v1beta2\n  kind: {kind}\n",
        )
    return text


async def test_a_dump_is_decided(cluster: DevCluster, tmp_path: Path) -> None:
    await cluster.kubectl("apply", "-f", "-", stdin=versioned(QUEUES))
    for name, cpu in (("small", "1"), ("large", "9")):
        await cluster.kubectl(
            "apply", "-f", "-", stdin=versioned("apiVersion: v1\nkind: List\nitems:" + job(name, cpu))
        )
    await cluster.kubectl("apply", "-n", "ns", "-f", "-", stdin=JOB.replace("  uid: job-uid\n", ""))
    for form in ("yaml", "json"):
        dump = tmp_path / f"dump.{form}"
        dump.write_text(await cluster.kubectl("get", KINDS, "--all-namespaces", "-o", form))
        result = CliRunner().invoke(app, [str(dump), "-o", "json"])
        assert result.exit_code == 0, result.output
        told = msgspec.json.decode(result.output, type=Answer)
        assert told.unusable == ()
        decided = sorted((one.decision, one.workload.split("-")[0]) for one in told.decisions)
        # Both were created within a second or so: which comes first is the uid's business.
        assert decided == [("admit", "ns/job"), ("admit", "ns/small")]
        assert [(one.workload, one.reason) for one in told.waiting] == [("ns/large", "ExceedsMaxQuota")]
