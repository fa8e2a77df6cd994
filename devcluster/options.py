"""What a cluster should be like: its fake nodes, its parts and where it keeps its files. Values only."""

from pathlib import Path

import msgspec

from devcluster.build import KUBERNETES_MINOR


class Taint(msgspec.Struct, frozen=True):
    """A node taint; `effect` is NoSchedule, PreferNoSchedule or NoExecute."""

    key: str
    effect: str = "NoSchedule"
    value: str = ""


class NodeGroup(msgspec.Struct, frozen=True):
    """`count` equal fake nodes called `<name>-0`, `<name>-1`, ...; all amounts are Kubernetes quantities."""

    name: str
    count: int = 1
    cpu: str = "64"
    memory: str = "256Gi"
    pods: str = "1000"
    resources: dict[str, str] = {}
    labels: dict[str, str] = {}
    taints: tuple[Taint, ...] = ()


DEFAULT_NODES = (NodeGroup(name="node", count=3),)


class ClusterOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a DevCluster can be told.

    nodes: fake nodes made at start; none are made without KWOK.
    default_pod_seconds: how long a pod runs that carries no `sluice.dev/run-seconds` annotation.
    audit: log every write with its user, for counting (`devcluster.audit`); `audit_policy` (YAML) replaces the
        default policy and implies it.
    with_controllers, with_scheduler, with_kwok: CRDs and admission need none of them.
    data_dir: kept after the end; without it a temporary folder is used and removed.
    existing: use the cluster that the KUBECONFIG variable names, and start nothing.
    start_seconds: the longest that each part may take to become ready.
    apiserver_flags: added to kube-apiserver's own.
    kubernetes_minor: another version of Kubernetes 1, one of `devcluster.build.KUBERNETES_VERSIONS`.
    """

    nodes: tuple[NodeGroup, ...] = DEFAULT_NODES
    default_pod_seconds: float = 3.0
    audit: bool = False
    audit_policy: str | None = None
    with_controllers: bool = True
    with_scheduler: bool = True
    with_kwok: bool = True
    data_dir: Path | None = None
    existing: bool = False
    start_seconds: float = 60.0
    apiserver_flags: tuple[str, ...] = ()
    kubernetes_minor: int = KUBERNETES_MINOR
