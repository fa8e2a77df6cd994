"""One pass over a StatefulSet or LeaderWorkerSet whose pods queue (job specification 15.2, 15.3).

1. A set that is gone: pods that it left behind lose our gates, as far as its kind says so. One that is being deleted is left alone.
2. Only those are ours that carry no other kind's mark, in a namespace that is managed, with a queue and no managed owner.
3. Its workloads are brought in step (`serving_workloads`).
4. Its pods are marked as those of their groups, or released (`serving_pods`), even where a workload could not be written.
"""

from collections.abc import Mapping

import msgspec

from services.watcher.lanes import LaneKey, TryAgain
from services.watcher.managed_jobs import ManagedJobs
from services.watcher.serving_pods import PodMarker, ServingPods
from services.watcher.serving_workloads import ServingWorkloads
from services.watcher.store import Store
from shared.jobs.manifest import JsonObject
from shared.jobs.queue_membership import OwnershipError
from shared.jobs.queueing_parent import GroupedParent


class ServingReconciler:
    """`kinds`: those that are enabled, by token. Raises TryAgain for what needs another pass soon."""

    def __init__(
        self,
        kinds: Mapping[str, GroupedParent],
        store: Store,
        managed: ManagedJobs,
        workloads: ServingWorkloads,
        pods: ServingPods,
        marker: PodMarker,
    ) -> None:
        self.kinds = kinds
        self._store = store
        self._managed = managed
        self._workloads = workloads
        self._pods = pods
        self._marker = marker

    async def reconcile(self, lane: LaneKey) -> None:
        """One pass over the set of a lane."""
        kind = self.kinds[lane.kind]
        stored = self._store.get(lane.kind, lane.namespace, lane.name)
        if stored is None:
            await self._marker.mark(kind, None, self._pods.of(lane), {})
            return
        metadata = stored.object.metadata
        if metadata.deletion_timestamp is not None:
            return
        parent: JsonObject = msgspec.json.decode(stored.raw, type=dict[str, object])
        if kind.foreign(parent):
            return
        try:
            standing = await self._managed.standing(metadata)
        except OwnershipError as error:
            raise TryAgain(str(error)) from error
        if not standing.managed or not standing.top_level:
            return
        failed: TryAgain | None = None
        workloads: dict[str, str] = {}
        try:
            workloads = await self._workloads.sync(kind, stored, parent)
        except TryAgain as error:
            failed = error
        await self._marker.mark(kind, parent, self._pods.of(lane), workloads)
        if failed is not None:
            raise failed
