"""The samples of compose.yaml: the queues of examples/, then its Jobs one after the other, until it is stopped."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from pathlib import Path

from cli.sample_jobs import keep_flowing
from shared.kube.client import connect

QUEUES = Path(__file__).resolve().parent.parent / "examples" / "queues.yaml"
RETRY_S = 1.0


async def run() -> None:
    """Until SIGTERM, to which the first process of a container has to listen itself."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
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
    with contextlib.suppress(asyncio.CancelledError):
        asyncio.run(run())
