"""How far a long run is, how fast, and how long it will take still: a bar on a terminal, a line now and then elsewhere (CI, a file)."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

T = TypeVar("T")

LINE_EVERY_S = 30.0


def shown(
    results: Iterable[T],
    total: int,
    what: str,
    broken: Callable[[T], bool],
    *,
    console: Console | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[T]:
    """Hands the results on as they come, and tells of them on stderr (or `console`) meanwhile. `broken`: counts as a failure."""
    console = console or Console(file=sys.stderr)
    begun = told = clock()
    failed = 0
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[failed]} broken"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=total, failed=0)
        for count, result in enumerate(results, 1):
            failed += broken(result)
            bar.update(task, completed=count, failed=failed)
            now = clock()
            if not console.is_terminal and now - told >= LINE_EVERY_S:
                told = now
                console.print(line(count, total, what, failed, now - begun), highlight=False, soft_wrap=True)
            yield result


def line(count: int, total: int, what: str, failed: int, seconds: float) -> str:
    """One line of progress, after `seconds`."""
    left = (total - count) * seconds / count
    return f"{count} of {total} {what}, {failed} broken, {60 * count / seconds:.0f} a minute, {_minutes(left)} left, {_minutes(seconds)} so far"


def _minutes(seconds: float) -> str:
    whole = round(seconds)
    return f"{whole // 60}:{whole % 60:02d} min"
