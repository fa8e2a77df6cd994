"""Server-side apply with force: an applied manifest takes over its fields, and what the same manager applied before and no longer does is removed.

Maps are merged, lists are taken as a whole: nothing here knows the list types of a schema. There are no managedFields; who applied what is remembered aside.
"""

from __future__ import annotations

from shared.jobs.manifest import JsonObject, section
from shared.jobs.merge_patch import apply


class AppliedManifests:
    """The last manifest of each manager and object (by uid)."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, str], JsonObject] = {}

    def merged(self, old: JsonObject, manifest: JsonObject, manager: str) -> JsonObject:
        """`old` after the manager applied its manifest."""
        uid = str(section(old, "metadata").get("uid"))
        dropped = _dropped(self._last.get((uid, manager), {}), manifest)
        return apply(apply(old, dropped), manifest)

    def remember(self, uid: str, manifest: JsonObject, manager: str) -> None:
        """The write has been committed."""
        self._last[(uid, manager)] = manifest


def _dropped(before: JsonObject, now: JsonObject) -> JsonObject:
    """A merge patch that removes what `now` has no longer."""
    patch: JsonObject = {}
    for key, value in before.items():
        if key not in now:
            patch[key] = None
        elif isinstance(value, dict):
            inner = _dropped(value, section(now, key))
            if inner:
                patch[key] = inner
    return patch
