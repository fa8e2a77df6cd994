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


class _Told(msgspec.Struct, frozen=True, gc=False):
    """A chapter whose details are not in words yet."""

    at: float
    what: str
    detail: object


class Stories:
    """The last chapters of the workloads most recently heard of."""

    def __init__(self, entries: int = ENTRIES_PER_KEY, keys: int = KEYS_KEPT) -> None:
        self._entries = entries
        self._keys = keys
        self._rings: OrderedDict[str, list[_Told]] = OrderedDict()

    def tell(self, key: str, at: float, what: str, detail: object = "") -> None:
        """Add a chapter; what repeats the one before is not told twice. `detail`: immutable, its `str` is taken when the story is read."""
        rings = self._rings
        ring = rings.get(key)
        if ring is None:
            if len(rings) >= self._keys:
                rings.popitem(last=False)
            rings[key] = [_Told(at, what, detail)]
            return
        rings.move_to_end(key)
        last = ring[-1]
        if last.what != what or last.detail != detail:
            ring.append(_Told(at, what, detail))
            if len(ring) > self._entries:
                del ring[0]

    def of(self, key: str) -> tuple[Chapter, ...]:
        """Oldest first; empty for a key never heard of, or forgotten."""
        return tuple(Chapter(one.at, one.what, str(one.detail)) for one in self._rings.get(key, ()))
