"""Objects into the model: one place that knows which change of which kind does what to the World.

Shared by the scheduler's state and the queue view, so that both mean the same by "pending", "reserving" and "active". Knows nothing of decisions.
An object that the model cannot read (a quantity that is none) becomes a fault of that object alone: its queue is inactive, the rest goes on (R9).
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from shared.api.quantity import QuantityError
from shared.bus.interface import ObjectChanged
from shared.decide.devices import Uncountable, devices_of
from shared.decide.requests import DEFAULT_RULES, NO_DEVICES, LogicalDevices, RequestRules, workload_info
from shared.decide.requests_adjust import adjusted
from shared.events.objects import (
    AdmissionCheck,
    ClusterQueue,
    Cohort,
    LocalQueue,
    Namespace,
    Object,
    ResourceFlavor,
    Topology,
    Workload,
)
from shared.events.subjects import ObjectName
from shared.model.activity import NOT_FOUND, Activity, local_queue_activity
from shared.model.admission_fair_sharing import AfsSettings
from shared.model.limit_range import PodRules
from shared.model.pending import OrderPolicy
from shared.model.workload import WorkloadInfo
from shared.model.world import World
from shared.state import pod_rules
from shared.state.objects import Change, Objects
from shared.state.pod_rules import Concerned, PodRulesOfNamespaces

KINDS = (
    "workload",
    "clusterqueue",
    "localqueue",
    "cohort",
    "resourceflavor",
    "admissioncheck",
    "namespace",
    "topology",
    *pod_rules.KINDS,
)
"""What the model reads of OBJECTS."""


class Fold:
    """The newest objects and the World made of them."""

    def __init__(
        self,
        policy: OrderPolicy | None = None,
        rules: RequestRules = DEFAULT_RULES,
        afs: AfsSettings | None = None,
    ) -> None:
        self._rules = rules
        self.objects = Objects()
        self.world = World(policy, afs)
        self.faults: dict[ObjectName, str] = {}
        """Why the newest state of an object could not be taken over into the model."""
        self.recounted: tuple[str, ...] = ()
        """Workloads whose requests the last change made others, though they did not change themselves."""
        self._pods = PodRulesOfNamespaces()

    def change(self, item: ObjectChanged, now: float) -> Change[Object] | None:
        """Take in one message; None if it brought nothing new. Requested retries are left to the caller."""
        change = self.objects.apply(item)
        if change is None:
            return None
        if self.faults:
            self.faults.pop(change.name, None)
        self.recounted = ()
        key = change.key
        match change.name.kind:
            case "workload":
                self._workload(key, change.new, now)
            case "clusterqueue":
                self._cluster_queue(change.name, change.new)
            case "cohort":
                self._cohort(change.name, change.new)
            case kind if kind in pod_rules.KINDS:
                self._pod_rules(change.name, change.new, now)
            case _:
                self._simple(change)
        return change

    def _workload(self, key: str, new: Object | None, now: float) -> None:
        if isinstance(new, Workload) and not new.finished and not new.has_variants:
            before = self.world.workloads.get(key)
            if before is not None and before.requeue_at != new.requeue_at:
                # Parked until a time that no longer holds: its place is found anew.
                self.world.pending.remove(key)
            self.world.upsert(self.info(new, before), now)
        else:
            self.world.delete(key)

    def info(self, workload: Workload, before: WorkloadInfo | None = None) -> WorkloadInfo:
        """The workload as decisions see it, with effective requests; unreadable ones make it invalid, but what it holds still counts.

        `before` is the view of an earlier version, if there is one.
        """
        try:
            rules = self._pods.rules(workload.namespace)
            return workload_info(workload, self._rules, rules, self._devices(workload, rules), before)
        except Uncountable as error:
            plain = workload_info(workload, self._rules, rules)
            return msgspec.structs.replace(plain, invalid=str(error), uncountable=True, shape="", family="")
        except QuantityError as error:
            name = ObjectName("workload", workload.namespace, workload.name)
            self.faults[name] = str(error)
            bare = workload_info(msgspec.structs.replace(workload, pod_sets=()), self._rules)
            return msgspec.structs.replace(bare, invalid=f"requests cannot be read: {error}", shape="", family="")

    def _devices(self, workload: Workload, rules: PodRules) -> LogicalDevices:
        if not self._pods.classes and not any(pod_set.claims for pod_set in workload.pod_sets):
            return NO_DEVICES
        pod_sets = [adjusted(pod_set, rules) for pod_set in workload.pod_sets]
        return devices_of(pod_sets, self._rules, self._pods.classes, self._pods.templates(workload.namespace))

    def _pod_rules(self, name: ObjectName, new: Object | None, now: float) -> None:
        """What pods get beside their template has changed: the requests of those that it concerns are made anew."""
        try:
            concerned = self._pods.take(name, new)
        except QuantityError as error:
            self.faults[name] = str(error)
            concerned = self._pods.take(name, None)
        self.recounted = tuple(self._recount(concerned, now))

    def _recount(self, concerned: Concerned, now: float) -> Iterator[str]:
        world = self.world
        keys = world.workloads_of_namespace(concerned.namespace) if concerned.namespace else tuple(world.workloads)
        for key in keys:
            workload = self.objects.get(Workload, key)
            if workload is None or workload not in concerned:
                continue
            info = self.info(workload)
            if info != world.workloads[key]:
                world.upsert(info, now)
                yield key

    def _cluster_queue(self, name: ObjectName, new: Object | None) -> None:
        world = self.world
        if isinstance(new, ClusterQueue):
            try:
                world.set_cluster_queue(new)
            except QuantityError as error:
                self.faults[name] = str(error)
                world.set_cluster_queue(
                    msgspec.structs.replace(new, groups=(), checks=(), fair_weight="1", stop_policy="Hold")
                )
        else:
            world.remove_cluster_queue(name.key)

    def _cohort(self, name: ObjectName, new: Object | None) -> None:
        world = self.world
        if isinstance(new, Cohort):
            try:
                world.set_cohort(new)
            except QuantityError as error:
                self.faults[name] = str(error)
                world.set_cohort(msgspec.structs.replace(new, groups=(), fair_weight="1"))
        else:
            world.remove_cohort(name.key)

    def _local_queue(self, name: ObjectName, new: LocalQueue) -> None:
        try:
            self.world.set_local_queue(new)
        except QuantityError as error:
            self.faults[name] = str(error)
            self.world.set_local_queue(msgspec.structs.replace(new, fair_weight="1", consumed={}, consumed_at=None))

    def _simple(self, change: Change[Object]) -> None:
        world, key = self.world, change.key
        match change.new:
            case LocalQueue() as local_queue:
                self._local_queue(change.name, local_queue)
            case ResourceFlavor() as flavor:
                world.set_resource_flavor(flavor)
            case AdmissionCheck() as check:
                world.set_admission_check(check)
            case Namespace() as namespace:
                world.set_namespace(namespace.name, namespace.labels)
            case Topology() as topology:
                world.set_topology(topology.name)
            case None:
                self._gone(change.name.kind, key)
            case _:
                pass

    def _gone(self, kind: str, key: str) -> None:
        world = self.world
        match kind:
            case "localqueue":
                world.remove_local_queue(key)
            case "resourceflavor":
                world.remove_resource_flavor(key)
            case "admissioncheck":
                world.remove_admission_check(key)
            case "namespace":
                world.remove_namespace(key)
            case "topology":
                world.remove_topology(key)

    def activity(self, cluster_queue: str) -> Activity:
        """Active condition of a ClusterQueue; a fault of the object is named before all else."""
        fault = self.faults.get(ObjectName("clusterqueue", "", cluster_queue))
        if fault is not None and not self.world.cluster_queues[cluster_queue].deleting:
            return Activity(False, "Unknown", f"Can't admit new workloads: the spec cannot be read: {fault}")
        return self.world.activity(cluster_queue)

    def local_activity(self, local_queue: str) -> Activity:
        """Active condition of a LocalQueue; NotFound if it does not exist."""
        local = self.world.local_queues.get(local_queue)
        if local is None:
            return NOT_FOUND
        known = local.cluster_queue in self.world.cluster_queues
        return local_queue_activity(local.stopped, self.activity(local.cluster_queue) if known else None)
