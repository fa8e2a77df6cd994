"""CPU time and memory of named processes over a run, a process that is restarted under its name included; and what all others used meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import msgspec
import psutil

EVERY_S = 0.5
MIB = 1 << 20


class Usage(msgspec.Struct, frozen=True):
    """Of one name: `cpu_s` seconds of CPU used during the run, `peak_mib` highest resident memory seen, `starts` processes that bore the name."""

    name: str
    cpu_s: float
    peak_mib: float
    starts: int


def busy_s() -> float:
    """CPU seconds that this machine's processes have used since it started, all together."""
    times = psutil.cpu_times()
    return float(times.user + times.nice + times.system + times.irq + times.softirq)


class _Process:
    def __init__(self, pid: int) -> None:
        self.handle = psutil.Process(pid)
        self.first = self.last = self._cpu()
        self.peak = 0

    def _cpu(self) -> float:
        times = self.handle.cpu_times()
        return float(times.user + times.system)

    def look(self) -> None:
        self.last = self._cpu()
        self.peak = max(self.peak, self.handle.memory_info().rss)


class ProcessUsage:
    """`pids` is asked again at every look: names to the pids that run now."""

    def __init__(self, pids: Callable[[], Mapping[str, int]]) -> None:
        self._pids = pids
        self._seen: dict[tuple[str, int], _Process] = {}

    def look(self) -> None:
        """Take one sample of each; a process that ends meanwhile keeps its last one."""
        for key in self._pids().items():
            try:
                if key not in self._seen:
                    self._seen[key] = _Process(key[1])
                self._seen[key].look()
            except psutil.NoSuchProcess:
                continue

    async def run(self) -> None:
        """Sample until cancelled."""
        while True:
            self.look()
            await asyncio.sleep(EVERY_S)

    def usage(self) -> tuple[Usage, ...]:
        """By name, in order of CPU time, highest first."""
        names = {name for name, _ in self._seen}
        found = []
        for name in names:
            mine = [process for (other, _), process in self._seen.items() if other == name]
            cpu = sum(process.last - process.first for process in mine)
            found.append(Usage(name, cpu, max(process.peak for process in mine) / MIB, len(mine)))
        return tuple(sorted(found, key=lambda usage: (-usage.cpu_s, usage.name)))
