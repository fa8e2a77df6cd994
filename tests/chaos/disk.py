"""A small disk that can be full: a tmpfs in a mount namespace of its own, so that it needs no rights, and is gone with the process that holds it."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from pathlib import Path

from devcluster.processes import Command, ManagedProcess

MIB = 1 << 20
BALLAST = "ballast"
HELD_WITHIN_S = 5.0


class NoSmallDisk(RuntimeError):
    """This machine does not let us mount one."""


class SmallDisk:
    """`mount` at `place`, which only processes started through `launcher` see as it is; `inside` is the way there for everybody else."""

    def __init__(self, place: Path, mib: int) -> None:
        self._place = place
        script = f"mount -t tmpfs -o size={mib}m tmpfs '{place}' && touch '{place}/{BALLAST}' && exec sleep infinity"
        unshare = shutil.which("unshare") or ""
        command = Command("small disk", Path(unshare), ("--user", "--map-root-user", "--mount", "sh", "-c", script))
        self._holder = ManagedProcess(command, place.with_suffix(".log"))

    @property
    def inside(self) -> Path:
        return Path(f"/proc/{self._holder.pid}/root{self._place}")

    @property
    def launcher(self) -> tuple[str, ...]:
        """Runs the program that follows where the disk is mounted."""
        nsenter = shutil.which("nsenter") or ""
        return (nsenter, f"--target={self._holder.pid}", "--user", "--mount", "--preserve-credentials", "--")

    async def mount(self) -> None:
        """Raises NoSmallDisk."""
        self._place.mkdir(parents=True, exist_ok=True)
        try:
            await self._holder.start()
            async with asyncio.timeout(HELD_WITHIN_S):
                while not (self.inside / BALLAST).exists():
                    self._holder.check()
                    await asyncio.sleep(0.02)
        except (OSError, RuntimeError, TimeoutError) as error:
            await self.unmount()
            raise NoSmallDisk(str(error)) from error

    async def unmount(self) -> None:
        """Everything on it is gone."""
        await self._holder.stop(grace_seconds=0)

    def fill(self) -> int:
        """Until not a byte fits; returns how many bytes that took."""
        taken = 0
        with (self.inside / BALLAST).open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                taken += file.write(bytes(MIB)) or 0
        return taken

    def clear(self) -> None:
        """Take the ballast away again."""
        (self.inside / BALLAST).write_bytes(b"")
