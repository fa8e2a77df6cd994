"""Whether a job is ours to hold back: its queue label, its ancestors, its namespace (job specification 4).

The webhook asks at creation, the gateway at every look. Reading owners is the caller's: it walks the chain with `next_owner` and tells what it found.
"""

from collections.abc import Container

import msgspec

from shared.api import names
from shared.api.meta import ObjectMeta, OwnerReference
from shared.jobs.registry import KNOWN, OwnerKind

MAX_CHAIN = 10


class OwnershipError(ValueError):
    """The owners of a job cannot be told: a cycle, an unreadable owner, too long a chain."""


class NestingTooDeep(OwnershipError):
    """More owners above each other than are followed."""


def queue_name(labels: dict[str, str]) -> str:
    """The LocalQueue that a job asks for; empty when it asks for none."""
    return labels.get(names.QUEUE_NAME_LABEL, "")


class AncestorSearch:
    """Walks from a job to its highest managed ancestor. Use: `while owner := search.next_owner(): search.found(metadata of owner)`, then `search.result`."""

    def __init__(self, job: ObjectMeta, *, manage_all: bool, enabled: Container[OwnerKind]) -> None:
        self._current = job
        self._manage_all = manage_all
        self._enabled = enabled
        self._seen = {job.uid}
        self._done = False
        self.result: OwnerReference | None = None
        """The ancestor whose workload stands for the job too."""
        self.result_queue = ""

    def next_owner(self) -> OwnerReference | None:
        """The owner to read next, None when the search is over."""
        owner = None if self._done else self._current.controller_owner()
        if owner is None:
            return None
        kind = OwnerKind(owner.api_version, owner.kind)
        if kind not in KNOWN and kind not in self._enabled:
            return None
        return owner

    def found(self, owner: ObjectMeta | None) -> None:
        """Tell what `next_owner` is; None: it cannot be read. Raises OwnershipError."""
        reference = self._current.controller_owner()
        if owner is None or reference is None:
            raise OwnershipError("workload owner not found")
        if owner.uid != reference.uid:
            # A reference to an owner that is gone protects nothing.
            self._done = True
            return
        kind = OwnerKind(reference.api_version, reference.kind)
        if kind in self._enabled and (self._manage_all or queue_name(owner.labels)):
            self.result = reference
            self.result_queue = queue_name(owner.labels)
        self._current = owner
        if len(self._seen) > MAX_CHAIN:
            raise NestingTooDeep(f"more than {MAX_CHAIN} owners above each other")
        if owner.uid in self._seen:
            raise OwnershipError("cyclic ownership")
        self._seen.add(owner.uid)


class Standing(msgspec.Struct, frozen=True):
    """What a job is to us."""

    managed: bool
    top_level: bool = True
    ancestor: OwnerReference | None = None


def should_suspend(labels: dict[str, str], *, ancestor: bool, manage_all: bool, namespace_matches: bool) -> bool:
    """The webhook's decision for a job that is being created (4.3)."""
    if ancestor:
        return False
    return bool(queue_name(labels)) or (manage_all and namespace_matches)


def standing(labels: dict[str, str], search: AncestorSearch, *, manage_all: bool, namespace_matches: bool) -> Standing:
    """The gateway's filters for a job whose search is over, in their order (4.4)."""
    if not namespace_matches:
        return Standing(managed=False)
    top_level = search.result is None
    if not manage_all and not queue_name(labels) and (top_level or not search.result_queue):
        return Standing(managed=False)
    return Standing(managed=True, top_level=top_level, ancestor=search.result)
