"""A Job that is stopped in the moment in which its last pod succeeds, on a real API server with the real job controller."""

from __future__ import annotations

import json
from typing import Any

import pytest

from devcluster.cluster import DevCluster
from shared.jobs.batch_job import BatchJob
from shared.kube.client import KubeClient, connect
from shared.kube.resources import JOBS
from tests.eventually import eventually
from tests.integration.stack.manifests import job

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="session")]

KIND = BatchJob()
WITHIN_S = 60.0


async def get(client: KubeClient, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(await client.get(JOBS, "default", name))
    return found


async def patch(client: KubeClient, name: str, body: dict[str, Any], *, status: bool) -> None:
    await client.patch(JOBS, "default", name, json.dumps(body).encode(), subresource="status" if status else "")


async def test_it_completes_after_all(control_plane: DevCluster) -> None:
    # Nobody's queue: no gateway runs here.
    manifest = job("ending", "", run_seconds="300")
    del manifest["metadata"]["labels"]
    async with await connect(str(control_plane.kubeconfig), user_agent="test", timeout_s=10) as client:
        await client.create(JOBS, "default", json.dumps(manifest).encode())

        async def status() -> dict[str, Any]:
            found: dict[str, Any] = (await get(client, "ending")).get("status", {})
            return found

        assert (await eventually(status, WITHIN_S, lambda s: s.get("active") == 1)).get("active") == 1
        # The three writes of a stop, and between them the controller's word that the end has come.
        now = await get(client, "ending")
        while (step := KIND.stop(now, ())) is not None and not step.status:
            await patch(client, "ending", step.patch, status=False)
            now = await get(client, "ending")
        assert step is not None
        await eventually(status, WITHIN_S, lambda s: not s.get("active"))
        met = {"type": "SuccessCriteriaMet", "status": "True", "reason": "CompletionsReached", "message": "m"}
        conditions = [*(await status()).get("conditions", []), met]
        await patch(client, "ending", {"status": {"startTime": None, "conditions": conditions}}, status=True)

        def is_complete(of: dict[str, Any]) -> bool:
            return any(c["type"] == "Complete" and c["status"] == "True" for c in of.get("conditions", []))

        assert not is_complete(await status())
        step = KIND.stop(await get(client, "ending"), ())
        assert step is not None
        assert step.status
        await patch(client, "ending", step.patch, status=True)
        assert is_complete(await eventually(status, WITHIN_S, is_complete)), await status()
        assert KIND.stop(await get(client, "ending"), ()) is None
