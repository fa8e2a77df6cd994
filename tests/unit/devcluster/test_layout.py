"""The files of a cluster: who each kubeconfig is, what is kept secret, and that an older cluster leaves no trace."""

import base64
import stat
from pathlib import Path

import pytest
import yaml
from cryptography import x509
from cryptography.x509.oid import NameOID

from devcluster.components import Ports
from devcluster.layout import ADMIN_GROUP, ADMIN_USER, Layout, lay_out
from devcluster.options import ClusterOptions

PORTS = Ports(1, 2, 16443, 4, 5, 6)


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return lay_out(tmp_path, PORTS, ClusterOptions(default_pod_seconds=1.5))


def identity(path: Path) -> tuple[str, list[str]]:
    """User and groups of a kubeconfig's client certificate."""
    user = yaml.safe_load(path.read_text())["users"][0]["user"]
    subject = x509.load_pem_x509_certificate(base64.b64decode(user["client-certificate-data"])).subject
    groups = [str(attribute.value) for attribute in subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)]
    return str(subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value), groups


def test_administrator_and_parts_are_different_users(layout: Layout) -> None:
    assert identity(layout.admin_kubeconfig) == (ADMIN_USER, [ADMIN_GROUP])
    assert identity(layout.files.controller_manager_kubeconfig) == ("system:kube-controller-manager", [])
    assert identity(layout.files.scheduler_kubeconfig) == ("system:kube-scheduler", [])
    assert identity(layout.files.kwok_kubeconfig) == ("system:kwok", [ADMIN_GROUP])


def test_kubeconfigs_point_at_the_server_and_trust_its_authority(layout: Layout) -> None:
    cluster = yaml.safe_load(layout.admin_kubeconfig.read_text())["clusters"][0]["cluster"]
    assert cluster["server"] == layout.server == "https://127.0.0.1:16443"
    assert base64.b64decode(cluster["certificate-authority-data"]) == layout.files.ca.read_bytes()


def test_front_proxy_has_an_authority_of_its_own(layout: Layout) -> None:
    proxy = x509.load_pem_x509_certificate(layout.files.front_proxy_client.certificate.read_bytes())
    proxy.verify_directly_issued_by(x509.load_pem_x509_certificate(layout.files.front_proxy_ca.read_bytes()))
    assert layout.files.front_proxy_ca.read_bytes() != layout.files.ca.read_bytes()


def test_nobody_else_can_look_into_the_folders_with_keys(layout: Layout) -> None:
    for folder in (layout.files.ca.parent, layout.kubeconfigs, layout.logs):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_options_reach_the_files(layout: Layout, tmp_path: Path) -> None:
    assert "durationMilliseconds: 1500" in layout.files.stages.read_text()
    own = lay_out(tmp_path / "own", PORTS, ClusterOptions(audit_policy="kind: Policy # mine\n"))
    assert own.files.audit_policy.read_text() == "kind: Policy # mine\n"


def test_an_older_cluster_leaves_no_trace(layout: Layout, tmp_path: Path) -> None:
    left = [layout.logs / "etcd.log", layout.kubeconfigs / "user-bob.kubeconfig", layout.files.etcd_data / "member"]
    layout.files.etcd_data.mkdir()
    for path in left:
        path.write_text("old")
    old_authority = layout.files.ca.read_bytes()
    lay_out(tmp_path, PORTS, ClusterOptions())
    assert [path for path in left if path.exists()] == []
    assert layout.files.ca.read_bytes() != old_authority
