"""Shows what takes long and how long it usually takes: a live line on a terminal, plain lines elsewhere."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn


@contextmanager
def step(console: Console, what: str, expectation: str) -> Iterator[None]:
    """Announces `what` with its expected duration, and says afterwards how long it took or that it failed."""
    begun = time.monotonic()
    outcome = "failed after"
    try:
        if console.is_terminal:
            columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
            with Progress(*columns, console=console, transient=True) as progress:
                progress.add_task(f"{what} ({expectation})")
                yield
        else:
            console.print(f"{what} ({expectation}) ...")
            yield
        outcome = "took"
    finally:
        console.print(f"{what}: {outcome} {time.monotonic() - begun:.1f} s")
