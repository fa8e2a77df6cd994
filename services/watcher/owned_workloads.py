"""Workloads by the kind and name of their job. The store's index by uid cannot answer once the job itself is gone."""

from collections import defaultdict
from datetime import UTC, datetime

from services.watcher.lane_keys import owner_lane, workload_lane
from services.watcher.lanes import LaneKey
from services.watcher.store import Change, Store, Stored
from shared.api import names
from shared.api.workload import Workload

_LONG_AGO = datetime.fromtimestamp(0, UTC)


class OwnedWorkloads:
    """`changed` follows the store; `of` lists, oldest first."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._names: defaultdict[LaneKey, set[str]] = defaultdict(set)

    def changed(self, change: Change) -> None:
        """A change of a workload."""
        for owner in _owners(change.old) - _owners(change.new):
            self._names[owner].discard(change.subject.name)
            if not self._names[owner]:
                del self._names[owner]
        if change.new is not None:
            for owner in _owners(change.new):
                self._names[owner].add(change.new.name)

    def of(self, job: LaneKey) -> list[Stored]:
        """The workloads that a job of this kind, namespace and name owns or owned, oldest first."""
        found = (self._store.get("workload", job.namespace, name) for name in self._names.get(job, ()))
        return sorted((s for s in found if s is not None), key=_age)

    def has(self, job: LaneKey) -> bool:
        """Whether there is any."""
        return job in self._names


def _owners(stored: Stored | None) -> set[LaneKey]:
    if stored is None:
        return set()
    metadata = stored.object.metadata
    if metadata.annotations.get(names.IS_GROUP_WORKLOAD) == "true":
        return {workload_lane(metadata)}
    return {owner_lane(owner, stored.namespace) for owner in metadata.owner_references}


def _age(stored: Stored) -> tuple[datetime, str]:
    created = stored.object.metadata.creation_timestamp if isinstance(stored.object, Workload) else None
    return created or _LONG_AGO, stored.uid
