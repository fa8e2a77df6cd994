"""kubeconfig files: what kubectl will read in them, and that only their owner can read them."""

import base64
import stat
from pathlib import Path

import msgspec
import yaml

from devcluster.certificates import KeyPair
from devcluster.kubeconfig import (
    ClusterEntry,
    Kubeconfig,
    UserEntry,
    certificate_user,
    cluster_entry,
    kubeconfig,
    write_kubeconfig,
)

CLUSTER = ClusterEntry("https://127.0.0.1:16443", "Q0E=")


def test_token_kubeconfig_is_what_kubectl_expects(tmp_path: Path) -> None:
    user = "system:serviceaccount:sluice:watcher"
    content = kubeconfig(CLUSTER, user, UserEntry(token="secret"), namespace="sluice")
    path = write_kubeconfig(tmp_path / "config", content)
    assert yaml.safe_load(path.read_text()) == {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "devcluster",
        "clusters": [
            {
                "name": "devcluster",
                "cluster": {"server": "https://127.0.0.1:16443", "certificate-authority-data": "Q0E="},
            }
        ],
        "users": [{"name": user, "user": {"token": "secret"}}],
        "contexts": [{"name": "devcluster", "context": {"cluster": "devcluster", "user": user, "namespace": "sluice"}}],
    }


def test_certificates_are_embedded(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_text("CA")
    pair = KeyPair(tmp_path / "a.crt", tmp_path / "a.key")
    pair.certificate.write_text("CERT")
    pair.key.write_text("KEY")
    cluster, user = cluster_entry("https://127.0.0.1:1", tmp_path / "ca.crt"), certificate_user(pair)
    assert base64.b64decode(cluster.certificate_authority_data) == b"CA"
    assert base64.b64decode(user.client_certificate_data) == b"CERT"
    assert base64.b64decode(user.client_key_data) == b"KEY"
    assert user.token == ""


def test_only_the_owner_can_read_it_even_when_it_existed(tmp_path: Path) -> None:
    content = kubeconfig(CLUSTER, "admin", UserEntry(token="secret"))
    path = write_kubeconfig(tmp_path / "config", content)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    shorter = write_kubeconfig(path, kubeconfig(CLUSTER, "a", UserEntry(token="s")))
    assert msgspec.json.decode(shorter.read_bytes(), type=Kubeconfig).users[0].name == "a"


def test_what_kubectl_config_view_prints_can_be_read() -> None:
    shown = b"""{"kind": "Config", "apiVersion": "v1", "preferences": {},
        "clusters": [{"name": "prod", "cluster": {"server": "https://10.0.0.1", "tls-server-name": "kubernetes",
                      "certificate-authority-data": "Q0E="}}],
        "users": [{"name": "me", "user": {"exec": {"command": "login"}}}],
        "contexts": [{"name": "c", "context": {"cluster": "prod", "user": "me"}}], "current-context": "c"}"""
    read = msgspec.json.decode(shown, type=Kubeconfig)
    assert read.clusters[0].cluster == ClusterEntry("https://10.0.0.1", "Q0E=", tls_server_name="kubernetes")
    assert read.contexts[0].context.namespace == "default"
