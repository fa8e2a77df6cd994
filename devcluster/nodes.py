"""Renders the fake nodes of a node group as Node objects. KWOK plays their kubelets; nothing runs on them."""

from collections.abc import Iterator

import msgspec

from devcluster.options import NodeGroup


class NodeTaint(msgspec.Struct, frozen=True, omit_defaults=True):
    key: str
    effect: str
    value: str = ""


class NodeSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    taints: tuple[NodeTaint, ...] = ()


class NodeMeta(msgspec.Struct, frozen=True):
    name: str
    labels: dict[str, str]


class NodeStatus(msgspec.Struct, frozen=True):
    allocatable: dict[str, str]
    capacity: dict[str, str]


class Node(msgspec.Struct, frozen=True, rename="camel"):
    """The part of a v1 Node that a kubelet would send when it registers itself."""

    metadata: NodeMeta
    spec: NodeSpec
    status: NodeStatus
    api_version: str = "v1"
    kind: str = "Node"


def render_nodes(group: NodeGroup) -> Iterator[Node]:
    """The Nodes of one group, in order; raises ValueError on a negative count."""
    if group.count < 0:
        raise ValueError(f"node group {group.name!r}: count is {group.count}, it cannot be negative")
    amounts = {"cpu": group.cpu, "memory": group.memory, "pods": group.pods, **group.resources}
    taints = tuple(NodeTaint(key=taint.key, effect=taint.effect, value=taint.value) for taint in group.taints)
    for index in range(group.count):
        name = f"{group.name}-{index}"
        labels = {
            "kubernetes.io/hostname": name,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64",
            "sluice.dev/node-group": group.name,
            **group.labels,
        }
        yield Node(NodeMeta(name, labels), NodeSpec(taints), NodeStatus(allocatable=amounts, capacity=amounts))
