"""The engine's state of one case, and the steps that act on it without a scheduling cycle.

Builds a World of the case's objects as the format page says. A step or expectation that is not known raises NotCovered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from shared.api.workload_status import WorkloadStatus
from shared.decide.requests import workload_info
from shared.decide.reservation import set_aside
from shared.decide.single_cycle import Outcome
from shared.model.pending import OrderPolicy, RequeueReason, ScanProgress
from shared.model.second_pass import SecondPasses
from shared.model.workload import WorkloadInfo
from shared.model.world import World
from tests.conformance import fairness, objects
from tests.conformance.effective_requests import rules_of, rules_of_pods
from tests.conformance.scenario import Case, NotCovered

Json = dict[str, Any]

GATES_OFF = frozenset(
    {
        "ConcurrentAdmission",
        "PriorityBoost",
        "PrioritizePreemptorWorkloads",
        "MultiKueueOrchestratedPreemption",
        "UnadmittedWorkloadsExplicitStatus",
        "WorkloadRequestUseMergePatch",
    }
)


class Engine:
    """World, clock and the answers of steps that expectations ask for."""

    def __init__(self, case: Case) -> None:
        raw = case.raw
        self.case = case
        self.statuses: dict[str, WorkloadStatus] = {}
        """Status of workloads as written so far, by key."""
        self.events: list[tuple[str, str, str]] = []
        """(object, type, reason) in the order emitted."""
        self.gates: dict[str, bool] = raw.get("gates") or {}
        self.config: Json = raw.get("config") or {}
        self.now = objects.seconds(raw.get("now"))
        self.answers: Json = {}
        self.limits: list[Json] = []
        """LimitRanges and RuntimeClasses."""
        self.outcome = Outcome()
        """What the last cycle (or search for victims) decided."""
        self.rules = msgspec.structs.replace(
            rules_of(self.config, self.gates),
            priority_boost=self.gate("PriorityBoost"),
            equivalence_hashing=self.gate("SchedulingEquivalenceHashing"),
            admission_gates=self.gate("AdmissionGatedBy"),
        )
        strategy = (self.config.get("waitForPodsReady") or {}).get("requeuingStrategy") or {}
        self.world = World(
            OrderPolicy(
                by_eviction=strategy.get("timestamp", "Eviction") == "Eviction",
                priority_within_cohort=self.gate("PrioritySortingWithinCohort"),
                equivalence_hashing=self.gate("SchedulingEquivalenceHashing"),
            ),
            fairness.afs_settings(self.config, self.gate("AdmissionFairSharing")),
        )
        self.world.inactive_by_order = frozenset(self.config.get("inactiveClusterQueues") or ())
        self.known: set[str] = set()
        self.second_passes = SecondPasses()
        self.second_pass_infos: dict[str, WorkloadInfo] = {}
        self.raws: dict[tuple[str, str], Json] = {}
        self.existence_matters = "requeued" in (raw.get("expect") or {})
        """Cases about refused requeues name the workloads that exist; others leave that out."""
        self._load(raw.get("objects") or [])
        fairness.seed_usage(self, raw.get("localQueueUsage") or {})
        if "usage" in raw:
            self._put_usage(raw["usage"])

    def gate(self, name: str) -> bool:
        """Is this feature gate on in the case?"""
        return self.gates.get(name, name not in GATES_OFF)

    def info(self, raw: Json) -> WorkloadInfo:
        namespace = raw["metadata"].get("namespace", "")
        limits = [one for one in self.limits if one["metadata"].get("namespace", "") in ("", namespace)]
        return workload_info(objects.workload(raw), self.rules, rules_of_pods(limits))

    def _load(self, raws: list[Json]) -> None:
        order = (
            "LimitRange",
            "RuntimeClass",
            "Namespace",
            "ResourceFlavor",
            "Topology",
            "AdmissionCheck",
            "Cohort",
            "ClusterQueue",
            "LocalQueue",
            "",
        )
        for kind in order:
            for raw in raws:
                if raw["kind"] == kind or (not kind and raw["kind"] not in order):
                    self._put(raw)

    def _put(self, raw: Json) -> None:
        world = self.world
        setters: dict[str, Callable[[], None]] = {
            "Namespace": lambda: world.set_namespace(raw["metadata"]["name"], raw["metadata"].get("labels") or {}),
            "ResourceFlavor": lambda: world.set_resource_flavor(objects.resource_flavor(raw)),
            "Topology": lambda: world.set_topology(raw["metadata"]["name"]),
            "AdmissionCheck": lambda: world.set_admission_check(objects.admission_check(raw)),
            "Cohort": lambda: world.set_cohort(objects.cohort(raw)),
            "ClusterQueue": lambda: world.set_cluster_queue(objects.cluster_queue(raw)),
            "LocalQueue": lambda: world.set_local_queue(objects.local_queue(raw)),
            "Workload": lambda: self._put_workload(raw),
            "LimitRange": lambda: self.limits.append(raw),
            "RuntimeClass": lambda: self.limits.append(raw),
        }
        if raw["kind"] == "Node":
            return
        if raw["kind"] not in setters:
            raise NotCovered(f"object of kind {raw['kind']}")
        self.raws[(raw["kind"], objects.key_of(raw))] = raw
        setters[raw["kind"]]()

    def _put_workload(self, raw: Json) -> None:
        info = self.info(raw)
        self.known.add(info.key)
        self.world.upsert(info, self.now)

    def _put_usage(self, usage: dict[str, dict[str, int]]) -> None:
        for queue, amounts in usage.items():
            self.world.forest.add_usage(queue, self.vector(amounts))

    def vector(self, amounts: dict[str, int]) -> dict[int, int]:
        """`{"flavor/resource": n}` as an interned vector."""
        pairs = ((name.partition("/"), amount) for name, amount in amounts.items())
        return self.world.interned.vector((flavor, resource, amount) for (flavor, _, resource), amount in pairs)

    # --- steps -----------------------------------------------------------------------------------------------------

    def do(self, step: Json) -> None:
        """Run one step."""
        name = step["do"]
        method = getattr(self, f"step_{_snake(name)}", None)
        if method is None:
            raise NotCovered(f"step {name}")
        method(step)

    def step_numbers(self, step: Json) -> None:
        """Nothing: the expectations compare numbers."""

    def step_add_usage(self, step: Json) -> None:
        for key in step["workloads"]:
            charge = self.world.charges[key]
            self.world.forest.add_usage(charge.admission.cluster_queue, charge.vector)
            self.world.members.setdefault(charge.admission.cluster_queue, {})[key] = None

    def step_remove_usage(self, step: Json) -> None:
        for key in step["workloads"]:
            charge = self.world.charges[key]
            self.world.forest.remove_usage(charge.admission.cluster_queue, charge.vector)
            self.world.members[charge.admission.cluster_queue].pop(key)

    def step_reserve(self, step: Json) -> None:
        usage = self.vector(step["usage"])
        queue = step["clusterQueue"]
        reserved = usage if step["mode"] == "Fit" else set_aside(self.world.forest, queue, step["borrowing"], usage)
        self.answers["reserved"] = self.named(reserved)

    def named(self, vector: dict[int, int], *, zeros: bool = True) -> dict[str, int]:
        """An interned vector with names."""
        return {
            "/".join(pair): amount for pair, amount in self.world.interned.by_name(vector).items() if zeros or amount
        }

    def step_shares(self, step: Json) -> None:
        fairness.shares(self, step)

    def step_borrowing_on(self, step: Json) -> None:
        fairness.borrowing_on(self, step)

    def step_push(self, step: Json) -> None:
        info = self.info(step["workload"])
        self.known.add(info.key)
        queue = step.get("clusterQueue")
        if queue is not None:
            self.answers["accepted"] = self.world.pending.push(info, self.now, queue)
        else:
            self.world.upsert(info, self.now)
            self.answers["accepted"] = self.world.pending.place_of(info.key) is not None
        self.note_members()

    def step_exists(self, step: Json) -> None:
        self.known.add(self.info(step["workload"]).key)

    def step_requeue(self, step: Json) -> None:
        info = self.info(step["workload"])
        tried = step.get("lastTriedFlavorIndexes")
        if tried is not None:
            progress = ScanProgress(tuple(tuple(sorted(pod_set.items())) for pod_set in tried))
            self.world.pending.progress[info.key] = progress

        def once() -> bool:
            if self.existence_matters and info.key not in self.known:
                return False
            return self.world.pending.requeue(
                info,
                RequeueReason(step["reason"]),
                self.now,
                cluster_queue=step.get("clusterQueue"),
                immediate=step.get("immediate"),
            )

        self.answers["requeued"] = once()
        self.requeue_once_more = once
        self.note_members()

    def step_retry(self, step: Json) -> None:
        moved = 0
        for queue in self.world.forest.cluster_queues():
            if not self.world.forest.in_cycle(queue):
                moved += self.world.pending.retry([queue], self.now)
        self.answers["moved"] = moved

    def step_remove(self, step: Json) -> None:
        self.world.pending.remove(step["workload"])

    def step_advance(self, step: Json) -> None:
        self.now += step["seconds"]

    def step_backoff_expired(self, step: Json) -> None:
        self.answers["backoffExpired"] = self.info(step["workload"]).backoff_expired(self.now)

    def step_terminate(self, step: Json) -> None:
        self._put(_deleting(self.raws[("ClusterQueue", step["clusterQueue"])]))

    def step_update(self, step: Json) -> None:
        for raw in step["objects"]:
            self._put(raw)

    def step_delete(self, step: Json) -> None:
        for one in step["objects"]:
            self.raws.pop((one["kind"], one["key"]), None)
            if not step.get("silent"):
                self._delete(one["kind"], one["key"])

    def _delete(self, kind: str, key: str) -> None:
        world = self.world
        removers: dict[str, Callable[[str], None]] = {
            "Namespace": world.remove_namespace,
            "ResourceFlavor": world.remove_resource_flavor,
            "AdmissionCheck": world.remove_admission_check,
            "Cohort": world.remove_cohort,
            "ClusterQueue": world.remove_cluster_queue,
            "LocalQueue": world.remove_local_queue,
            "Workload": world.delete,
        }
        if kind not in removers:
            raise NotCovered(f"deletion of a {kind}")
        removers[kind](key)

    def relabel(self, key: str) -> None:
        """Another writer changes a label; the scheduler hears of it after it has decided."""
        raw = self.raws["Workload", key]
        changed = {**raw, "metadata": {**raw["metadata"], "labels": {"changed": "meanwhile"}}}
        self.raws["Workload", key] = changed
        self._put_workload(changed)

    def step_heads(self, step: Json) -> None:
        pending = self.world.pending
        heads = {queue: pending.pop(queue) for queue in pending.ready()}
        self.answers["heads"] = {queue: info.key for queue, info in heads.items() if info is not None}

    def step_drain(self, step: Json) -> None:
        self.note_members()
        pending = self.world.pending
        order: dict[str, list[str]] = {queue: [] for queue in pending.queues}
        while ready := pending.ready():
            for queue in ready:
                info = pending.pop(queue)
                if info is not None:
                    order[queue].append(info.key)
        self.answers["order"] = order

    def step_second_pass(self, step: Json) -> None:
        info = self.info(step["workload"])
        self.second_pass_infos[info.key] = info
        self.answers["queued"] = self.second_passes.request(info, step["attempt"], self.now)

    def ready_second_passes(self) -> list[str]:
        """Workloads whose second pass may start now."""
        return sorted(info.key for info in self.second_passes.ready(self.now, self.second_pass_infos.get))

    def step_list(self, step: Json) -> None:
        queue = step["clusterQueue"]
        items = self.world.pending.queues[queue].items()
        self.answers.setdefault("order", {})[queue] = [item.info.key for item in items]

    def note_members(self) -> None:
        """Pending workloads per LocalQueue, as they are before heads are taken."""
        members: dict[str, set[str]] = {key: set() for key in self.world.local_queues}
        for key, local in self.world.pending.assigned.items():
            members.setdefault(local, set()).add(key)
        self.answers["localMembers"] = members


def _deleting(raw: Json) -> Json:
    return {**raw, "metadata": {**raw["metadata"], "deletionTimestamp": "2024-01-01T00:00:00Z"}}


def _snake(name: str) -> str:
    return "".join(f"_{char.lower()}" if char.isupper() else char for char in name)
