"""Parking workloads that need not be looked at: others ask for less and still got nothing.

Why it exists: in a crowd in which every workload differs, looking at each after every change costs as much as there are workloads. Workloads of
one family (`shared.model.pending_groups`) differ only in amounts and priority. If a made-up workload that asks for the least of each resource, at the
highest priority and as the oldest, can be neither admitted nor helped by preemption, no member can: within a batch quota is only taken.
Where the least of all could be had, whoever comes later and asks for no less than a refused one is passed over.
A family is parked on such grounds until the next retry, as a workload that was looked at would be; it is asked again before a batch ends, since
admissions of the batch may have become victims.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from shared.decide.decisions import NotAdmitted
from shared.decide.nomination import Nominator
from shared.decide.settings import CycleSettings
from shared.model.pending import RequeueReason
from shared.model.pending_groups import Family, Refused
from shared.model.refusal import PendingReason, Refusal
from shared.model.workload import WorkloadInfo
from shared.model.world import World

_HOPELESS = frozenset({RequeueReason.NO_FIT, RequeueReason.PREEMPTION_NO_CANDIDATES})


class HopelessFamilies:
    """Families parked in one batch, each with the ClusterQueue it waits in and a workload that stands for it."""

    def __init__(self, world: World, settings: CycleSettings) -> None:
        self.world = world
        self.nominator = Nominator(world, settings)
        self._parked: dict[Family, tuple[str, WorkloadInfo]] = {}
        self._hopeful: dict[Family, int] = {}
        """How much was decided when the least of a family could still be had: until more is, it is not asked again."""

    def park(self, refused: Iterable[NotAdmitted]) -> None:
        """Park the families of these refused heads, where even the least of them is hopeless."""
        if not self.world.pending.policy.equivalence_hashing:
            return
        for entry in refused:
            info = self.world.workloads.get(entry.key)
            queue = self.world.pending.queues.get(entry.cluster_queue)
            if entry.requeue not in _HOPELESS or info is None or queue is None or queue.strict:
                continue
            family = queue.family_of(info)
            if family is None:
                continue
            decided = len(self.world.assumed) + len(self.world.preempting)
            if self._hopeful.get(family) != decided and self._is_hopeless(entry.cluster_queue, family, info):
                queue.park_family(family, entry.refusal.reason)
                self._parked[family] = (entry.cluster_queue, info)
            else:
                self._hopeful[family] = decided
                item = queue.find(info.key)
                if item is not None:
                    queue.note_refused(family, Refused(item.order, _short(entry.refusal, info)), entry.refusal.reason)
            self.world.pending.note_ready(entry.cluster_queue)

    def reconsider(self) -> bool:
        """Ask again for the families that are still parked; True if one may be helped now and was woken."""
        woken = False
        for family, (name, info) in self._parked.items():
            queue = self.world.pending.queues.get(name)
            if queue is None or not family.parked or self._is_hopeless(name, family, info):
                continue
            queue.wake_family(family)
            self.world.pending.note_ready(name)
            woken = True
        self._parked.clear()
        return woken

    def _is_hopeless(self, name: str, family: Family, info: WorkloadInfo) -> bool:
        floor = family.floor()
        if len(floor) != len(info.pod_sets):
            return False
        least = msgspec.structs.replace(
            info,
            priority=family.top_priority(),
            created=0,
            conditions=(),
            pod_sets=tuple(
                msgspec.structs.replace(pod_set, requests=amounts)
                for pod_set, amounts in zip(info.pod_sets, floor, strict=True)
            ),
        )
        return not self.nominator.find(self.world.cluster_queues[name], least).acceptable


def _short(refusal: Refusal, info: WorkloadInfo) -> tuple[dict[str, int], ...]:
    """Amounts of the resources of which there was not enough; of all resources where the refusal does not tell.

    A flavor without enough of one resource stays so for whoever asks for no less of it, whatever else that one asks for. Where preemption
    could give each resource but not all together, no single one is to blame.
    """
    short = {reason.resource for pod_set in refusal.pod_sets for reason in pod_set.reasons if reason.resource}
    if refusal.reason != PendingReason.WAITING_FOR_QUOTA or len(info.pod_sets) > 1 or len(short) != 1:
        return tuple(pod_set.requests for pod_set in info.pod_sets)
    amounts = info.pod_sets[0].requests
    return ({name: amounts[name] for name in sorted(short) if name in amounts},)
