"""The chart with helm on a real API server: installed, changed, refused, removed, and installed over what others left.

The namespace enforces Pod Security `restricted`, and every pod that a controller wants to make has to be admitted. There are no nodes: nothing runs.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio
import yaml
from rich.console import Console

from devcluster.binaries import resolve_binaries
from devcluster.cluster import DevCluster
from devcluster.kubectl import KubectlError
from devcluster.options import ClusterOptions
from shared.api.crd_kinds import KINDS
from tests.eventually import eventually
from tests.integration.test_all_in_one import AllInOne
from tests.integration.test_change_of_mode import called, names_services, names_urls
from tests.integration.test_manifests import NAMESPACE, WITHIN_S, apply
from tests.unit.k8s.charts import CHART

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module")]

QUEUE = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": "kept"}, "spec": {}}


class Told(msgspec.Struct, frozen=True):
    """How a call of helm ended."""

    code: int
    out: str
    err: str


class Helm:
    """helm against this cluster; its own files are in `home`."""

    def __init__(self, program: Path, cluster: DevCluster, home: Path) -> None:
        self._program = program
        self._cluster = cluster
        self._home = home

    async def __call__(self, *arguments: str) -> Told:
        process = await asyncio.create_subprocess_exec(
            str(self._program), *arguments, "--namespace", NAMESPACE,
            env={**os.environ, "KUBECONFIG": str(self._cluster.kubeconfig), "HOME": str(self._home)},
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        out, err = await asyncio.wait_for(process.communicate(), WITHIN_S)
        assert process.returncode is not None
        return Told(process.returncode, out.decode(), err.decode())

    async def done(self, *arguments: str) -> str:
        """What it printed; it must have ended well, without a warning of the API server."""
        told = await self(*arguments)
        assert told.code == 0, told.err
        assert "warning" not in told.err.lower(), told.err
        return told.out

    async def objects(self) -> list[dict[str, Any]]:
        """Of the release, as rendered."""
        return [one for one in yaml.safe_load_all(await self.done("get", "manifest", "sluice")) if one]

    async def revision(self) -> tuple[int, str]:
        """Number and state of the release."""
        told = json.loads(await self.done("status", "sluice", "-o", "json"))
        return int(told["version"]), str(told["info"]["status"])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster() -> AsyncIterator[DevCluster]:
    async with DevCluster(ClusterOptions(with_scheduler=False, with_kwok=False)) as started:
        await started.kubectl("create", "namespace", NAMESPACE)
        await started.kubectl("label", "namespace", NAMESPACE, "pod-security.kubernetes.io/enforce=restricted")
        yield started


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def helm(cluster: DevCluster, tmp_path_factory: pytest.TempPathFactory) -> Helm:
    program = (await asyncio.to_thread(resolve_binaries, ("helm",), Console(stderr=True)))["helm"]
    return Helm(program, cluster, tmp_path_factory.mktemp("helm"))


async def there(cluster: DevCluster, objects: list[dict[str, Any]]) -> set[str]:
    """Those of them that the API server has, as kind/name."""
    text = yaml.safe_dump_all([{k: o[k] for k in ("apiVersion", "kind", "metadata")} for o in objects])
    found = await cluster.kubectl("get", "--ignore-not-found", "-o", "json", "-n", NAMESPACE, "-f", "-", stdin=text)
    return {key(one) for one in json.loads(found)["items"]} if found else set()


def key(one: dict[str, Any]) -> str:
    return f"{one['kind']}/{one['metadata']['name']}"


async def replicas(cluster: DevCluster) -> dict[str, tuple[int, int]]:
    """Deployment or StatefulSet -> pods that are wanted, and that were admitted."""
    found = json.loads(await cluster.kubectl("get", "deploy,sts", "-n", NAMESPACE, "-o", "json"))["items"]
    return {key(one): (one["spec"]["replicas"], one["status"].get("replicas", 0)) for one in found}


async def all_pods_are_admitted(cluster: DevCluster) -> bool:
    found = await replicas(cluster)
    # A StatefulSet makes one pod after the other is ready.
    return bool(found) and all(
        made >= min(wanted, 1 if "StatefulSet" in one else wanted) for one, (wanted, made) in found.items()
    )


async def test_a_release_from_its_install_to_its_end(cluster: DevCluster, helm: Helm, tmp_path: Path) -> None:
    assert "Wait for it" in await helm.done("install", "sluice", str(CHART))
    first = await helm.objects()
    assert await there(cluster, first) == set(map(key, first))
    assert await eventually(lambda: all_pods_are_admitted(cluster), WITHIN_S), await replicas(cluster)
    assert await names_services(cluster)

    # Changed: more webhooks, and a configuration file, with which all services start anew.
    config = tmp_path / "values.yaml"
    text = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nmanageJobsWithoutQueueName: true\n"
    values = {"services": {"webhook": {"replicas": 3}}, "managerConfig": {"controllerManagerConfigYaml": text}}
    config.write_text(yaml.safe_dump(values))
    await helm.done("upgrade", "sluice", str(CHART), "--values", str(config))
    assert await helm.revision() == (2, "deployed")
    assert await eventually(lambda: all_pods_are_admitted(cluster), WITHIN_S), await replicas(cluster)
    assert (await replicas(cluster))["Deployment/sluice-webhook"][0] == 3
    second = await helm.objects()
    gone = set(map(key, first)) - set(map(key, second))
    assert await there(cluster, [o for o in first if key(o) in gone]) == set(), (
        "what the change does without is removed"
    )
    assert await there(cluster, second) == set(map(key, second))

    # Refused with its path, and nothing has changed.
    told = await helm("upgrade", "sluice", str(CHART), "--set", "services.scheduler.replicas=9")
    assert told.code != 0
    assert "/services/scheduler/replicas" in told.err
    assert await helm.revision() == (2, "deployed")
    assert (await replicas(cluster))["Deployment/sluice-scheduler"][0] == 2

    # Back to what it was.
    await helm.done("rollback", "sluice", "1")
    assert (await replicas(cluster))["Deployment/sluice-webhook"][0] == 2

    # The end keeps the definitions alone, and with them the queues.
    await helm.done("uninstall", "sluice")
    definitions = {f"CustomResourceDefinition/{crd.plural}.kueue.x-k8s.io" for crd in KINDS}

    async def only_definitions_are_left() -> bool:
        return await there(cluster, [*first, *second]) == definitions

    assert await eventually(only_definitions_are_left, WITHIN_S), await there(cluster, [*first, *second])
    await cluster.kubectl("create", "-f", "-", stdin=json.dumps(QUEUE))
    await helm.done("install", "sluice", str(CHART))
    assert "kept" in await cluster.kubectl("get", "clusterqueue", "-o", "name")
    await helm.done("uninstall", "sluice")


async def test_over_what_kubectl_installed(cluster: DevCluster, helm: Helm) -> None:
    await apply(cluster, "base")
    told = await helm("install", "sluice", str(CHART))
    assert told.code != 0
    assert "ownership" in told.err
    await helm.done("install", "sluice", str(CHART), "--take-ownership")
    objects = await helm.objects()
    assert await there(cluster, objects) == set(map(key, objects))
    assert await names_services(cluster)
    await helm.done("uninstall", "sluice")


async def test_over_what_a_killed_all_in_one_left(cluster: DevCluster, helm: Helm, tmp_path: Path) -> None:
    one = AllInOne(cluster.kubeconfig, tmp_path, "--install", "all")
    await one.start()
    await one.until_ready()
    assert await names_urls(cluster, one.webhook)
    await one.stop(signal.SIGKILL)
    await helm.done("install", "sluice", str(CHART), "--take-ownership")
    assert await names_services(cluster), await called(cluster)
    # And from the chart to all-in-one.
    bad = {**QUEUE, "metadata": {"name": "bad"}, "spec": {"fairSharing": {"weight": "-1"}}}
    again = AllInOne(cluster.kubeconfig, tmp_path, "--install", "all")
    await again.start()
    try:
        await again.until_ready()
        assert await names_urls(cluster, again.webhook)
        with pytest.raises(KubectlError, match="denied the request"):
            await cluster.kubectl("create", "-f", "-", stdin=json.dumps(bad))
    finally:
        await again.stop()
