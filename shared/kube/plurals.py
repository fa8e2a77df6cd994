"""How kinds that the product does not know are called in URLs: asked of the API server's discovery, once each."""

from __future__ import annotations

import msgspec

from shared.kube.client import KubeClient
from shared.kube.errors import NotFound
from shared.kube.resources import Resource


class _Served(msgspec.Struct):
    name: str
    kind: str
    namespaced: bool = True


class _Document(msgspec.Struct):
    resources: list[_Served] = []


_documents = msgspec.json.Decoder(_Document)


class Plurals:
    """Resources by group, version and kind. A kind that is not served is asked for again."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._known: dict[tuple[str, str, str], Resource] = {}

    async def resource(self, group: str, version: str, kind: str) -> Resource:
        """Raises NotFound when the API server does not serve it, and other ApiErrors."""
        key = (group, version, kind)
        if key not in self._known:
            path = f"/apis/{group}/{version}" if group else f"/api/{version}"
            served = _documents.decode(await self._client.discover(path)).resources
            found = next((one for one in served if one.kind == kind and "/" not in one.name), None)
            if found is None:
                raise NotFound(404, "NotFound", f"{kind} of {path} is not served")
            self._known[key] = Resource(group, version, found.name, kind, found.namespaced)
        return self._known[key]
