"""The samples of compose.yaml: the queues of examples/, then its Jobs one after the other, until it is stopped."""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path

from cli.sample_jobs import keep_flowing
from shared.kube.client import connect

QUEUES = Path(__file__).resolve().parent.parent / "examples" / "queues.yaml"
RETRY_S = 1.0


async def run() -> None:
    """Never returns."""
    while True:
        # Refused as long as the webhook does not answer yet.
        applied = await asyncio.to_thread(
            subprocess.run, ["kubectl", "apply", "--server-side", "-f", str(QUEUES)], check=False
        )
        if applied.returncode == 0:
            break
        await asyncio.sleep(RETRY_S)
    async with await connect(user_agent="sluice-samples", timeout_s=10.0) as client:
        await keep_flowing(client, float(os.environ.get("PAUSE_SECONDS", "2")))


if __name__ == "__main__":
    asyncio.run(run())
