"""The order in which the heads of one cycle are processed (classical, without fair sharing; core rule 6.2).

Why it exists: the order decides who gets scarce quota first. Ties that upstream leaves open are broken by uid and key, so that
equal input always gives equal output.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Generic, Protocol, TypeVar

import msgspec

from shared.model.workload import WorkloadInfo, queue_timestamp

Entry = TypeVar("Entry")

HeadKey = tuple[bool, bool, int, int, float, str, str]


class HeadOrder(msgspec.Struct, frozen=True, gc=False):
    """Gates and settings of the order."""

    by_eviction: bool = True
    priority_within_cohort: bool = True
    prioritize_preemptors: bool = False
    prioritize_non_borrowing: bool = True
    """With fair sharing: heads that need not borrow go first."""


def head_key(info: WorkloadInfo, level: int, preemptor: bool, order: HeadOrder) -> HeadKey:
    """Sort key of a head; smaller goes first.

    `level` is the borrowing level of its assignment, `preemptor` tells that it already waits for victims.
    """
    stamp = queue_timestamp(info, by_eviction=order.by_eviction, priority_within_cohort=order.priority_within_cohort)
    return (
        not info.reserved,
        not (order.prioritize_preemptors and preemptor),
        level,
        -info.priority if order.priority_within_cohort else 0,
        stamp,
        info.uid,
        info.key,
    )


class EntrySequence(Protocol[Entry]):
    """Gives the entries of a cycle one after the other; the usage of the last one's ClusterQueue may have changed meanwhile."""

    def next(self) -> Entry | None:
        """The entry to process now; None when there is none left."""
        ...

    def rest(self) -> list[Entry]:
        """Entries not given yet."""
        ...


class SortedEntries(Generic[Entry]):
    """A fixed order."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._left = deque(entries)

    def next(self) -> Entry | None:
        return self._left.popleft() if self._left else None

    def rest(self) -> list[Entry]:
        return list(self._left)
