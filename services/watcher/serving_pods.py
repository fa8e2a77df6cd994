"""The pods of StatefulSets and LeaderWorkerSets that queue: which there are, and what they need to be those of a group (job specification 15.2, 15.3).

Such a pod is born with our gates and no label of ours. It is given labels and annotations that name its workload, in one write; the rules of groups do all
else. A pod that nobody can admit any more, or that a rollout can only replace once it has started, loses its gates.
"""

from collections import defaultdict
from collections.abc import Mapping

import msgspec

from services.watcher.kinds import STATEFUL_SET, UNMARKED_POD
from services.watcher.lanes import LaneKey, TryAgain
from services.watcher.object_writer import ObjectWriter, Rejected
from services.watcher.patches import Refusal
from services.watcher.pod_control import side_by_side
from services.watcher.store import Change, Store, Stored
from shared.api import names
from shared.api.meta import ObjectMeta
from shared.jobs.manifest import JsonObject
from shared.jobs.protocol import Gates
from shared.jobs.queueing_parent import GroupedParent, ungated
from shared.jobs.registry import token_of

_TOKENS = ("pod", UNMARKED_POD)


class ServingPods:
    """An index that follows the store: `changed` says whose pod it is, `of` lists."""

    def __init__(self, store: Store, kinds: Mapping[str, GroupedParent]) -> None:
        """`kinds`: those that are enabled, by token."""
        self._store = store
        self._kinds = {kind.framework: kind for kind in kinds.values()}
        self._names: defaultdict[LaneKey, set[tuple[str, str]]] = defaultdict(set)

    def lane_of(self, metadata: ObjectMeta) -> LaneKey | None:
        """The lane of the set that the pod queues for; None for all other pods."""
        kind = self._kinds.get(metadata.annotations.get(names.POD_SUSPENDING_PARENT, ""))
        name = kind.set_of(metadata) if kind is not None else ""
        return LaneKey(token_of(kind.group, kind.kind), metadata.namespace, name) if kind is not None and name else None

    def changed(self, change: Change) -> tuple[LaneKey, ...]:
        """A change of a pod; the lanes of the sets that have something to do about it."""
        if not self._kinds:
            return ()
        before = self.lane_of(change.old.object.metadata) if change.old is not None else None
        after = self.lane_of(change.new.object.metadata) if change.new is not None else None
        entry = (change.kind, change.subject.name)
        if before is not None and before != after:
            self._names[before].discard(entry)
            if not self._names[before]:
                del self._names[before]
        if after is not None:
            self._names[after].add(entry)
        if change.old is not None and change.new is not None and _same(change.old, change.new):
            return ()
        return tuple(dict.fromkeys(lane for lane in (before, after) if lane is not None))

    def of(self, lane: LaneKey) -> list[Stored]:
        """The pods of a set, by name. One that has just been marked may still be in both watches: then the newer state."""
        found: dict[str, Stored] = {}
        for token, name in self._names.get(lane, ()):
            stored = self._store.get(token, lane.namespace, name)
            if stored is not None and (name not in found or stored.version > found[name].version):
                found[name] = stored
        return [found[name] for name in sorted(found)]


def _same(old: Stored, new: Stored) -> bool:
    """What has changed is only how the pod fares."""
    before, after = old.object.metadata, new.object.metadata
    return (before.labels, before.annotations, before.deletion_timestamp) == (
        after.labels,
        after.annotations,
        after.deletion_timestamp,
    )


class PodMarker:
    """Writes what pods need. Raises TryAgain when one cannot be written now; the others are, all the same."""

    def __init__(self, store: Store, writer: ObjectWriter, gates: Gates) -> None:
        self._store = store
        self._writer = writer
        self._gates = gates

    async def mark(
        self, kind: GroupedParent, parent: JsonObject | None, pods: list[Stored], workloads: Mapping[str, str]
    ) -> None:
        """`parent`: None once it is gone. `workloads`: by the name that they should have, that which they have."""

        async def one(stored: Stored) -> None:
            def plan(current: Stored) -> JsonObject | Refusal:
                return self._patch(kind, parent, current, workloads)

            result = await self._writer.change(stored.kind, stored.namespace, stored.name, stored.uid, plan)
            if isinstance(result, Rejected) and not result.gone:
                raise TryAgain(f"pod {stored.key} cannot be marked: {result.why}")

        await side_by_side(one(stored) for stored in pods if self._patch(kind, parent, stored, workloads))

    def _patch(
        self, kind: GroupedParent, parent: JsonObject | None, stored: Stored, workloads: Mapping[str, str]
    ) -> JsonObject:
        pod: JsonObject = msgspec.json.decode(msgspec.json.encode(stored.object), type=dict[str, object])
        released = kind.released(parent, self._stateful_set(kind, parent, stored), pod)
        patch: JsonObject = ungated(pod) if released else {}
        if parent is not None and (not released or kind.released_stay):
            older = next(iter(workloads.values()), "") if len(workloads) == 1 else ""
            patch = {**kind.pod_patch(parent, pod, self._gates, older), **patch}
        return patch

    def _stateful_set(self, kind: GroupedParent, parent: JsonObject | None, pod: Stored) -> JsonObject | None:
        """The pod's, if it is the parent's."""
        owner = pod.object.metadata.controller_owner()
        if parent is None or owner is None:
            return None
        stored = self._store.get(STATEFUL_SET, pod.namespace, owner.name)
        if stored is None or stored.uid != owner.uid or not kind.controls(parent, stored.object.metadata):
            return None
        found: JsonObject = msgspec.json.decode(stored.raw, type=dict[str, object])
        return found
