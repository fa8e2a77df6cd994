"""On each version of Kubernetes: manifests accepted without a warning, kinds explained, webhooks answering, a Job through.

make versions        builds the control planes, then runs this; `pytest tests/versions/smoke.py -k 36` runs one
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio

from devcluster.build import KUBERNETES_VERSIONS
from devcluster.cluster import DevCluster
from devcluster.kubectl import KubectlError
from devcluster.options import ClusterOptions, NodeGroup
from shared.api.crd_kinds import KINDS
from shared.kube.client import KubeClient, connect
from shared.kube.resources import JOBS, WORKLOADS
from tests.eventually import eventually
from tests.integration.stack import manifests
from tests.integration.test_all_in_one import AllInOne
from tests.unit.k8s.charts import chart
from tests.unit.k8s.rendered import ROOT, render

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(400)]

NAMESPACE = "kueue-system"
WAIT_S = 90.0


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=KUBERNETES_VERSIONS, ids=lambda m: f"1.{m}")
async def cluster(request: pytest.FixtureRequest) -> AsyncIterator[DevCluster]:
    options = ClusterOptions(kubernetes_minor=request.param, nodes=(NodeGroup(name="node"),), default_pod_seconds=0.3)
    started = time.monotonic()
    async with DevCluster(options) as running:
        print(f"\n1.{request.param}: ready after {time.monotonic() - started:.1f} s")
        version = msgspec.json.decode(await running.kubectl("get", "--raw", "/version"))
        assert version["gitVersion"] == KUBERNETES_VERSIONS[request.param]
        yield running


async def test_manifests_and_chart_are_accepted_without_warnings(cluster: DevCluster, tmp_path: Path) -> None:
    assert len(await applied(cluster, "-k", str(ROOT / "k8s" / "base"))) == len(render("base"))
    file = tmp_path / "chart.yaml"
    file.write_text(manifests.as_list(*chart()))
    assert len(await applied(cluster, "-f", str(file))) == len(chart())
    # Below, Sluice runs beside the cluster.
    await cluster.kubectl("delete", "deploy,sts,job", "--all", "-n", NAMESPACE, "--wait=false")


async def test_every_kind_is_explained(cluster: DevCluster) -> None:
    for version in ("v1beta1", "v1beta2"):
        told = await asyncio.gather(
            *(
                cluster.kubectl("explain", crd.plural, f"--api-version=kueue.x-k8s.io/{version}", "--recursive")
                for crd in KINDS
            )
        )
        assert told
        assert all("FIELDS:" in text for text in told)


async def test_a_job_runs_through_and_what_is_wrong_is_refused(cluster: DevCluster, tmp_path: Path) -> None:
    sluice = AllInOne(cluster.kubeconfig, tmp_path, "--install", "all")
    await sluice.start()
    try:
        print(f"\nsluice ready after {await sluice.until_ready():.1f} s")
        async with await connect(str(cluster.kubeconfig), timeout_s=20.0) as client:
            await cluster.kubectl("apply", "-f", "-", stdin=manifests.as_list(*manifests.queue("smoke")))
            wrong = manifests.job("wrong", "Not_A_Name")
            with pytest.raises(KubectlError, match=r"denied the request: .*queue-name"):
                await cluster.kubectl("create", "-f", "-", stdin=manifests.as_list(wrong))
            started = time.monotonic()
            await client.create(
                JOBS, "default", msgspec.json.encode(manifests.job("smoke", "smoke", run_seconds="0.3"))
            )
            assert await eventually(lambda: _ended(client), WAIT_S), sluice.text
            print(f"\nthe Job took {time.monotonic() - started:.1f} s")
            old = await cluster.kubectl("get", "workloads.v1beta1.kueue.x-k8s.io", "-n", "default", "-o", "name")
            assert "workload.kueue.x-k8s.io/job-smoke" in old
    finally:
        await sluice.stop()


async def _ended(client: KubeClient) -> bool:
    """Whether the Job is complete and its Workload Finished."""
    job = msgspec.json.decode(await client.get(JOBS, "default", "smoke"))
    listed = msgspec.json.decode(await client.list_page(WORKLOADS, "default"))["items"]
    return _has(job, "Complete") and len(listed) == 1 and _has(listed[0], "Finished")


def _has(document: manifests.Manifest, condition: str) -> bool:
    conditions = document.get("status", {}).get("conditions") or ()
    return any(c["type"] == condition and c["status"] == "True" for c in conditions)


async def applied(cluster: DevCluster, *what: str) -> list[str]:
    """Lines of `kubectl apply --server-side`, which may warn of nothing."""
    process = await asyncio.create_subprocess_exec(
        str(cluster.kubectl_program), f"--kubeconfig={cluster.kubeconfig}", "apply", "--server-side", *what,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, warnings = await process.communicate()
    assert (process.returncode, warnings.decode()) == (0, "")
    return out.decode().splitlines()
