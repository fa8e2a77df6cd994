"""The run over time, one point a second: what plots are drawn from. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import accumulate, pairwise

import msgspec

from loadtest.processes import Sample
from loadtest.timeline import Timeline

Points = list[float]


class Series(msgspec.Struct, frozen=True):
    """Each list has one value per second since the first creation; `cpu` and `mib` are by process: percent of one CPU, and resident MiB."""

    created: Points = []
    admitted: Points = []
    finished: Points = []
    waiting: Points = []
    usage_percent: Points = []
    cpu: dict[str, Points] = {}
    mib: dict[str, Points] = {}


def series(
    timelines: Iterable[Timeline],
    samples: Mapping[str, list[Sample]],
    *,
    nominal_milli: int,
    began: float,
    ended: float,
) -> Series:
    """`waiting`: created and not admitted at the end of the second; `usage_percent`: of the nominal quota, over the second."""
    seconds = max(1, int(ended - began) + 1)
    all_ = list(timelines)
    created, admitted, finished, holding = ([0.0] * seconds for _ in range(4))
    used = [0.0] * seconds

    def place(at: float) -> int:
        return min(max(int(at - began), 0), seconds - 1)

    for t in all_:
        for at, counts in ((t.answered, created), (t.admitted or t.started, admitted), (t.finished, finished)):
            if at:
                counts[place(at)] += 1
        for begin, end in [*t.spans, *([(t.current, ended)] if t.current else [])]:
            holding[place(begin)] += 1
            if end < ended or t.finished:
                holding[place(end)] -= 1
            for second in range(place(begin), place(end) + 1):
                overlap = min(end, began + second + 1) - max(begin, began + second)
                used[second] += max(0.0, overlap) * t.item.milli
    so_far, done, held = list(accumulate(created)), list(accumulate(finished)), list(accumulate(holding))
    return Series(
        created=so_far,
        admitted=list(accumulate(admitted)),
        finished=done,
        waiting=[max(0.0, c - f - h) for c, f, h in zip(so_far, done, held, strict=True)],
        usage_percent=[100 * u / nominal_milli if nominal_milli else 0.0 for u in used],
        cpu={name: _cpu(found, began, seconds) for name, found in samples.items()},
        mib={name: _mib(found, began, seconds) for name, found in samples.items()},
    )


def _cpu(samples: list[Sample], began: float, seconds: int) -> Points:
    """Percent of one CPU over each second: the difference of what had been used at its ends."""
    used = _at_each(samples, [sample.cpu_s for sample in samples], began, seconds + 1)
    return [100 * max(0.0, b - a) for a, b in pairwise(used)]


def _mib(samples: list[Sample], began: float, seconds: int) -> Points:
    return _at_each(samples, [sample.mib for sample in samples], began, seconds)


def _at_each(samples: list[Sample], values: list[float], began: float, seconds: int) -> Points:
    """The value of the last sample at the beginning of each second; before the first sample, the first."""
    found: Points = []
    place = 0
    for second in range(seconds):
        while place + 1 < len(samples) and samples[place + 1].at <= began + second:
            place += 1
        found.append(values[place] if values else 0.0)
    return found
