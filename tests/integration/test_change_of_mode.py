"""From `sluice all-in-one` to the manifests and back on one cluster: whoever comes takes over what the other left, however it ended."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from devcluster.cluster import DevCluster
from devcluster.options import ClusterOptions
from services.watcher.certificates import CONFIGURATIONS, CONVERTED
from tests.eventually import eventually
from tests.integration.stack import manifests
from tests.integration.test_all_in_one import AllInOne, put, running, runs_a_job
from tests.integration.test_manifests import apply, kubectl

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module")]

ROOT = Path(__file__).resolve().parents[2]
WITH_PODS = """\
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
integrations: {frameworks: [batch/job, pod]}
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster() -> AsyncIterator[DevCluster]:
    # No nodes: what the manifests bring stays pending, as while its images are pulled.
    async with DevCluster(ClusterOptions(default_pod_seconds=0.3)) as running_cluster:
        yield running_cluster


async def called(cluster: DevCluster) -> dict[str, dict[str, Any]]:
    """Whom the API server calls: definition or webhook -> its clientConfig without the CA."""
    found = {}
    plurals = {f"{kind.plural}.{kind.group}" for kind in CONVERTED}
    for one in json.loads(await cluster.kubectl("get", "crd", "-o", "json"))["items"]:
        if one["metadata"]["name"] in plurals:
            found[one["metadata"]["name"]] = one["spec"]["conversion"]["webhook"]["clientConfig"]
    for resource, name in CONFIGURATIONS:
        configuration = json.loads(await cluster.kubectl("get", resource.plural, name, "-o", "json"))
        found |= {webhook["name"]: webhook["clientConfig"] for webhook in configuration["webhooks"]}
    return {name: {k: v for k, v in config.items() if k != "caBundle"} for name, config in found.items()}


async def names_services(cluster: DevCluster) -> bool:
    """Everything does, and no webhook is there that the manifests do not bring."""
    found = await called(cluster)
    return all(set(config) == {"service"} for config in found.values()) and not {"mpod.kb.io", "vpod.kb.io"} & set(
        found
    )


async def names_urls(cluster: DevCluster, port: int) -> bool:
    return all(
        set(config) == {"url"} and config["url"].startswith(f"https://127.0.0.1:{port}/")
        for config in (await called(cluster)).values()
    )


async def test_a_killed_one_with_more_kinds_then_the_manifests(cluster: DevCluster, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(WITH_PODS)
    one = AllInOne(cluster.kubeconfig, tmp_path, "--install", "all", "--config", str(tmp_path / "config.yaml"))
    await one.start()
    await one.until_ready()
    assert await names_urls(cluster, one.webhook)
    assert "mpod.kb.io" in await called(cluster)
    await one.stop(signal.SIGKILL)
    await apply(cluster, "base")
    assert await names_services(cluster)


async def test_the_manifests_then_all_in_one_then_the_manifests(cluster: DevCluster, tmp_path: Path) -> None:
    await apply(cluster, "base")
    async with running(AllInOne(cluster.kubeconfig, tmp_path, "--install", "all")) as one:
        assert await names_urls(cluster, one.webhook)
        await put(cluster, *manifests.queue("between"))
        await runs_a_job(cluster, "between", "between")
    await apply(cluster, "base")
    assert await names_services(cluster)


async def test_one_that_installs_nothing_points_what_is_there_at_itself(cluster: DevCluster, tmp_path: Path) -> None:
    """Its gateway wrote the address, which is somebody else's field for kubectl: the documented flag takes it over."""
    await apply(cluster, "base")
    one = AllInOne(cluster.kubeconfig, tmp_path)
    await one.start()
    await one.until_ready()
    assert await names_urls(cluster, one.webhook)
    await one.stop(signal.SIGKILL)
    await apply(cluster, "base", "--force-conflicts")
    assert await names_services(cluster)


async def test_an_apply_on_the_clients_side(cluster: DevCluster, tmp_path: Path) -> None:
    async with running(AllInOne(cluster.kubeconfig, tmp_path, "--install", "crds,webhooks")) as one:
        assert await names_urls(cluster, one.webhook)
    for folder in ("crds", "webhooks"):
        code, _, err = await kubectl(cluster, "apply", "-k", str(ROOT / "k8s" / folder))
        assert code == 0, err
    assert await names_services(cluster)
    await apply(cluster, "base", "--force-conflicts")


async def test_watch_finds_the_one_that_runs_here_for_this_cluster(cluster: DevCluster, tmp_path: Path) -> None:
    # A free port is asked for with 0, and is what the API server is told.
    async with running(AllInOne(cluster.kubeconfig, tmp_path, "--install", "all", WEBHOOK_PORT="0")) as one:
        (address,) = {str(config["url"]).split("/")[2] for config in (await called(cluster)).values()}
        assert address not in ("127.0.0.1:0", "127.0.0.1:9443")
        await put(cluster, *manifests.queue("watched"))
        # No address is given.
        watching = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "cli.main", "watch", "-A", "-o", "json",
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            env={**one.environment, "KUBECONFIG": str(cluster.kubeconfig)}, cwd=ROOT,
        )  # fmt: skip
        try:
            await _is_told(cluster, watching)
        finally:
            watching.terminate()
            await watching.wait()


async def _is_told(cluster: DevCluster, watching: asyncio.subprocess.Process) -> None:
    """It may not listen yet when a Job ends: another one is made until a line comes."""
    assert watching.stdout is not None
    line = asyncio.ensure_future(watching.stdout.readline())
    number = 0

    async def next_job() -> bool:
        nonlocal number
        number += 1
        await runs_a_job(cluster, f"watched-{number}", "watched")
        return line.done()

    assert await eventually(next_job, 30.0)
    event = json.loads(line.result())
    assert event["type"].startswith("dev.sluice.")
    assert "watched-" in event["subject"]


async def test_another_clusters_events_are_not_shown(cluster: DevCluster, tmp_path: Path) -> None:
    """Nothing runs here for that API server: what would help is said."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "cli.main", "watch",
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "KUBECONFIG": str(cluster.kubeconfig), "TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT)}, cwd=ROOT,
    )  # fmt: skip
    _, err = await asyncio.wait_for(process.communicate(), 30.0)
    assert process.returncode == 1
    assert "No all-in-one runs here for https://127.0.0.1:" in err.decode()
    assert "--events-url" in err.decode()
