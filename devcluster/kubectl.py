"""Runs kubectl. Its errors keep kubectl's own words."""

import asyncio
import os
from pathlib import Path


class KubectlError(RuntimeError):
    """kubectl ended with an error; `stderr` is what it said."""

    def __init__(self, arguments: tuple[str, ...], returncode: int | None, stderr: str) -> None:
        super().__init__(f"kubectl {' '.join(arguments)} ended with exit code {returncode}: {stderr.strip()}")
        self.stderr = stderr


async def run_kubectl(program: Path, kubeconfig: Path, arguments: tuple[str, ...], stdin: str | None) -> str:
    """What kubectl printed; raises KubectlError."""
    process = await asyncio.create_subprocess_exec(
        program,
        *arguments,
        env={**os.environ, "KUBECONFIG": str(kubeconfig)},
        stdin=asyncio.subprocess.PIPE if stdin is not None else asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        output, errors = await process.communicate(stdin.encode() if stdin is not None else None)
    except asyncio.CancelledError:
        process.kill()
        await process.wait()
        raise
    if process.returncode != 0:
        raise KubectlError(arguments, process.returncode, errors.decode(errors="replace"))
    return output.decode()
