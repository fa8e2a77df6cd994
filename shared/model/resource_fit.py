"""How requests compare with room: how many times they fit, and which of them are larger.

Why it exists: placement and messages ask the same two questions of resource maps in model units. Nothing is charged here.
"""

from __future__ import annotations

from collections.abc import Mapping

MAX_COUNT = 2**31 - 1
"""As many as anybody asks for: pod counts are 32-bit."""


def how_many_fit(requests: Mapping[str, int], capacity: Mapping[str, int]) -> tuple[int, str]:
    """(how many pods of `requests` have room, the resource that limits them most or "").

    A zero request never limits; a resource without capacity has none. Of equally tight resources the first by name is told.
    """
    count, limiting = MAX_COUNT, ""
    for resource in sorted(requests):
        asked = requests[resource]
        if asked <= 0:
            continue
        room = max(0, capacity.get(resource, 0)) // asked
        if room < count or not limiting:
            count, limiting = min(count, room), resource
    return count, limiting


def larger(left: Mapping[str, int], right: Mapping[str, int]) -> tuple[str, ...]:
    """Resources of which `left` has more than `right`, sorted; only those that both name."""
    return tuple(sorted(name for name, amount in left.items() if name in right and amount > right[name]))
