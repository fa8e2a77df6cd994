"""Names in URLs of kinds that only discovery knows."""

from __future__ import annotations

import json
from typing import cast

import pytest

from shared.kube.client import KubeClient
from shared.kube.errors import NotFound
from shared.kube.plurals import Plurals
from shared.kube.resources import Resource


class Discovery:
    def __init__(self) -> None:
        self.asked: list[str] = []
        self.served: dict[str, list[dict[str, object]]] = {}

    async def discover(self, path: str) -> bytes:
        self.asked.append(path)
        if path not in self.served:
            raise NotFound(404, "NotFound", path)
        return json.dumps({"resources": self.served[path]}).encode()


async def test_a_kind_is_asked_for_once() -> None:
    discovery = Discovery()
    plurals = Plurals(cast(KubeClient, discovery))
    with pytest.raises(NotFound):
        await plurals.resource("a.b", "v1", "Box")
    discovery.served["/apis/a.b/v1"] = [
        {"name": "boxes/status", "kind": "Box", "namespaced": True},
        {"name": "boxes", "kind": "Box", "namespaced": True},
    ]
    for _ in range(2):
        assert await plurals.resource("a.b", "v1", "Box") == Resource("a.b", "v1", "boxes", "Box")
    assert discovery.asked == ["/apis/a.b/v1"] * 2
    with pytest.raises(NotFound, match="Crate"):
        await plurals.resource("a.b", "v1", "Crate")


async def test_the_core_group() -> None:
    discovery = Discovery()
    discovery.served["/api/v1"] = [{"name": "nodes", "kind": "Node", "namespaced": False}]
    found = await Plurals(cast(KubeClient, discovery)).resource("", "v1", "Node")
    assert found == Resource("", "v1", "nodes", "Node", namespaced=False)
