"""What is applied to a cluster, against an API server of the test's own."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from aiohttp import web

from cli import installation
from cli.installation import MANIFESTS, Prepared, Wanted, pointed_definition, pointed_webhooks, prepare
from shared.api.crd_kinds import CONVERTED, KINDS
from shared.api.selectors import LabelSelector
from shared.config.configuration import Configuration
from shared.runtime.health import serve as serve_http

WANTED = Wanted(kubeconfig="", namespace="own", webhook_url="https://127.0.0.1:9443")
Manifest = dict[str, Any]


def shipped(name: str) -> Manifest:
    loaded: Manifest = yaml.safe_load((MANIFESTS / "webhooks" / name).read_text())
    return loaded


@pytest.mark.parametrize("name", ["mutating.yaml", "validating.yaml"])
def test_webhooks_are_pointed_at_the_url(name: str) -> None:
    before = shipped(name)
    after = pointed_webhooks(before, WANTED, "someone")
    assert before == shipped(name)
    paths = [w["clientConfig"]["service"]["path"] for w in before["webhooks"]]
    assert [w["clientConfig"] for w in after["webhooks"]] == [{"url": f"https://127.0.0.1:9443{p}"} for p in paths]
    for old, new in zip(before["webhooks"], after["webhooks"], strict=True):
        assert (old["name"], old["rules"], old["failurePolicy"]) == (new["name"], new["rules"], new["failurePolicy"])
        assert new["matchConditions"][0]["expression"] == 'request.userInfo.username != "someone"'
        assert new["matchConditions"][1:] == old["matchConditions"][1:]


@pytest.mark.parametrize("authority", [b"", b"pem"])
def test_conversion_is_pointed_at_the_url(authority: bytes) -> None:
    wanted = msgspec.structs.replace(WANTED, webhook_ca=authority)
    definitions = list(installation._read(MANIFESTS / "crds"))
    pointed = {d["metadata"]["name"]: pointed_definition(d, wanted)["spec"]["conversion"] for d in definitions}
    bundle = {"caBundle": base64.b64encode(authority).decode()} if authority else {}
    client_config = {"url": "https://127.0.0.1:9443/convert", **bundle}
    webhook = {"conversionReviewVersions": ["v1"], "clientConfig": client_config}
    assert {name for name, c in pointed.items() if c == {"strategy": "Webhook", "webhook": webhook}} == set(CONVERTED)
    assert all(c == {"strategy": "None"} for name, c in pointed.items() if name not in CONVERTED)


def test_jobs_of_managed_namespaces_are_reviewed() -> None:
    excluded = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system", "own"]}
    for selector, expected in (
        (Configuration().managed_namespaces("own"), {"matchExpressions": [excluded]}),
        (LabelSelector(match_labels={"team": "a"}), {"matchLabels": {"team": "a"}}),
    ):
        wanted = Wanted(kubeconfig="", namespace="own", managed_namespaces=selector)
        after = pointed_webhooks(shipped("mutating.yaml"), wanted, "someone")
        selectors = {
            w["name"]: json.loads(msgspec.json.encode(w["namespaceSelector"]))
            for w in after["webhooks"]
            if "namespaceSelector" in w
        }
        assert selectors == {"mjob.kb.io": expected}


def test_a_given_authority_is_trusted() -> None:
    wanted = Wanted(kubeconfig="", namespace="own", webhook_url="https://x", webhook_ca=b"pem")
    after = pointed_webhooks(shipped("validating.yaml"), wanted, "someone")
    assert {w["clientConfig"]["caBundle"] for w in after["webhooks"]} == {base64.b64encode(b"pem").decode()}


def test_a_name_cannot_break_out_of_the_expression() -> None:
    after = pointed_webhooks(shipped("mutating.yaml"), WANTED, 'a" || true || "\\')
    expression = after["webhooks"][0]["matchConditions"][0]["expression"]
    assert expression == r'request.userInfo.username != "a\" || true || \"\\"'


def test_roles_in_another_namespace() -> None:
    moved = [installation._in_namespace(m, "own") for m in installation._read(MANIFESTS / "rbac")]
    assert {m["metadata"]["name"] for m in moved if m["kind"] == "Namespace"} == {"own"}
    placed = [m["metadata"]["namespace"] for m in moved if "namespace" in m["metadata"]]
    assert set(placed) == {"own"}
    subjects = [s["namespace"] for m in moved for s in m.get("subjects", ())]
    assert len(subjects) >= 4
    assert set(subjects) == {"own"}


def test_every_kind_that_is_installed_is_known() -> None:
    for part in ("crds", "rbac", "webhooks"):
        manifests = list(installation._read(MANIFESTS / part))
        assert manifests
        assert {m["kind"] for m in manifests} <= set(installation._RESOURCES)


def test_manifests_that_did_not_come_along(tmp_path: Path) -> None:
    with pytest.raises(installation.InstallError, match=r"kustomization\.yaml: No such file"):
        list(installation._read(tmp_path))


def test_no_credentials(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    wanted = Wanted(kubeconfig=str(tmp_path / "absent"), namespace="own")
    assert installation.main(wanted, tmp_path / "answer") == 1
    assert "no such file" in capfd.readouterr().err
    assert not (tmp_path / "answer").exists()


def test_nobody_answers(tmp_path: Path, capfd: pytest.CaptureFixture[str], kubeconfig: Callable[[str], Path]) -> None:
    wanted = Wanted(kubeconfig=str(kubeconfig("https://127.0.0.1:1")), namespace="own")
    assert installation.main(wanted, tmp_path / "answer") == 1
    assert "sluice all-in-one: " in capfd.readouterr().err


class Cluster:
    """An API server that knows what `prepare` asks for. `objects`: path -> manifest."""

    def __init__(
        self, *, may_impersonate: bool = True, namespaces: tuple[str, ...] = (), kinds: tuple[str, ...] = ()
    ) -> None:
        self.may_impersonate = may_impersonate
        self.kinds = kinds
        self.objects: dict[str, Manifest] = {f"/api/v1/namespaces/{n}": {} for n in namespaces}
        self.looks = 0
        self.invalid = ""
        """Path of what cannot be applied over what is there."""

    async def handle(self, request: web.Request) -> web.Response:
        user = request.headers.get("Impersonate-User", "admin")
        match request.method, request.path:
            case "POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews":
                if user != "admin" and not self.may_impersonate:
                    return _status(403, "Forbidden")
                return web.json_response({"status": {"userInfo": {"username": user}}})
            case "GET", "/apis/kueue.x-k8s.io/v1beta2/":
                return (
                    web.json_response({"resources": [{"name": k} for k in self.kinds]})
                    if self.kinds
                    else _status(404, "NotFound")
                )
            case "POST", path:
                made = await request.json()
                self.objects[f"{path}/{made['metadata']['name']}"] = made
                return web.json_response(made)
            case "PATCH", path:
                if path == self.invalid and path in self.objects:
                    return _status(422, "Invalid")
                self.objects[path] = await request.json()
                return web.json_response(self.objects[path])
            case "DELETE", path:
                return web.json_response(self.objects.pop(path))
            case _, path if path not in self.objects:
                return _status(404, "NotFound")
            case _, path:
                self.looks += 1
                established = "True" if self.looks > 12 else "False"
                conditions = [{"type": "Established", "status": established}]
                return web.json_response({**self.objects[path], "status": {"conditions": conditions}})


def _status(code: int, reason: str) -> web.Response:
    return web.json_response({"kind": "Status", "code": code, "reason": reason, "message": reason}, status=code)


@asynccontextmanager
async def serving(cluster: Cluster, kubeconfig: Callable[[str], Path]) -> AsyncIterator[str]:
    """Path of a kubeconfig for it."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", cluster.handle)
    runner, port = await serve_http(app, "127.0.0.1", 0)
    try:
        yield str(kubeconfig(f"http://127.0.0.1:{port}"))
    finally:
        await runner.cleanup()


