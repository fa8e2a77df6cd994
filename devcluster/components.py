"""The command line of each control plane part. Pure: files it names are written by `layout`."""

import os
from pathlib import Path

import msgspec

from devcluster.certificates import KeyPair
from devcluster.processes import Command

SERVICE_ACCOUNT_ISSUER = "https://kubernetes.default.svc.cluster.local"
# High enough that a client inside the control plane is never what a load test measures.
CLIENT_QPS, CLIENT_BURST = 1000, 2000


class Ports(msgspec.Struct, frozen=True):
    etcd: int
    etcd_peer: int
    apiserver: int
    controller_manager: int
    scheduler: int
    kwok: int


class Files(msgspec.Struct, frozen=True):
    """Where the files of one cluster lie; `*_kubeconfig` are those of the parts themselves."""

    ca: Path
    front_proxy_ca: Path
    etcd_serving: KeyPair
    etcd_client: KeyPair
    apiserver_serving: KeyPair
    controller_manager_serving: KeyPair
    scheduler_serving: KeyPair
    front_proxy_client: KeyPair
    service_account: KeyPair
    controller_manager_kubeconfig: Path
    scheduler_kubeconfig: Path
    kwok_kubeconfig: Path
    scheduler_config: Path
    stages: Path
    etcd_data: Path
    audit_policy: Path
    audit_log: Path


def scheduler_config(files: Files) -> str:
    return f"""\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection:
  leaderElect: false
clientConnection:
  kubeconfig: {files.scheduler_kubeconfig}
  qps: {CLIENT_QPS}
  burst: {CLIENT_BURST}
"""


def etcd(program: Path, files: Files, ports: Ports) -> Command:
    # TLS even on loopback: when a port was taken meanwhile, no cluster writes into another one's store.
    client, peer = f"https://127.0.0.1:{ports.etcd}", f"http://127.0.0.1:{ports.etcd_peer}"
    return Command(
        "etcd",
        program,
        (
            "--name=devcluster",
            f"--data-dir={files.etcd_data}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=devcluster={peer}",
            "--client-cert-auth",
            f"--trusted-ca-file={files.ca}",
            f"--cert-file={files.etcd_serving.certificate}",
            f"--key-file={files.etcd_serving.key}",
            # A cluster lives for minutes and is made anew: it need not survive a power cut.
            "--unsafe-no-fsync",
            "--quota-backend-bytes=8589934592",
            "--log-level=warn",
        ),
    )


_GARBAGE_COLLECTION = {"GOGC": "400", "GOMEMLIMIT": "6GiB"}
"""The API server keeps a window of the past in memory; marking it again and again takes a fifth of its processor time under load (docs/performance.md)."""


def apiserver(
    program: Path, files: Files, ports: Ports, *, audit: bool, controllers: bool, extra: tuple[str, ...]
) -> Command:
    # ServiceAccount admission would have every pod wait for a token mount that no kubelet here provides.
    without = ["ServiceAccount"]
    if not controllers:
        # The taint of a new node is removed by a controller; without it no node would ever be usable.
        without.append("TaintNodesByCondition")
    audit_flags: tuple[str, ...] = ()
    if audit:
        # Rotated at 100 MB by default, and counts would begin anew.
        audit_flags = (
            f"--audit-policy-file={files.audit_policy}",
            f"--audit-log-path={files.audit_log}",
            "--audit-log-maxsize=100000",
        )
    return Command(
        "kube-apiserver",
        program,
        (
            f"--etcd-servers=https://127.0.0.1:{ports.etcd}",
            f"--etcd-cafile={files.ca}",
            f"--etcd-certfile={files.etcd_client.certificate}",
            f"--etcd-keyfile={files.etcd_client.key}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--secure-port={ports.apiserver}",
            # It would publish its own address as an Endpoint, for which loopback is not valid.
            "--endpoint-reconciler-type=none",
            f"--tls-cert-file={files.apiserver_serving.certificate}",
            f"--tls-private-key-file={files.apiserver_serving.key}",
            f"--client-ca-file={files.ca}",
            f"--requestheader-client-ca-file={files.front_proxy_ca}",
            "--requestheader-allowed-names=front-proxy-client",
            "--requestheader-username-headers=X-Remote-User",
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
            f"--proxy-client-cert-file={files.front_proxy_client.certificate}",
            f"--proxy-client-key-file={files.front_proxy_client.key}",
            f"--service-account-issuer={SERVICE_ACCOUNT_ISSUER}",
            f"--service-account-key-file={files.service_account.certificate}",
            f"--service-account-signing-key-file={files.service_account.key}",
            "--service-cluster-ip-range=10.96.0.0/16",
            "--authorization-mode=RBAC",
            f"--disable-admission-plugins={','.join(without)}",
            "--allow-privileged=true",
            *audit_flags,
            *extra,
        ),
        environment={**_GARBAGE_COLLECTION, **os.environ},
    )


def controller_manager(program: Path, files: Files, ports: Ports) -> Command:
    kubeconfig = files.controller_manager_kubeconfig
    return Command(
        "kube-controller-manager",
        program,
        (
            f"--kubeconfig={kubeconfig}",
            f"--authentication-kubeconfig={kubeconfig}",
            f"--authorization-kubeconfig={kubeconfig}",
            "--leader-elect=false",
            "--bind-address=127.0.0.1",
            f"--secure-port={ports.controller_manager}",
            f"--tls-cert-file={files.controller_manager_serving.certificate}",
            f"--tls-private-key-file={files.controller_manager_serving.key}",
            f"--root-ca-file={files.ca}",
            f"--service-account-private-key-file={files.service_account.key}",
            # Each controller under its own name: RBAC as in a real cluster, and audit logs that tell them apart.
            "--use-service-account-credentials=true",
            f"--kube-api-qps={CLIENT_QPS}",
            f"--kube-api-burst={CLIENT_BURST}",
        ),
    )


def scheduler(program: Path, files: Files, ports: Ports) -> Command:
    return Command(
        "kube-scheduler",
        program,
        (
            f"--config={files.scheduler_config}",
            f"--authentication-kubeconfig={files.scheduler_kubeconfig}",
            f"--authorization-kubeconfig={files.scheduler_kubeconfig}",
            "--bind-address=127.0.0.1",
            f"--secure-port={ports.scheduler}",
            f"--tls-cert-file={files.scheduler_serving.certificate}",
            f"--tls-private-key-file={files.scheduler_serving.key}",
        ),
    )


def kwok(program: Path, files: Files, ports: Ports) -> Command:
    return Command(
        "kwok",
        program,
        (
            f"--kubeconfig={files.kwok_kubeconfig}",
            f"--config={files.stages}",
            "--manage-all-nodes=true",
            "--node-lease-duration-seconds=40",
            "--node-ip=127.0.0.1",
            "--cidr=10.0.0.1/8",
            # Without an address it would listen on every interface.
            f"--server-address=127.0.0.1:{ports.kwok}",
        ),
    )
