"""What became of one item, as the client saw it. All times are the client's wall clock in seconds; 0 means not yet."""

from __future__ import annotations

import msgspec

from loadtest.generator import Item


class Timeline(msgspec.Struct):
    """States in order: planned, asked (creation request sent), answered, held (seen suspended), reserved, admitted, started (seen unsuspended), finished.

    `admitted` is the first admission seen; `current` that of the present one. A Workload without a job is never held nor started.
    """

    item: Item
    asked: float = 0.0
    answered: float = 0.0
    error: str = ""
    held: bool = False
    reserved: float = 0.0
    admitted: float = 0.0
    current: float = 0.0
    started: float = 0.0
    finished: float = 0.0
    succeeded: bool = False
    evicted: bool = False
    evictions: int = 0
    spans: list[tuple[float, float]] = []
    """From when until when it was admitted, each time."""
    waited_s: float | None = None
    """From creation to the first admission by the object's own times, in whole seconds: as Kueue's suite counts it."""
    workload: str = ""
    """Key of its Workload."""

    @property
    def occupied_s(self) -> float:
        """Time with an admission, over all of them."""
        return sum(end - begin for begin, end in self.spans)

    def reserves(self, at: float) -> None:
        self.reserved = self.reserved or at

    def is_admitted(self, at: float, admitted: bool) -> bool:
        """The Admitted condition as seen at a time; True if an admission begins with it."""
        if admitted and not self.current:
            self.current = at
            self.admitted = self.admitted or at
            return True
        if not admitted and self.current:
            self._leave(at)
        return False

    def is_evicted(self, evicted: bool) -> bool:
        """The Evicted condition as seen; True if an eviction begins with it."""
        begins = evicted and not self.evicted
        self.evictions += begins
        self.evicted = evicted
        return begins

    def is_suspended(self, at: float, suspended: bool) -> None:
        """spec.suspend of the job as seen."""
        if suspended:
            self.held = True
        elif not self.started:
            self.started = at

    def ends(self, at: float, succeeded: bool) -> bool:
        """It has finished; True the first time."""
        if self.finished:
            return False
        self.finished, self.succeeded = at, succeeded
        if self.current:
            self._leave(at)
        return True

    def _leave(self, at: float) -> None:
        self.spans.append((self.current, at))
        self.current = 0.0
