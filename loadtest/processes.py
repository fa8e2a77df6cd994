"""CPU time and memory of named processes over a run, with all that they start; one that is restarted under its name included; and what all others used."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping

import msgspec
import psutil

EVERY_S = 0.5
TREE_EVERY = 10
"""Looks between two searches for child processes, which cost more than a look."""
MIB = 1 << 20


class Usage(msgspec.Struct, frozen=True):
    """Of one name: `cpu_s` seconds of CPU used during the run, `peak_mib` highest resident memory seen, `starts` processes that bore the name."""

    name: str
    cpu_s: float
    peak_mib: float
    starts: int


class Sample(msgspec.Struct, frozen=True, gc=False):
    """One look at one name: wall clock seconds, CPU seconds since the first look, resident MiB."""

    at: float
    cpu_s: float
    mib: float


def busy_s() -> float:
    """CPU seconds that this machine's processes have used since it started, all together."""
    times = psutil.cpu_times()
    return float(times.user + times.nice + times.system + times.irq + times.softirq)


class _Process:
    def __init__(self, pid: int, *, is_child: bool) -> None:
        self.handle = psutil.Process(pid)
        self.is_child = is_child
        self.first = self.last = self._cpu()
        self.rss = 0

    def _cpu(self) -> float:
        times = self.handle.cpu_times()
        return float(times.user + times.system)

    def look(self) -> None:
        self.last = self._cpu()
        self.rss = self.handle.memory_info().rss


class ProcessUsage:
    """`pids` is asked again at every look: names to the pids that run now. `tree` (names): their child processes count with them."""

    def __init__(self, pids: Callable[[], Mapping[str, int]], *, tree: Iterable[str] = ()) -> None:
        self._pids = pids
        self._tree = frozenset(tree)
        self._seen: dict[tuple[str, int], _Process] = {}
        self._children: dict[int, str] = {}
        self._looks = 0
        self._peaks: defaultdict[str, int] = defaultdict(int)
        self.samples: defaultdict[str, list[Sample]] = defaultdict(list)

    def look(self) -> None:
        """Take one sample of each; a process that ends meanwhile keeps its last one."""
        named = dict(self._pids())
        if self._tree and self._looks % TREE_EVERY == 0:
            self._children = _descendants({pid: name for name, pid in named.items() if name in self._tree})
        self._looks += 1
        memory: defaultdict[str, int] = defaultdict(int)
        mine = [(name, pid, False) for name, pid in named.items()]
        for name, pid, is_child in [*mine, *((name, pid, True) for pid, name in self._children.items())]:
            try:
                if (name, pid) not in self._seen:
                    self._seen[name, pid] = _Process(pid, is_child=is_child)
                self._seen[name, pid].look()
                memory[name] += self._seen[name, pid].rss
            except psutil.NoSuchProcess:
                continue
        now = time.time()
        for name, rss in memory.items():
            self._peaks[name] = max(self._peaks[name], rss)
            self.samples[name].append(Sample(now, self._cpu_of(name), rss / MIB))

    def _cpu_of(self, name: str) -> float:
        return sum(process.last - process.first for (other, _), process in self._seen.items() if other == name)

    async def run(self) -> None:
        """Sample until cancelled."""
        while True:
            self.look()
            await asyncio.sleep(EVERY_S)

    def usage(self) -> tuple[Usage, ...]:
        """By name, in order of CPU time, highest first."""
        found = []
        for name in {name for name, _ in self._seen}:
            starts = sum(1 for (other, _), p in self._seen.items() if other == name and not p.is_child)
            found.append(Usage(name, self._cpu_of(name), self._peaks[name] / MIB, starts))
        return tuple(sorted(found, key=lambda usage: (-usage.cpu_s, usage.name)))

    def peak_together_mib(self, names: Iterable[str]) -> float:
        """The most that these had resident at one look. Pages that processes share count for each."""
        at_once: defaultdict[float, float] = defaultdict(float)
        for name in names:
            for sample in self.samples[name]:
                at_once[sample.at] += sample.mib
        return max(at_once.values(), default=0.0)


def _descendants(roots: Mapping[int, str]) -> dict[int, str]:
    """Processes below these, by pid, with the root's name; the roots themselves are not among them."""
    parents = {process.info["pid"]: process.info["ppid"] for process in psutil.process_iter(["pid", "ppid"])}
    found: dict[int, str] = {}
    for pid in parents:
        above = parents.get(pid)
        while above and above not in roots:
            above = parents.get(above)
        if above and pid not in roots:
            found[pid] = roots[above]
    return found
