"""What is applied to a cluster, against an API server of the test's own."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from cli import installation
from cli.installation import MANIFESTS, Wanted, pointed_webhooks
from shared.api.selectors import LabelSelector
from shared.config.configuration import Configuration

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
        assert [c["expression"] for c in new["matchConditions"]] == ['request.userInfo.username != "someone"']


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
