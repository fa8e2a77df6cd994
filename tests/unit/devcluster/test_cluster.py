"""DevCluster without its processes: what it refuses, and what it needs. The rest is tested on the real ones."""

from pathlib import Path

import pytest

from devcluster.cluster import DevCluster, ExistingClusterError
from devcluster.kubectl import KubectlError, run_kubectl
from devcluster.options import ClusterOptions

FAKE_KUBECTL = """#!/bin/sh
if [ "$1" = fail ]; then echo "error: no such thing" >&2; exit 3; fi
if [ "$1" = config ]; then
  echo '{"apiVersion":"v1","kind":"Config","current-context":"c","contexts":[],"users":[],
         "clusters":[{"name":"c","cluster":{"server":"https://prod:6443","certificate-authority-data":"Q0E="}}]}'
  exit 0
fi
if [ "$1" = create ]; then echo the-token; exit 0; fi
echo "$KUBECONFIG $@"
cat
"""


@pytest.fixture
def kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A kubectl that says what it was given, provided as KUBEBUILDER_ASSETS do."""
    program = tmp_path / "assets" / "kubectl"
    program.parent.mkdir()
    program.write_text(FAKE_KUBECTL)
    program.chmod(0o755)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(program.parent))
    return program


@pytest.fixture
def existing_kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "config"
    path.write_text("{}")
    monkeypatch.setenv("KUBECONFIG", str(path))
    return path


def test_nothing_can_be_asked_of_a_cluster_before_its_start() -> None:
    cluster = DevCluster()
    for ask in (lambda: cluster.kubeconfig, lambda: cluster.server, lambda: cluster.data_dir):
        with pytest.raises(RuntimeError, match="not started"):
            ask()
    assert cluster.pids == {}


async def test_an_existing_cluster_must_be_named(
    monkeypatch: pytest.MonkeyPatch, kubectl: Path, tmp_path: Path
) -> None:
    cluster = DevCluster(ClusterOptions(existing=True))
    for named in (None, "", str(tmp_path / "missing")):
        monkeypatch.delenv("KUBECONFIG", raising=False)
        if named is not None:
            monkeypatch.setenv("KUBECONFIG", named)
        with pytest.raises(ExistingClusterError, match="KUBECONFIG must name one file"):
            await cluster.start()


async def test_an_existing_cluster_is_used_and_nothing_is_started(kubectl: Path, existing_kubeconfig: Path) -> None:
    async with DevCluster(ClusterOptions(existing=True)) as cluster:
        assert cluster.pids == {}
        assert await cluster.kubectl("get", "pods") == f"{existing_kubeconfig} get pods\n"
        with pytest.raises(ExistingClusterError):
            cluster.kill("kube-apiserver")
        with pytest.raises(ExistingClusterError):
            await cluster.add_nodes()


async def test_a_service_accounts_kubeconfig_reaches_the_existing_cluster(
    kubectl: Path, existing_kubeconfig: Path
) -> None:
    async with DevCluster(ClusterOptions(existing=True)) as cluster:
        content = (await cluster.service_account_kubeconfig("sluice", "watcher")).read_text()
    assert "https://prod:6443" in content
    assert '"the-token"' in content
    assert '"namespace": "sluice"' in content


async def test_a_running_cluster_is_not_started_twice(kubectl: Path, existing_kubeconfig: Path) -> None:
    async with DevCluster(ClusterOptions(existing=True)) as cluster:
        with pytest.raises(RuntimeError, match="started already"):
            await cluster.start()
        assert await cluster.kubectl("get") == f"{existing_kubeconfig} get\n"


async def test_temporary_files_go_and_given_folders_stay(
    kubectl: Path, existing_kubeconfig: Path, tmp_path: Path
) -> None:
    async with DevCluster(ClusterOptions(existing=True)) as cluster:
        temporary = cluster.data_dir
        assert temporary.is_dir()
    assert not temporary.exists()
    async with DevCluster(ClusterOptions(existing=True, data_dir=tmp_path / "mine")):
        pass
    assert (tmp_path / "mine").is_dir()


async def test_kubectl_gets_its_input_and_its_error_is_told(kubectl: Path, tmp_path: Path) -> None:
    assert (
        await run_kubectl(kubectl, tmp_path, ("apply", "-f", "-"), "kind: Pod") == f"{tmp_path} apply -f -\nkind: Pod"
    )
    with pytest.raises(KubectlError, match="kubectl fail now ended with exit code 3: error: no such thing") as caught:
        await run_kubectl(kubectl, tmp_path, ("fail", "now"), None)
    assert caught.value.stderr == "error: no such thing\n"
