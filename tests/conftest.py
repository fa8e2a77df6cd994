"""For all tests: no example of a property fails for being slow, as how long it takes is the machine's business."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")
