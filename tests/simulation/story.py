"""All that happened to one thing in a run, written down cheaply while it happens and put into words only when somebody asks.

Faults, epochs and what concerns everybody stand under the empty key; a story shows those that happened while it lasted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from shared.events.decisions import Admit, Preempt
from shared.state.story import Stories

MOST_LINES = 60


class Story:
    """`tell` while it runs; `lines` afterwards."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._chapters: defaultdict[str, list[tuple[float, int, str, tuple[Any, ...]]]] = defaultdict(list)
        self._count = 0

    def tell(self, key: str, what: str, *details: Any) -> None:
        """Add a chapter to the story of `key`."""
        self._count += 1
        self._chapters[key].append((self._now(), self._count, what, details))

    def lines(self, keys: Iterable[str], *, until: float | None = None) -> list[str]:
        """The chapters of these keys in order, with those that concern everybody; the last MOST_LINES."""
        wanted = list(dict.fromkeys(keys))
        own = [(at, count, key, what, d) for key in wanted for at, count, what, d in self._chapters.get(key, ())]
        begins = min((chapter[0] for chapter in own), default=0.0)
        everybody = [(at, count, "", what, d) for at, count, what, d in self._chapters[""] if at >= begins]
        told = Stories(entries=MOST_LINES)
        for at, _, key, what, details in sorted([*own, *everybody]):
            if until is None or at <= until:
                told.tell("", at, f"{key:24} {what}", " ".join(map(_word, details)))
        return [f"{chapter.at:9.3f}  {chapter.what:45} {chapter.detail}" for chapter in told.of("")]


def _word(detail: Any) -> str:
    match detail:
        case Admit():
            return f"Admit into {detail.cluster_queue} (incarnation {detail.incarnation})"
        case Preempt():
            return f"Preempt for {detail.preemptor}"
        case _:
            return str(detail)
