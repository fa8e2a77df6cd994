"""Quota that was idle while something waited that fits it: the time that a controller loses, whatever the load asks for.

Told from what the client saw: an item waits from the answer to its creation until its admission is seen, and again from the end of an admission until the
next; it holds its CPU while it is admitted. An item fits a queue if the queue stays within its nominal quota and borrowing limit, and its cohort within
the sum of the nominal quotas. Two figures, in percent:

- `idle_percent`: of quota times time. At each moment the idle quota of a cohort counts as far as waiting items that fit would fill it.
- `idle_queue_time_percent`: of queues times time, a queue counting wholly whenever it has any item that waits and fits, however small: the reaction
  time of the controller and of the watch are in it for every single item.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from itertools import pairwise

import msgspec

from loadtest.generator import Queue
from loadtest.timeline import Timeline

WAITS, HOLDS = 0, 1
_Step = tuple[float, str, int, int, int]
"""(time, queue, CPU in milli, WAITS or HOLDS, +1 or -1)"""


class Idle(msgspec.Struct, frozen=True):
    """Percentages; see the module."""

    quota: float = 0.0
    queue_time: float = 0.0


class _Cohort:
    def __init__(self, queues: list[Queue]) -> None:
        self.nominal = sum(queue.nominal_milli for queue in queues)
        self.most = {queue.name: queue.most_milli for queue in queues}
        self.used = dict.fromkeys(self.most, 0)
        self.waiting: dict[str, Counter[int]] = {name: Counter() for name in self.most}
        self.idle_milli_s = 0.0
        self.idle_queue_s = 0.0

    def take(self, step: _Step) -> None:
        _, queue, milli, what, by = step
        if what == HOLDS:
            self.used[queue] += by * milli
        else:
            self.waiting[queue][milli] += by

    def lasts(self, seconds: float) -> None:
        free = self.nominal - sum(self.used.values())
        if free <= 0:
            return
        wanted = 0
        for name, sizes in self.waiting.items():
            room = min(free, self.most[name] - self.used[name])
            fills = 0
            for milli, count in sizes.items():
                if count > 0 and 0 < milli <= room:
                    fills += milli * min(count, room // milli)
            wanted += min(fills, room)
            self.idle_queue_s += seconds * (fills > 0)
        self.idle_milli_s += seconds * min(free, wanted)


def idle(queues: Iterable[Queue], timelines: Iterable[Timeline], began: float, ended: float) -> Idle:
    """Over the time between `began` and `ended` (wall clock seconds)."""
    by_cohort: defaultdict[str, list[Queue]] = defaultdict(list)
    for queue in queues:
        by_cohort[queue.cohort].append(queue)
    cohort_of = {queue.name: cohort for cohort, members in by_cohort.items() for queue in members}
    steps: defaultdict[str, list[_Step]] = defaultdict(list)
    for timeline in timelines:
        steps[cohort_of[timeline.item.namespace]].extend(_steps(timeline, ended))
    nominal = queue_count = 0
    milli_s = queue_s = 0.0
    for name, members in by_cohort.items():
        cohort = _replay(_Cohort(members), steps[name], began, ended)
        nominal, queue_count = nominal + cohort.nominal, queue_count + len(members)
        milli_s, queue_s = milli_s + cohort.idle_milli_s, queue_s + cohort.idle_queue_s
    wall = ended - began
    if wall <= 0 or not nominal:
        return Idle()
    return Idle(100 * milli_s / (nominal * wall), 100 * queue_s / (queue_count * wall))


def _replay(cohort: _Cohort, steps: list[_Step], began: float, ended: float) -> _Cohort:
    steps.sort(key=lambda step: step[0])
    at = began
    for step in steps:
        now = min(max(step[0], began), ended)
        if now > at:
            cohort.lasts(now - at)
            at = now
        cohort.take(step)
    if ended > at:
        cohort.lasts(ended - at)
    return cohort


def _steps(timeline: Timeline, ended: float) -> Iterator[_Step]:
    queue, milli = timeline.item.namespace, timeline.item.milli
    if not timeline.answered:
        return
    spans = [*timeline.spans, *([(timeline.current, ended)] if timeline.current else [])]
    for begin, end in spans:
        yield begin, queue, milli, HOLDS, 1
        yield end, queue, milli, HOLDS, -1
    # Its admission may be seen before the creation is answered: then it never waited.
    first = min(timeline.answered, spans[0][0]) if spans else timeline.answered
    waits = [(first, spans[0][0] if spans else ended), *((a[1], b[0]) for a, b in pairwise(spans))]
    if spans and not timeline.finished and not timeline.current:
        waits.append((spans[-1][1], ended))
    for begin, end in waits:
        yield begin, queue, milli, WAITS, 1
        yield end, queue, milli, WAITS, -1
