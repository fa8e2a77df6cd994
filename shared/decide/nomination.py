"""Nomination: what one head could get, before the heads of the cycle compete (core rules 6.1 step 3 and 6.3).

Why it exists: flavors, victims and partial admission depend on each other for one workload, and are asked again for it when other heads
took its victims. Reads the state and leaves it as it was; putting refused heads back is the cycle's work.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

import msgspec

from shared.decide.assignment import Assignment, Mode
from shared.decide.flavors import Slice, SlicePart, assign
from shared.decide.order import HeadKey, head_key
from shared.decide.partial import largest
from shared.decide.preemption import PreemptionOracle, find_targets, needed
from shared.decide.preemption_request import PreemptionRequest, Target
from shared.decide.settings import CycleSettings
from shared.model.cluster_queue import ClusterQueue
from shared.model.pending import RequeueReason, ScanProgress
from shared.model.refusal import PendingReason, Refusal, Stop
from shared.model.workload import WorkloadInfo
from shared.model.world import World


class Found(NamedTuple):
    """An assignment with its mode, and the workloads that have to go for it."""

    assignment: Assignment
    mode: Mode
    targets: tuple[Target, ...] = ()

    @property
    def acceptable(self) -> bool:
        """It fits, at once or after preemption."""
        return self.mode is Mode.FIT or bool(self.targets)


class Entry(msgspec.Struct):
    """A nominated head. Replaced by a new search only within its cycle."""

    info: WorkloadInfo
    queue: ClusterQueue
    assignment: Assignment
    targets: tuple[Target, ...]
    preemptor: bool
    """It waits already for victims of an earlier cycle."""
    order: HeadKey
    mode: Mode


def obstacle(world: World, queue: str, info: WorkloadInfo) -> tuple[Refusal, RequeueReason] | None:
    """Why a head cannot even be nominated."""
    generic = RequeueReason.GENERIC
    if info.checks and (bad := sorted(check for check, state in info.checks if state in ("Retry", "Rejected"))):
        return Refusal(PendingReason.PENDING_EVALUATION, stop=Stop("checks_not_passed", tuple(bad))), generic
    if queue not in world.cluster_queues:
        return Refusal(PendingReason.MISCONFIGURED, stop=Stop("cluster_queue_missing", (queue,))), generic
    if not world.in_snapshot(queue):
        return Refusal(PendingReason.SUSPENDED, stop=Stop("cluster_queue_inactive", (queue,))), generic
    if not world.namespace_matches(queue, info.namespace):
        stop = Stop("namespace_mismatch", (info.namespace, queue))
        return Refusal(PendingReason.MISCONFIGURED, stop=stop), RequeueReason.NAMESPACE_MISMATCH
    if info.invalid:
        return Refusal(PendingReason.MISCONFIGURED, stop=Stop("requests_refused", detail=info.invalid)), generic
    return None


class Nominator:
    """Finds assignments and victims on the state as it is."""

    def __init__(self, world: World, settings: CycleSettings) -> None:
        self.world = world
        self.settings = settings
        self.search = settings.flavor_search()
        self.usage_of: Callable[[str], float] | None = world.afs.usage if world.afs is not None else None

    def nominate(self, queue: ClusterQueue, info: WorkloadInfo) -> Entry:
        """The entry of a head."""
        mark = self.world.pending.queues[queue.name].preemptor
        preemptor = mark is not None and mark.key == info.key and mark.generation == info.generation
        found = self.find(queue, info, progress=self._current_progress(queue, info))
        order = head_key(info, found.assignment.level, preemptor, self.settings.order)
        return Entry(info, queue, found.assignment, found.targets, preemptor, order, found.mode)

    def find(
        self,
        queue: ClusterQueue,
        info: WorkloadInfo,
        *,
        progress: ScanProgress | None = None,
        pinned: Mapping[str, Collection[str]] | None = None,
        excluded: Collection[str] = (),
    ) -> Found:
        """The best for all pods; else the largest acceptable part of them; else the assignment for all, with no targets.

        `excluded` workloads are gone for the purposes of this search: the caller took their usage out.
        """
        old = replaced_slice(self.world, info, queue.name) if info.replaces and self.settings.elastic_slices else ""
        replaces = None
        if old and old not in excluded:
            # It goes anyway once its successor is admitted, and only the difference is asked for.
            replaces, excluded = self._parts(old), {*excluded, old}

        def attempt(wanted: WorkloadInfo) -> Found:
            oracle = PreemptionOracle(
                self.world, wanted, queue, self.settings.fair, excluded=excluded, usage_of=self.usage_of
            )
            assignment = assign(
                wanted,
                queue,
                self.world.forest,
                self.world.flavors,
                oracle=oracle,
                settings=self.search,
                progress=progress,
                cycle=self.world.cycle,
                replaces=replaces,
                pinned=pinned,
            )
            mode = assignment.mode
            if mode is not Mode.PREEMPT:
                return Found(assignment, mode)
            targets = oracle.known(needed(assignment), assignment.usage)
            if targets is None:
                targets = self._targets(queue, wanted, assignment, excluded)
            return Found(assignment, mode, targets)

        def smaller(wanted: WorkloadInfo) -> Found | None:
            found = attempt(wanted)
            return found if found.acceptable else None

        full = attempt(info)
        if full.acceptable or replaces or not self.settings.partial_admission:
            return full
        return largest(info, smaller) or full

    def _targets(
        self, queue: ClusterQueue, info: WorkloadInfo, assignment: Assignment, excluded: Collection[str]
    ) -> tuple[Target, ...]:
        request = PreemptionRequest(
            preemptor=info,
            queue=queue,
            need=needed(assignment),
            demand=assignment.usage,
            excluded=excluded,
            usage_of=self.usage_of,
        )
        return find_targets(self.world, request, self.settings.fair)

    def _parts(self, old: str) -> Slice:
        """What the older slice of an elastic job holds."""
        held = self.world.charges[old].admission
        return {pod_set.name: SlicePart(pod_set.usage, pod_set.flavors) for pod_set in held.pod_sets}

    def _current_progress(self, queue: ClusterQueue, info: WorkloadInfo) -> ScanProgress | None:
        """Where the last search stopped, unless quotas or the workload have changed since."""
        progress = self.world.pending.progress.get(info.key)
        if progress is None:
            return None
        if self.settings.preserve_scan_progress:
            if progress.shape and info.shape and progress.shape != info.shape:
                return None
            if progress.cycle >= self.world.cycle - 1:
                return progress
        outdated = self.world.forest.queue_node(queue.name).generation > progress.generation
        return None if outdated else progress


def replaced_slice(world: World, info: WorkloadInfo, queue: str) -> str:
    """Key of the slice this workload replaces, if that holds quota of the same ClusterQueue; else empty."""
    old = info.replaces
    charge = world.charges.get(old) if old else None
    if charge is None or charge.admission.cluster_queue != queue or old.partition("/")[0] != info.namespace:
        return ""
    return old


def pins(assignment: Assignment) -> dict[str, frozenset[str]]:
    """Resource -> the flavors nominated for it, for a new search within the cycle."""
    found: dict[str, set[str]] = {}
    for pod_set in assignment.pod_sets:
        for resource, choice in pod_set.flavors.items():
            found.setdefault(resource, set()).add(choice.flavor)
    return {resource: frozenset(flavors) for resource, flavors in found.items()}