def server_of(file: str) -> str:
    """The API server of a kubeconfig."""
    return str(yaml.safe_load(Path(file).read_text())["clusters"][0]["cluster"]["server"])


ALL_KINDS = tuple(r.plural for r in installation._NEEDED)


async def test_nothing_is_installed_unasked(kubeconfig: Callable[[str], Path]) -> None:
    cluster = Cluster(namespaces=("own",), kinds=ALL_KINDS)
    async with serving(cluster, kubeconfig) as file:
        prepared = await prepare(Wanted(kubeconfig=file, namespace="own"))
    assert prepared == Prepared(
        user="system:serviceaccount:own:sluice-watcher", impersonate=True, server=server_of(file)
    )
    assert list(cluster.objects) == ["/api/v1/namespaces/own"]


async def test_the_namespace_is_made(kubeconfig: Callable[[str], Path]) -> None:
    cluster = Cluster(kinds=ALL_KINDS)
    async with serving(cluster, kubeconfig) as file:
        await prepare(Wanted(kubeconfig=file, namespace="own"))
    assert list(cluster.objects) == ["/api/v1/namespaces/own"]


@pytest.mark.parametrize("kinds", [(), ALL_KINDS[:-2]])
async def test_kinds_that_are_missing_are_told(kubeconfig: Callable[[str], Path], kinds: tuple[str, ...]) -> None:
    async with serving(Cluster(kinds=kinds), kubeconfig) as file:
        prepared = await prepare(Wanted(kubeconfig=file, namespace="own"))
    assert prepared.missing == tuple(k for k in ALL_KINDS if k not in kinds)


