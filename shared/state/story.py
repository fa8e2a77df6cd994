"""What happened to one workload, as this process saw it: for explanations and for the person who debugs. Bounded, and never part of a decision."""

from __future__ import annotations

from collections import OrderedDict

import msgspec

ENTRIES_PER_KEY = 32
KEYS_KEPT = 20_000


class Chapter(msgspec.Struct, frozen=True, gc=False):
    """One thing that happened: when (seconds since the epoch, our clock), what, and details in words."""

    at: float
    what: str
    detail: str = ""


class Stories:
    """The last chapters of the workloads most recently heard of."""

    def __init__(self, entries: int = ENTRIES_PER_KEY, keys: int = KEYS_KEPT) -> None:
        self._entries = entries
        self._keys = keys
        self._rings: OrderedDict[str, list[Chapter]] = OrderedDict()

    def tell(self, key: str, at: float, what: str, detail: str = "") -> None:
        """Add a chapter; what repeats the one before is not told twice."""
        ring = self._rings.pop(key, None)
        if ring is None:
            ring = []
            if len(self._rings) >= self._keys:
                self._rings.popitem(last=False)
        self._rings[key] = ring
        if not ring or (ring[-1].what, ring[-1].detail) != (what, detail):
            ring.append(Chapter(at, what, detail))
            if len(ring) > self._entries:
                del ring[0]

    def of(self, key: str) -> tuple[Chapter, ...]:
        """Oldest first; empty for a key never heard of, or forgotten."""
        return tuple(self._rings.get(key, ()))
