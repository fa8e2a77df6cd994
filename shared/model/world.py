"""World: the whole state decisions are taken on, kept incrementally (R7).

Why it exists: queues, flavors, quota usage and the waiting lines depend on each other; each change of an object is applied
here once, with the retries it must trigger. Folding bus messages into it is `shared.state`'s work, choosing whom to admit
is `shared.decide`'s. It holds three kinds of usage truth: objects with a reservation, assumptions (decided, not yet
settled; they count as spent until `settle`), and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from shared.model import cluster_queue as configs
from shared.model.activity import NOT_FOUND, Activity, Check, cluster_queue_activity
from shared.model.admission_fair_sharing import AdmissionFairSharing, AfsSettings, charged_requests
from shared.model.cluster_queue import ClusterQueue, Cohort, LocalQueue, ResourceFlavor
from shared.model.flavor_resources import FlavorResources, Vector
from shared.model.matching import MalformedSelector, selector_matches
from shared.model.pending import OrderPolicy, PendingQueues
from shared.model.quota_tree import QuotaForest
from shared.model.reservations import NEWEST, Rank, Reservations, rank_of
from shared.model.sources import (
    AdmissionCheckSource,
    ClusterQueueSource,
    CohortSource,
    LocalQueueSource,
    ResourceFlavorSource,
)
from shared.model.workload import Admission, WorkloadInfo


class Charge(msgspec.Struct, frozen=True, gc=False):
    """Quota a workload is counted with."""

    admission: Admission
    vector: Vector


class World:
    """Everything a decision may look at.

    Changes go through the methods; readers use the attributes and must not modify them. `flush_retries` executes the
    retries that changes asked for.
    """

    def __init__(self, policy: OrderPolicy | None = None, afs: AfsSettings | None = None) -> None:
        self.afs = AdmissionFairSharing(afs) if afs is not None else None
        """Usage of LocalQueues; None when admission fair sharing is not configured."""
        self.interned = FlavorResources()
        self.forest = QuotaForest()
        self.pending = PendingQueues(policy, self.namespace_matches)
        self.flavors: dict[str, ResourceFlavor] = {}
        self.checks: dict[str, Check] = {}
        self.topologies: dict[str, None] = {}
        self.namespaces: dict[str, Mapping[str, str]] = {}
        self.cohorts: dict[str, Cohort] = {}
        self.cluster_queues: dict[str, ClusterQueue] = {}
        self.local_queues: dict[str, LocalQueue] = {}
        self.activities: dict[str, Activity] = {}
        self.workloads: dict[str, WorkloadInfo] = {}
        self.charges: dict[str, Charge] = {}
        self.assumed: dict[str, Admission] = {}
        """Decided reservations that are not settled, by workload key."""
        self.preempting: dict[str, str] = {}
        """Decided evictions that the objects do not show yet: workload key -> key of its preemptor."""
        self.not_ready: dict[str, None] = {}
        """Workloads that hold quota and whose pods are not ready."""
        self.families: dict[str, dict[str, None]] = {}
        """Uid of a parent workload -> keys of its variants."""
        self.members: dict[str, dict[str, None]] = {}
        """ClusterQueue -> keys of workloads counted in it (also for ClusterQueues that do not exist)."""
        self.inactive_by_order: frozenset[str] = frozenset()
        """ClusterQueues treated as inactive whatever their objects say (tests, simulations)."""
        self.unfinished: object | None = None
        """A cycle that was cut before all its heads were looked at; it goes on unless something changed since."""
        self.changes = 0
        """Number of changes that came from outside (objects, settlements)."""
        self.cycle = 0
        """Number of cycles run so far."""
        self._by_local: dict[str, dict[str, None]] = {}
        self._reservations = Reservations()
        self._assumed_at: dict[str, float] = {}
        self._retries: dict[str, None] = {}
        self._matches: dict[tuple[str, str], bool] = {}
        """Answers of `namespace_matches`; void when a namespace or a ClusterQueue changes."""

    # --- objects ---------------------------------------------------------------------------------------------------

    def set_namespace(self, name: str, labels: Mapping[str, str]) -> None:
        """A namespace exists with these labels; a new match is a reason to look at parked workloads again."""
        self.changes += 1
        before = self.namespaces.get(name)
        if before is not None and dict(before) == dict(labels):
            return
        matched = {queue for queue in self.cluster_queues if before is not None and self.namespace_matches(queue, name)}
        self.namespaces[name] = labels
        self._matches.clear()
        for queue in self.cluster_queues:
            if queue not in matched and self.namespace_matches(queue, name):
                self.request_retry(queue)

    def remove_namespace(self, name: str) -> None:
        self.changes += 1
        self.namespaces.pop(name, None)
        self._matches.clear()

    def set_resource_flavor(self, source: ResourceFlavorSource) -> None:
        """A flavor is new or has changed."""
        self.changes += 1
        flavor = configs.resource_flavor(source)
        if self.flavors.get(flavor.name) != flavor:
            self.flavors[flavor.name] = flavor
            self._users_changed(flavor.name, retry=True)

    def remove_resource_flavor(self, name: str) -> None:
        self.changes += 1
        if self.flavors.pop(name, None) is not None:
            self._users_changed(name, retry=False)

    def set_admission_check(self, source: AdmissionCheckSource) -> None:
        """A check is new or has changed its activity."""
        self.changes += 1
        active = source.active is not None and source.active.status
        check = Check(source.name, source.controller, active)
        if self.checks.get(check.name) != check:
            self.checks[check.name] = check
            self._users_changed(check.name, retry=False)

    def remove_admission_check(self, name: str) -> None:
        self.changes += 1
        if self.checks.pop(name, None) is not None:
            self._users_changed(name, retry=False)

    def set_topology(self, name: str) -> None:
        self.changes += 1
        self.topologies[name] = None
        for queue in self.cluster_queues:
            self._update_activity(queue)

    def remove_topology(self, name: str) -> None:
        self.changes += 1
        self.topologies.pop(name, None)
        for queue in self.cluster_queues:
            self._update_activity(queue)

    def _users_changed(self, name: str, retry: bool) -> None:
        for queue in self.cluster_queues.values():
            if name in queue.flavor_names() or any(rule.name == name for rule in queue.checks):
                self._update_activity(queue.name)
                if retry:
                    self.request_retry(queue.name)

    def set_cohort(self, source: CohortSource) -> None:
        """A Cohort object is new or has changed. Raises QuantityError."""
        self.changes += 1
        cohort = configs.cohort(source, self.interned)
        if self.cohorts.get(cohort.name) == cohort:
            return
        before = self.cohorts.get(cohort.name)
        if before is not None and before.parent != cohort.parent:
            # What stays behind may fit better without the usage that leaves.
            for queue in self.forest.members_of_cohort_tree(cohort.name):
                self.request_retry(queue)
        self.cohorts[cohort.name] = cohort
        self.forest.set_cohort(cohort.name, cohort.parent, cohort.quotas)
        for queue in self.forest.members_of_cohort_tree(cohort.name)[:1]:
            self.request_retry(queue)

    def remove_cohort(self, name: str) -> None:
        """The Cohort object is gone; what referred to it keeps an implicit cohort."""
        self.changes += 1
        if self.cohorts.pop(name, None) is None:
            return
        affected = self.forest.members_of_cohort_tree(name)
        self.forest.remove_cohort(name)
        for queue in affected:
            self.request_retry(queue)

    def set_cluster_queue(self, source: ClusterQueueSource) -> None:
        """A ClusterQueue is new or has changed. Raises QuantityError."""
        self.changes += 1
        config = configs.cluster_queue(source, self.interned)
        before = self.cluster_queues.get(config.name)
        if before == config:
            return
        if before is not None and before.cohort != config.cohort:
            for queue in self.forest.tree_of(config.name):
                self.request_retry(queue)
        self.cluster_queues[config.name] = config
        self._matches.clear()
        self.forest.set_cluster_queue(config.name, config.cohort, config.quotas)
        if before is None:
            for key in self.members.get(config.name, ()):
                self.forest.add_usage(config.name, self.charges[key].vector)
        self._update_activity(config.name)
        if before is None:
            for local in self.local_queues.values():
                if local.cluster_queue == config.name:
                    self._open_local_queue(local)
        self.request_retry(config.name)

    def remove_cluster_queue(self, name: str) -> None:
        self.changes += 1
        if self.cluster_queues.pop(name, None) is None:
            return
        self._matches.clear()
        for queue in self.forest.tree_of(name):
            self.request_retry(queue)
        self.activities.pop(name, None)
        self.forest.remove_cluster_queue(name)
        self.pending.remove_cluster_queue(name)

    def set_local_queue(self, source: LocalQueueSource) -> None:
        """A LocalQueue is new or has changed; closing it empties its part of the waiting line."""
        self.changes += 1
        local = configs.local_queue(source)
        before = self.local_queues.get(local.key)
        if before == local:
            return
        self.local_queues[local.key] = local
        if self.afs is not None:
            self.afs.set_weight(local.key, local.fair_weight)
            if local.consumed is not None:
                self.afs.take_record(local.key, local.consumed)
        if local.stopped or local.deleting:
            self.pending.remove_local_queue(local.key)
        elif before is None or before.stopped or before.cluster_queue != local.cluster_queue:
            self._open_local_queue(local)

    def remove_local_queue(self, key: str) -> None:
        self.changes += 1
        self.local_queues.pop(key, None)
        self.pending.remove_local_queue(key)
        if self.afs is not None:
            self.afs.forget(key)

    def _open_local_queue(self, local: LocalQueue) -> None:
        if local.stopped or local.deleting:
            return
        self.pending.set_local_queue(local.key, local.cluster_queue)
        for key in self._by_local.get(local.key, ()):
            if key not in self.charges and self.pending.place_of(key) is None:
                self.pending.adopt(self.workloads[key])

    def _update_activity(self, name: str) -> None:
        config = self.cluster_queues[name]
        activity = cluster_queue_activity(config, self.flavors, self.checks, self.topologies)
        if name in self.inactive_by_order:
            activity = Activity(False, "Stopped", "inactive by order")
        before = self.activities.get(name)
        self.activities[name] = activity
        self.forest.set_active(name, activity.active)
        usage_of = self.afs.usage if self.afs is not None and config.usage_based_admission else None
        self.pending.set_cluster_queue(name, strict=config.strict, active=activity.active, usage_of=usage_of)
        if activity.active and before is not None and not before.active:
            self.request_retry(name)

    # --- workloads -------------------------------------------------------------------------------------------------

    def upsert(self, info: WorkloadInfo, now: float) -> None:
        """A workload is new or has changed. An assumption about it goes on counting until `settle`."""
        before = self.workloads.get(info.key)
        if not self._only_confirms(before, info):
            self.changes += 1
        if info.finished:
            self.delete(info.key)
            return
        if before is not None and before.uid != info.uid:
            self.delete(info.key)
            before = None
        if before is not None and before.queue_key != info.queue_key:
            self._leave_local(before)
        self.workloads[info.key] = info
        self._by_local.setdefault(info.queue_key, {})[info.key] = None
        if info.parent_uid:
            self.families.setdefault(info.parent_uid, {})[info.key] = None
        if self.afs is not None:
            name = info.admission.cluster_queue if info.admission is not None else ""
            self.afs.follow(before, info, self._usage_based(name))
            if before is None:
                self._penalize(info.key)
        if info.key not in self.assumed:
            self._follow_object(info, now)
        self._rank(info.key)
        if before is not None and info.admission is not None and before.priority != info.priority:
            self.request_retry(info.admission.cluster_queue)

    def _only_confirms(self, before: WorkloadInfo | None, info: WorkloadInfo) -> bool:
        """Does this change say nothing but what was assumed already, so that a cycle that was cut may go on?"""
        return (
            before is not None
            and info.admission is not None
            and info.admission == self.assumed.get(info.key)
            and before.uid == info.uid
            and before.generation == info.generation
            and before.priority == info.priority
            and before.queue_key == info.queue_key
            and not info.finished
            and not info.is_true("Evicted")
            and info.key not in self.preempting
        )

    def delete(self, key: str) -> None:
        """A workload is gone or finished: it neither waits nor counts, whatever was assumed about it."""
        self.changes += 1
        info = self.workloads.pop(key, None)
        if info is not None:
            self._leave_local(info)
            self._leave_family(info)
        self.assumed.pop(key, None)
        self._assumed_at.pop(key, None)
        self.preempting.pop(key, None)
        if self.afs is not None:
            self.afs.gone(key)
        self.pending.remove(key)
        self._charge(key, None)
        self._rank(key)

    def _leave_local(self, info: WorkloadInfo) -> None:
        keys = self._by_local.get(info.queue_key)
        if keys is not None:
            keys.pop(info.key, None)
            if not keys:
                del self._by_local[info.queue_key]

    def _leave_family(self, info: WorkloadInfo) -> None:
        family = self.families.get(info.parent_uid)
        if family is not None:
            family.pop(info.key, None)
            if not family:
                del self.families[info.parent_uid]

    def _rank(self, key: str) -> None:
        """Keep the order of possible victims, and who is not ready, as object and assumptions say."""
        charge, info = self.charges.get(key), self.workloads.get(key)
        if charge is None:
            # Whatever had a charge without ready pods is in `not_ready`.
            self.not_ready.pop(key, None)
            self._reservations.drop(key)
            return
        if info is None or (key in self.assumed) or not info.is_true("PodsReady"):
            self.not_ready[key] = None
        else:
            self.not_ready.pop(key, None)
        if info is None:
            # Nobody knows its priority: it cannot be chosen.
            self._reservations.drop(key)
            return
        self._reservations.put(key, charge.admission.cluster_queue, rank_of(info, self.evicted(key), self._since(info)))

    def _since(self, info: WorkloadInfo) -> float:
        if info.key in self.assumed:
            return self._assumed_at.get(info.key, NEWEST)
        reserved = info.condition("QuotaReserved")
        return reserved.changed if reserved is not None and reserved.status else NEWEST

    def _follow_object(self, info: WorkloadInfo, now: float) -> None:
        self._charge(info.key, info.admission)
        if info.admission is None and info.admissible():
            self.pending.push(info, now)
        else:
            self.pending.remove(info.key)

    def _charge(self, key: str, admission: Admission | None) -> None:
        """Make the counted usage of a workload this; freed quota is a reason for its tree to look again."""
        before = self.charges.get(key)
        if before is not None:
            if before.admission == admission:
                return
            self._uncharge(key, before)
            self.request_retry(before.admission.cluster_queue)
        if admission is not None:
            charge = Charge(admission, admission.vector(self.interned))
            self.charges[key] = charge
            self.members.setdefault(admission.cluster_queue, {})[key] = None
            if self.forest.has_cluster_queue(admission.cluster_queue):
                self.forest.add_usage(admission.cluster_queue, charge.vector)

    def _uncharge(self, key: str, charge: Charge) -> None:
        queue = charge.admission.cluster_queue
        del self.charges[key]
        members = self.members[queue]
        del members[key]
        if not members:
            del self.members[queue]
        if self.forest.has_cluster_queue(queue):
            self.forest.remove_usage(queue, charge.vector)
            self.forest.bump_generation(queue)

    # --- decisions -------------------------------------------------------------------------------------------------

    def assume(self, key: str, admission: Admission, at: float = NEWEST) -> None:
        """A decision taken `at` reserves quota for this workload: it counts as spent until `settle` (R6)."""
        if self.assumed.get(key) != admission:
            # Somebody else's, from the log: the rest of a cycle that was cut knows nothing of it.
            self.changes += 1
        self.pending.remove(key)
        self.assumed[key] = admission
        self._penalize(key)
        self._assumed_at[key] = at
        self._charge(key, admission)
        self._rank(key)

    def assumed_at(self, key: str) -> float | None:
        """When the assumed reservation of this workload was decided; None if there is none."""
        return self._assumed_at.get(key)

    def settle(self, key: str, now: float) -> None:
        """The decision about this workload has its outcome and our view of the object is as new: only the object counts.

        After a rejection the object holds nothing, so the quota is free, its tree is retried and the workload waits again.
        """
        assumed = self.assumed.pop(key, None)
        if assumed is None:
            return
        self._assumed_at.pop(key, None)
        info = self.workloads.get(key)
        if info is None or info.admission != assumed:
            self.changes += 1
        if self.afs is not None and (info is None or info.admission is None):
            self.afs.drop(key)
        if info is None:
            self._charge(key, None)
        else:
            self._follow_object(info, now)
        self._rank(key)

    def _penalize(self, key: str) -> None:
        """Charge its LocalQueue in advance for a workload that is to be admitted."""
        if self.afs is None:
            return
        info, admission = self.workloads.get(key), self.assumed.get(key)
        if info is None or admission is None or info.is_true("Admitted"):
            return
        covered = self._usage_based(admission.cluster_queue)
        if covered is not None:
            self.afs.penalize(key, info.queue_key, charged_requests(info, covered))

    def _usage_based(self, queue: str) -> Mapping[str, int] | None:
        """The resources that a ClusterQueue covers, if it orders its LocalQueues by usage."""
        config = self.cluster_queues.get(queue)
        active = self.afs is not None and config is not None and config.usage_based_admission
        return config.group_of if active and config is not None else None

    def orders_by_usage(self, queue: str) -> bool:
        """Is admission fair sharing in force in this ClusterQueue?"""
        return self._usage_based(queue) is not None

    def assume_preempted(self, key: str, preemptor: str) -> None:
        """A decision evicts this workload: until `settle_preempted` it counts as evicted, whatever its object says."""
        if self.preempting.get(key) != preemptor:
            self.changes += 1
        self.preempting[key] = preemptor
        self._rank(key)

    def settle_preempted(self, key: str, now: float) -> None:
        """That decision has its outcome and our view of the object is as new: only the object tells whether it is evicted.

        After a rejection it is not: its tree is looked at again.
        """
        if self.preempting.pop(key, None) is None:
            return
        self.changes += 1
        self._rank(key)
        charge = self.charges.get(key)
        if charge is not None and not self.evicted(key):
            self.request_retry(charge.admission.cluster_queue)

    def workloads_of_namespace(self, namespace: str) -> tuple[str, ...]:
        """Keys of the known workloads of a namespace."""
        prefix = f"{namespace}/"
        return tuple(key for queue, keys in self._by_local.items() if queue.startswith(prefix) for key in keys)

    # --- retries ---------------------------------------------------------------------------------------------------

    def request_retry(self, queue: str) -> None:
        """Parked workloads of this ClusterQueue's whole tree should be looked at again."""
        self._retries[queue] = None

    def flush_retries(self, now: float) -> int:
        """Execute the requested retries; how many workloads moved. Trees with a cycle are skipped."""
        if not self._retries:
            return 0
        wanted, self._retries = self._retries, {}
        names: dict[str, None] = {}
        for queue in wanted:
            if queue in names or not self.forest.has_cluster_queue(queue):
                continue
            if not self.forest.in_cycle(queue):
                names.update(dict.fromkeys(self.forest.tree_of(queue)))
        return self.pending.retry(sorted(names), now)

    # --- questions -------------------------------------------------------------------------------------------------

    def evicted(self, key: str) -> bool:
        """Is a workload that holds quota on its way out: by a decision, or by its object unless it was admitted since?"""
        if key in self.preempting:
            return True
        info = self.workloads.get(key)
        return key not in self.assumed and info is not None and info.is_true("Evicted")

    def ranked(self, queue: str) -> Sequence[Rank]:
        """Workloads counted in this ClusterQueue, in the order in which they would be preempted. Read only."""
        return self._reservations.ranked(queue)

    def activity(self, queue: str) -> Activity:
        """Active condition of a ClusterQueue."""
        return self.activities.get(queue, NOT_FOUND)

    def in_snapshot(self, queue: str) -> bool:
        """May this ClusterQueue take part in a cycle: active, and its cohorts form a tree."""
        return self.activity(queue).active and not self.forest.in_cycle(queue)

    def namespace_matches(self, queue: str, namespace: str) -> bool:
        """Does the namespace exist and match the ClusterQueue's selector?"""
        known = self._matches.get((queue, namespace))
        if known is None:
            known = self._matches[queue, namespace] = self._namespace_matches(queue, namespace)
        return known

    def _namespace_matches(self, queue: str, namespace: str) -> bool:
        config = self.cluster_queues.get(queue)
        labels = self.namespaces.get(namespace)
        if config is None or labels is None:
            return False
        try:
            return selector_matches(config.namespace_selector, labels)
        except MalformedSelector:
            return False