async def test_credentials_that_may_not_act_as_another(kubeconfig: Callable[[str], Path]) -> None:
    cluster = Cluster(may_impersonate=False, namespaces=("own",), kinds=ALL_KINDS)
    async with serving(cluster, kubeconfig) as file:
        wanted = Wanted(kubeconfig=file, namespace="own", parts=("webhooks",), webhook_url="https://x")
        assert await prepare(wanted) == Prepared(user="admin", impersonate=False, server=server_of(file))
    installed = [o for p, o in cluster.objects.items() if "webhookconfigurations" in p]
    conditions = {w["matchConditions"][0]["expression"] for o in installed for w in o["webhooks"]}
    assert conditions == {'request.userInfo.username != "admin"'}


async def test_everything_is_installed(kubeconfig: Callable[[str], Path]) -> None:
    cluster = Cluster()
    async with serving(cluster, kubeconfig) as file:
        wanted = Wanted(kubeconfig=file, namespace="own", parts=("crds", "rbac", "webhooks"), webhook_url="https://x")
        prepared = await prepare(wanted)
    assert prepared.missing == ()
    # It waits until the API server serves the kinds.
    assert cluster.looks > 12
    kinds = [o["kind"] for o in cluster.objects.values()]
    assert kinds.count("CustomResourceDefinition") == len(KINDS)
    assert {"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "Namespace"} < set(kinds)
    assert {"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"} < set(kinds)
    labels = [
        o["metadata"]["labels"]["app.kubernetes.io/part-of"]
        for o in cluster.objects.values()
        if o["kind"] != "Namespace"
    ]
    assert set(labels) == {"sluice"}


async def test_a_webhook_configuration_that_names_a_service_is_replaced(kubeconfig: Callable[[str], Path]) -> None:
    path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/kueue-mutating-webhook-configuration"
    cluster = Cluster(kinds=ALL_KINDS)
    cluster.objects[path] = shipped("mutating.yaml")
    cluster.invalid = path
    async with serving(cluster, kubeconfig) as file:
        await prepare(Wanted(kubeconfig=file, namespace="own", parts=("webhooks",), webhook_url="https://x"))
    assert all("service" not in w["clientConfig"] for w in cluster.objects[path]["webhooks"])


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Callable[[str], Path]:
    def write(server: str) -> Path:
        path = tmp_path / "kubeconfig"
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": server}}],
            "users": [{"name": "u", "user": {"token": "t"}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        }
        path.write_text(yaml.safe_dump(document))
        return path

    return write
