"""What the bus counts about itself, for whoever exports metrics. Plain integers; nothing is reset."""

from __future__ import annotations

import msgspec


class Counters(msgspec.Struct):
    """Counts since the process began."""

    resets: int = 0
    """Replays of a feed, the first one included."""
    resumes: int = 0
    """Consumers made anew behind the last message read."""
    malformed: int = 0
    """Messages that could not be decoded."""
    dead_letters: int = 0
    decoded: int = 0
    appended: int = 0
    races_lost: int = 0
    appends_unknown: int = 0
    appends_refused: int = 0
    objects_written: int = 0
    objects_skipped: int = 0
    """Projections that OBJECTS held already, or held in a newer state."""
    objects_conflicts: int = 0
    """Compare-and-set found another sequence than the one we knew."""
