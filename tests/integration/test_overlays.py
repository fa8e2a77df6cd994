"""Every overlay on a real API server: accepted without a warning; and the clustered one's credentials, made with the rights that it gives.

Kinds of other projects have definitions here that take anything: what cert-manager and the Prometheus Operator make of them is not tried.
"""

from __future__ import annotations

import asyncio
import json
import os
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
import yaml

from cli.integrations import component, optional
from cli.nats_credentials import CA_SECRET, CONFIG_KEY, CONFIG_SECRET, TLS_SECRET, main
from devcluster.cluster import DevCluster
from devcluster.options import ClusterOptions
from tests.integration.stack.grants import POLICY, calls, granted, unused
from tests.integration.stack.manifests import as_list
from tests.integration.test_manifests import NAMESPACE, _secrets, apply, get, kubectl
from tests.unit.k8s.charts import EXAMPLES, chart, example
from tests.unit.k8s.rendered import ROOT, key, render
from tests.unit.k8s.test_overlays import HA, OVERLAYS

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module")]

K8S = ROOT / "k8s"
OTHERS = (
    ("monitoring.coreos.com", "v1", "ServiceMonitor"),
    ("monitoring.coreos.com", "v1", "PrometheusRule"),
    ("cert-manager.io", "v1", "Issuer"),
    ("cert-manager.io", "v1", "Certificate"),
)


def definition(group: str, version: str, kind: str) -> dict[str, object]:
    plural = f"{kind.lower()}s"
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": kind},
            "versions": [{"name": version, "served": True, "storage": True, "schema": schema}],
        },
    }


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster() -> AsyncIterator[DevCluster]:
    options = ClusterOptions(with_scheduler=False, with_kwok=False, audit_policy=POLICY)
    async with DevCluster(options) as started:
        await started.kubectl("create", "namespace", NAMESPACE)
        await started.kubectl(
            "label", "namespace", NAMESPACE,
            "pod-security.kubernetes.io/warn=restricted", "pod-security.kubernetes.io/warn-version=latest",
        )  # fmt: skip
        items = {"apiVersion": "v1", "kind": "List", "items": [definition(*other) for other in OTHERS]}
        await started.kubectl("apply", "-f", "-", stdin=json.dumps(items))
        await started.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")
        yield started


@pytest.mark.parametrize("folder", [o for o in OVERLAYS if o != HA])
async def test_accepted_without_warnings(cluster: DevCluster, folder: str) -> None:
    out, warnings = await apply(cluster, folder, "--dry-run=server")
    assert warnings == ""
    assert len(out.splitlines()) == len(render(folder))


def of_overlays() -> set[str]:
    """Components that an overlay is made of."""
    found = set()
    for file in (K8S / "overlays").glob("*/kustomization.yaml"):
        found |= {Path(c).name for c in yaml.safe_load(file.read_text()).get("components", ())}
    return found


def put_together(folder: Path, components: list[Path]) -> None:
    """An overlay in the folder, of base and these."""
    document = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [os.path.relpath(K8S / "base", folder)],
        "components": [os.path.relpath(component, folder) for component in components],
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(document))


async def test_every_other_component_is_accepted_without_warnings(cluster: DevCluster, tmp_path: Path) -> None:
    """All kinds of jobs at once, and whatever no overlay is made of, on top of base."""
    used = of_overlays()
    folders = [
        folder
        for file in sorted((K8S / "components").rglob("kustomization.yaml"))
        if (folder := file.parent).name not in used or folder.parent.name == "integrations"
    ]
    assert {f.name for f in folders if f.parent.name == "integrations"} >= {component(k.framework) for k in optional()}
    put_together(tmp_path, folders)
    out, warnings = await apply(cluster, str(tmp_path), "--dry-run=server")
    assert warnings == ""
    assert len(out.splitlines()) > len(render("base"))


@pytest.mark.parametrize("name", sorted(p.stem for p in EXAMPLES.iterdir()))
async def test_the_charts_objects_are_accepted_without_warnings(cluster: DevCluster, tmp_path: Path, name: str) -> None:
    objects = chart(*example(name))
    file = tmp_path / "objects.yaml"
    file.write_text(as_list(*objects))
    code, out, warnings = await kubectl(cluster, "apply", "--server-side", "-f", str(file), "--dry-run=server")
    assert (code, warnings) == (0, "")
    assert len(out.splitlines()) == len(objects)


async def test_ha_is_applied_and_its_job_makes_a_clusters_credentials(
    cluster: DevCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        out, warnings = await apply(cluster, HA)
        assert warnings == ""
        assert len(out.splitlines()) == len(render(HA))
    # Admitted as `restricted`.
    await cluster.kubectl("wait", "--for=create", "pod/sluice-nats-2", "-n", NAMESPACE, "--timeout=60s")

    path = await cluster.service_account_kubeconfig(NAMESPACE, "sluice-nats-credentials")
    arguments = [f"--kubeconfig={path}", f"--namespace={NAMESPACE}", "--cluster=3"]
    assert await asyncio.to_thread(main, arguments) == 0
    assert await asyncio.to_thread(main, arguments) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "nothing to do"
    made = await _secrets(cluster, {CONFIG_SECRET, TLS_SECRET, CA_SECRET})
    assert made[CA_SECRET] == {"ca.crt": made[TLS_SECRET]["ca.crt"]}
    config = made[CONFIG_SECRET][CONFIG_KEY]
    assert "tls://sluice-nats-2.sluice-nats-servers.kueue-system.svc:6222" in config

    # Other certificates: a new authority goes to the services, and the servers start anew.
    await cluster.kubectl("delete", "secret", TLS_SECRET, "-n", NAMESPACE)
    assert await asyncio.to_thread(main, arguments) == 0
    assert capsys.readouterr().out.split("\n")[:-1] == [
        f"secret/{TLS_SECRET} created",
        f"secret/{CA_SECRET} replaced",
        f"secret/{CONFIG_SECRET} replaced",
        "statefulset/sluice-nats restarted",
    ]
    again = await _secrets(cluster, {TLS_SECRET, CA_SECRET})
    assert again[CA_SECRET]["ca.crt"] == again[TLS_SECRET]["ca.crt"] != made[CA_SECRET]["ca.crt"]
    ssl.create_default_context(cadata=again[CA_SECRET]["ca.crt"])

    # Everything that it may do was needed.
    assert cluster.audit_log is not None
    grants = {g for g in await granted(cluster) if g.account == "sluice-nats-credentials"}
    assert sorted(map(str, unused(grants, calls(cluster.audit_log)))) == []
    assert {key(o) for o in (await get(cluster, "sts"))["items"]} >= {f"StatefulSet/{NAMESPACE}/sluice-nats"}
