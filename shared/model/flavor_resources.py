"""Interning of (flavor, resource) pairs to small integers.

Why it exists: every quota and usage value is keyed by such a pair, and integer keys make the vectors of the engine cheap
to hash, compare and store. Indexes depend on the order of first sight, so nothing that leaves the engine may be
ordered by them: order by names instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

Vector = dict[int, int]
"""Amount per interned (flavor, resource). An absent key is 0."""


class FlavorResources:
    """Two-way table of (flavor, resource) pairs and their indexes; it only grows."""

    __slots__ = ("_by_name", "_names")

    def __init__(self) -> None:
        self._by_name: dict[tuple[str, str], int] = {}
        self._names: list[tuple[str, str]] = []

    def index(self, flavor: str, resource: str) -> int:
        """The index of the pair, assigned at first sight."""
        pair = (flavor, resource)
        found = self._by_name.get(pair)
        if found is None:
            found = len(self._names)
            self._by_name[pair] = found
            self._names.append(pair)
        return found

    def pair(self, index: int) -> tuple[str, str]:
        """(flavor, resource) of an index. Raises IndexError for an index never handed out."""
        return self._names[index]

    def by_name(self, vector: Mapping[int, int]) -> dict[tuple[str, str], int]:
        """The vector keyed by names, sorted, for output."""
        return dict(sorted((self._names[index], amount) for index, amount in vector.items()))

    def vector(self, amounts: Iterable[tuple[str, str, int]]) -> Vector:
        """Sum of (flavor, resource, amount) triples as a vector."""
        result: Vector = {}
        for flavor, resource, amount in amounts:
            index = self.index(flavor, resource)
            result[index] = result.get(index, 0) + amount
        return result

    def __len__(self) -> int:
        return len(self._names)
