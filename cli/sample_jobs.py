"""Makes the Jobs of `examples/` flow: some of both queues, again and again."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path

import msgspec
import yaml

from shared.api.meta import ObjectMeta
from shared.kube.client import KubeClient
from shared.kube.errors import ApiError
from shared.kube.resources import JOBS

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
FILES = ("job-research.yaml", "job-production.yaml", "job-research.yaml", "job-research.yaml")


class _Created(msgspec.Struct):
    metadata: ObjectMeta


async def submit(client: KubeClient, count: int, pause_s: float) -> list[str]:
    """Create `count` Jobs, alternating between the examples; returns their UIDs."""
    manifests = [yaml.safe_load((EXAMPLES / name).read_text()) for name in FILES]
    uids: list[str] = []
    for manifest in itertools.islice(itertools.cycle(manifests), count):
        body = msgspec.json.encode(manifest)
        created = await client.create(JOBS, manifest["metadata"]["namespace"], body)
        uids.append(msgspec.json.decode(created, type=_Created).metadata.uid)
        await asyncio.sleep(pause_s)
    return uids


async def keep_flowing(client: KubeClient, pause_s: float) -> None:
    """Create one Job each `pause_s`, for ever; an API server that is away for a while is waited for."""
    while True:
        try:
            await submit(client, len(FILES), pause_s)
        except ApiError:
            await asyncio.sleep(pause_s)
