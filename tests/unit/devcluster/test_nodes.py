"""Node groups become Node objects: names, amounts, labels and taints as asked."""

import json

import msgspec
import pytest

from devcluster.nodes import render_nodes
from devcluster.options import NodeGroup, Taint


def test_nodes_are_numbered_from_zero() -> None:
    names = [node.metadata.name for node in render_nodes(NodeGroup(name="cpu", count=3))]
    assert names == ["cpu-0", "cpu-1", "cpu-2"]


def test_amounts_are_both_capacity_and_allocatable() -> None:
    group = NodeGroup(name="gpu", cpu="8", memory="32Gi", pods="20", resources={"nvidia.com/gpu": "4"})
    (node,) = render_nodes(group)
    assert node.status.allocatable == {"cpu": "8", "memory": "32Gi", "pods": "20", "nvidia.com/gpu": "4"}
    assert node.status.capacity == node.status.allocatable


def test_own_labels_win_over_those_every_node_has() -> None:
    group = NodeGroup(name="arm", labels={"kubernetes.io/arch": "arm64", "zone": "a"})
    (node,) = render_nodes(group)
    assert node.metadata.labels == {
        "kubernetes.io/hostname": "arm-0",
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "arm64",
        "sluice.dev/node-group": "arm",
        "zone": "a",
    }


def test_node_is_sent_as_the_api_spells_it() -> None:
    group = NodeGroup(name="spot", taints=(Taint("spot", value="true"), Taint("drain", "NoExecute")))
    (node,) = render_nodes(group)
    sent = json.loads(msgspec.json.encode(node))
    assert (sent["apiVersion"], sent["kind"]) == ("v1", "Node")
    assert sent["spec"] == {
        "taints": [
            {"key": "spot", "value": "true", "effect": "NoSchedule"},
            {"key": "drain", "effect": "NoExecute"},
        ]
    }


def test_node_without_taints_sends_none() -> None:
    (node,) = render_nodes(NodeGroup(name="node"))
    assert msgspec.to_builtins(node)["spec"] == {}


def test_an_empty_group_is_no_node() -> None:
    assert list(render_nodes(NodeGroup(name="node", count=0))) == []


def test_negative_count_names_the_group() -> None:
    with pytest.raises(ValueError, match="'gpu': count is -1"):
        list(render_nodes(NodeGroup(name="gpu", count=-1)))
