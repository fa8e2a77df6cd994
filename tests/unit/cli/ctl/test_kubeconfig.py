"""Namespaces and mixed contexts of kubeconfig files."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from kubernetes_asyncio.config.kube_config import KubeConfigMerger

from cli.ctl import kubeconfig

FILE = {
    "apiVersion": "v1",
    "kind": "Config",
    "current-context": "one",
    "clusters": [{"name": "a", "cluster": {"server": "https://a"}}, {"name": "b", "cluster": {"server": "https://b"}}],
    "users": [{"name": "u", "user": {"token": "t"}}],
    "contexts": [
        {"name": "one", "context": {"cluster": "a", "user": "u", "namespace": "team"}},
        {"name": "two", "context": {"cluster": "b", "user": "u"}},
    ],
}


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "config"
    path.write_text(yaml.safe_dump(FILE))
    return str(path)


def test_the_namespace_is_the_contexts(file: str) -> None:
    assert kubeconfig.namespace(file, "") == "team"
    assert kubeconfig.namespace(file, "two") == ""
    assert kubeconfig.namespace(file, "none") == ""
    assert kubeconfig.namespace("", "") == ""


def test_a_file_that_is_not_there_is_left_to_the_credentials(
    file: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for files in (str(tmp_path / "absent"), f"{tmp_path / 'absent'}:{file}"):
        assert kubeconfig.namespace(files, "") == ""
    assert capfd.readouterr() == ("", "")


def test_the_flag_wins_over_the_environment(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "elsewhere")
    assert kubeconfig.files(file) == file
    assert kubeconfig.files("") == "elsewhere"


def test_another_cluster_in_the_same_context(file: str) -> None:
    with kubeconfig.mixed(file, "", "b", "") as (files, context):
        merged = KubeConfigMerger(files).config
        assert merged is not None
        entry = merged["contexts"].get_with_name(context)
        assert entry is not None
        chosen = entry["context"].value
        assert chosen == {"cluster": "b", "user": "u", "namespace": "team"}
    with kubeconfig.mixed(file, "two", "", "") as unchanged:
        assert unchanged == (file, "two")
