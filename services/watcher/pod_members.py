"""Which pods form which group: an index that follows the store."""

from collections import defaultdict

from services.watcher.lane_keys import POD_GROUP, pod_lane
from services.watcher.lanes import LaneKey
from services.watcher.store import Change, Store, Stored


class PodMembers:
    """`changed` follows the store; `of` lists."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._names: defaultdict[LaneKey, dict[str, None]] = defaultdict(dict)

    def changed(self, change: Change) -> tuple[LaneKey, ...]:
        """A change of a pod; the lanes that it concerns."""
        before = self.lane_of(change.old) if change.old is not None else None
        after = self.lane_of(change.new) if change.new is not None else None
        if before is not None and before != after and before.kind == POD_GROUP:
            names = self._names[before]
            names.pop(change.subject.name, None)
            if not names:
                del self._names[before]
        if after is not None and after.kind == POD_GROUP:
            self._names[after][change.subject.name] = None
        return tuple(dict.fromkeys(lane for lane in (before, after) if lane is not None))

    def of(self, group: LaneKey) -> list[Stored]:
        """The pods of a group that there are."""
        found = (self._store.get("pod", group.namespace, name) for name in self._names.get(group, ()))
        return [stored for stored in found if stored is not None]

    def has(self, group: LaneKey) -> bool:
        """Whether the group has any."""
        return group in self._names

    @staticmethod
    def lane_of(stored: Stored) -> LaneKey:
        """Of a pod."""
        return pod_lane(stored.object.metadata)
