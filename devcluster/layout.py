"""Lays out the files of one cluster before it starts: certificates, kubeconfigs, configurations, folders."""

import shutil
from pathlib import Path

import msgspec

from devcluster import audit
from devcluster.certificates import CertificateAuthority, KeyPair, service_account_keys
from devcluster.components import Files, Ports, scheduler_config
from devcluster.kubeconfig import ClusterEntry, certificate_user, cluster_entry, kubeconfig, write_kubeconfig
from devcluster.options import ClusterOptions
from devcluster.stages import render_stages

ADMIN_USER = "devcluster-admin"
ADMIN_GROUP = "system:masters"


class Layout(msgspec.Struct, frozen=True):
    """What was written: the parts' files, and what people and tests use."""

    files: Files
    authority: CertificateAuthority
    cluster: ClusterEntry
    server: str
    admin: KeyPair
    admin_kubeconfig: Path
    logs: Path
    kubeconfigs: Path


def lay_out(directory: Path, ports: Ports, options: ClusterOptions) -> Layout:
    """Writes all files of a cluster that will use `ports` below `directory`, in place of an older cluster's."""
    certificates, kubeconfigs, logs = (directory / name for name in ("certificates", "kubeconfigs", "logs"))
    for folder in (certificates, kubeconfigs, logs, directory / "etcd"):
        # What an older cluster left here would mislead: its credentials, its last log lines, its objects.
        shutil.rmtree(folder, ignore_errors=True)
    for folder in (certificates, kubeconfigs, logs):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    authority = CertificateAuthority(certificates)
    front_proxy = CertificateAuthority(certificates, "front-proxy-ca")
    server = f"https://127.0.0.1:{ports.apiserver}"
    cluster = cluster_entry(server, authority.certificate)

    def client(name: str, user: str, *groups: str) -> tuple[KeyPair, Path]:
        pair = authority.client(name, user, groups)
        path = kubeconfigs / f"{name}.kubeconfig"
        return pair, write_kubeconfig(path, kubeconfig(cluster, user, certificate_user(pair)))

    admin, admin_kubeconfig = client("admin", ADMIN_USER, ADMIN_GROUP)
    files = Files(
        ca=authority.certificate,
        front_proxy_ca=front_proxy.certificate,
        etcd_serving=authority.server("etcd"),
        etcd_client=authority.client("etcd-client", "kube-apiserver"),
        apiserver_serving=authority.server("kube-apiserver", ("kubernetes", "kubernetes.default.svc")),
        controller_manager_serving=authority.server("kube-controller-manager-serving"),
        scheduler_serving=authority.server("kube-scheduler-serving"),
        front_proxy_client=front_proxy.client("front-proxy-client", "front-proxy-client"),
        service_account=service_account_keys(certificates),
        controller_manager_kubeconfig=client("kube-controller-manager", "system:kube-controller-manager")[1],
        scheduler_kubeconfig=client("kube-scheduler", "system:kube-scheduler")[1],
        # It plays every kubelet at once, for which no built-in role exists.
        kwok_kubeconfig=client("kwok", "system:kwok", ADMIN_GROUP)[1],
        scheduler_config=directory / "kube-scheduler.yaml",
        stages=directory / "stages.yaml",
        etcd_data=directory / "etcd",
        audit_policy=directory / "audit-policy.yaml",
        audit_log=logs / "audit.log",
    )
    files.scheduler_config.write_text(scheduler_config(files))
    files.stages.write_text(render_stages(options.default_pod_seconds))
    files.audit_policy.write_text(options.audit_policy or audit.POLICY)
    return Layout(files, authority, cluster, server, admin, admin_kubeconfig, logs, kubeconfigs)
