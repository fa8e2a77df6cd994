"""The Lease that elects Kueue's leader, as a test sees it: who holds it, and a wait for who should."""

from __future__ import annotations

import msgspec

from services.watcher.standing import HOLDER
from shared.kube.client import KubeClient
from shared.kube.errors import NotFound
from shared.kube.resources import LEASES
from tests.eventually import eventually

NAMESPACE, LEASE = "kueue-system", "c1f6bfd2.kueue.x-k8s.io"


async def holder(client: KubeClient) -> str:
    """Empty when nobody holds it."""
    try:
        lease = msgspec.json.decode(await client.get(LEASES, NAMESPACE, LEASE))
    except NotFound:
        return ""
    return str(lease["spec"].get("holderIdentity") or "")


async def until_held(client: KubeClient, seconds: float, *, by_us: bool) -> None:
    """Returns when Sluice holds it, or somebody else does."""

    async def held() -> bool:
        found = await holder(client)
        return found != "" and (found == HOLDER) is by_us

    assert await eventually(held, seconds), await holder(client)
