"""The search for flavors of one workload in its ClusterQueue (core rules 6.4 and 6.5).

Why it exists: each resource group of a pod set gets one flavor whose nodes suit the pods and whose quota suffices, or could
after borrowing or preemption. What preemption could give is asked of an Oracle; the search itself never changes state.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Protocol

import msgspec

from shared.decide.assignment import (
    FIT,
    NO_FIT,
    Assignment,
    Attempt,
    FlavorChoice,
    Grade,
    GranularMode,
    PodSetResult,
    preferred,
)
from shared.decide.topology_handoff import (
    Placement,
    inherited,
    is_explicit,
    needed_placements,
    placed,
    topology_mismatch,
)
from shared.model.cluster_queue import ClusterQueue, Fungibility, ResourceFlavor, ResourceGroup
from shared.model.flavor_resources import Vector
from shared.model.matching import MalformedSelector, affinity_matches, untolerated_taint
from shared.model.pending import ScanProgress
from shared.model.quota_tree import QuotaForest
from shared.model.refusal import SEVERITY, FlavorReason, PendingReason
from shared.model.workload import PodSetInfo, WorkloadInfo


class Oracle(Protocol):
    """Tells what preemption could give."""

    def simulate(self, index: int, amount: int, level: int) -> Grade:
        """Grade of having `amount` of one flavor-resource by preemption; `level` is the borrowing level without it."""
        ...


class NoPreemption:
    """An oracle for which nobody can be preempted."""

    def simulate(self, index: int, amount: int, level: int) -> Grade:
        return Grade(GranularMode.NO_PREEMPTION_CANDIDATES, level)


class SearchSettings(msgspec.Struct, frozen=True, gc=False):
    """Settings and gates that shape the search."""

    fair_sharing: bool = False
    ignore_undeclared: bool = False
    flavor_fungibility: bool = True
    concurrent_admission: bool = False


DEFAULT_SETTINGS = SearchSettings()

_HOPELESS = (GranularMode.NO_FIT, GranularMode.NO_PREEMPTION_CANDIDATES)

_PREEMPTION = {
    GranularMode.NO_PREEMPTION_CANDIDATES: "no_candidates",
    GranularMode.PREEMPT: "within_cluster_queue",
    GranularMode.RECLAIM: "reclaim",
}


class SlicePart(msgspec.Struct, frozen=True):
    """One pod set of the elastic slice that a workload replaces: what it holds and where."""

    requests: Mapping[str, int]
    flavors: Mapping[str, str]


Slice = Mapping[str, SlicePart]
"""Pod set -> its part of the replaced slice."""


def assign(
    info: WorkloadInfo,
    queue: ClusterQueue,
    forest: QuotaForest,
    flavors: Mapping[str, ResourceFlavor],
    *,
    oracle: Oracle | None = None,
    settings: SearchSettings = DEFAULT_SETTINGS,
    progress: ScanProgress | None = None,
    cycle: int = 0,
    placement: Placement | None = None,
    replaces: Slice | None = None,
    pinned: Mapping[str, Collection[str]] | None = None,
) -> Assignment:
    """Flavors for all pod sets. Stops at the first pod set that cannot be assigned; later ones are left out of the usage.

    `placement` is asked whether pods find room (None: topologies are not looked at). `replaces`: the elastic slice whose flavors
    are kept and whose usage is taken off. `pinned`: resource -> the only flavors to try (a recomputation within a cycle).
    """
    search = _Search(queue, forest, flavors, oracle or NoPreemption(), settings, progress)
    search.allowed = info.allowed_flavors if settings.concurrent_admission else None
    search.placement, search.replaces, search.pinned = placement, replaces or {}, pinned or {}
    pod_sets = info.pod_sets
    if len(pod_sets) == 1:
        # Nearly every workload has one pod set.
        results = search.unit(_FIRST, pod_sets)
    else:
        found: dict[int, PodSetResult] = {}
        for unit in _units(pod_sets):
            results = search.unit(unit, [pod_sets[position] for position in unit])
            found.update(zip(unit, results, strict=True))
            if any(result.failed for result in results):
                break
        results = [found[position] for position in sorted(found)]
    if placement is not None:
        results = search.hand_off(info, results)
    tried = tuple(
        [tuple([(resource, choice.tried) for resource, choice in sorted(result.flavors.items())]) for result in results]
    )
    generation = forest.queue_node(queue.name).generation
    return Assignment(tuple(results), search.assumed, ScanProgress(tried, generation, cycle, info.shape))


_FIRST = (0,)


class _Found:
    """What the search found for one unit so far."""

    __slots__ = ("attempts", "choices", "failed", "reasons")

    def __init__(self) -> None:
        self.choices: dict[str, FlavorChoice] = {}
        self.reasons: list[FlavorReason] = []
        self.attempts: list[Attempt] = []
        self.failed = False

    def fail(self, reasons: Iterable[FlavorReason], attempts: Iterable[Attempt]) -> None:
        """A group has no flavor: the unit has none at all, and only the attempts of hopeless groups count.

        The first such group gives the reasons; the others can only make the verdict worse.
        """
        if not self.failed:
            self.failed = True
            self.choices = {}
            self.reasons = list(reasons)
            self.attempts = []
        self.attempts.extend(attempts)


def _units(pod_sets: tuple[PodSetInfo, ...]) -> list[list[int]]:
    """Positions of pod sets that must share flavors, in order of first appearance."""
    units: dict[str | int, list[int]] = {}
    for position, pod_set in enumerate(pod_sets):
        units.setdefault(pod_set.group or position, []).append(position)
    return list(units.values())


class _Search:
    """State of one search: the usage assumed by pod sets already assigned."""

    __slots__ = (
        "allowed",
        "assumed",
        "flavors",
        "forest",
        "oracle",
        "pinned",
        "placement",
        "preempts_while_borrowing",
        "progress",
        "queue",
        "replaces",
        "settings",
    )

    def __init__(
        self,
        queue: ClusterQueue,
        forest: QuotaForest,
        flavors: Mapping[str, ResourceFlavor],
        oracle: Oracle,
        settings: SearchSettings,
        progress: ScanProgress | None,
    ) -> None:
        self.queue = queue
        self.forest = forest
        self.flavors = flavors
        self.oracle = oracle
        self.settings = settings
        self.progress = progress if settings.flavor_fungibility else None
        self.allowed: frozenset[str] | None = None
        self.placement: Placement | None = None
        self.replaces: Slice = {}
        self.pinned: Mapping[str, Collection[str]] = {}
        self.assumed: Vector = {}
        policy = queue.preemption
        self.preempts_while_borrowing = policy.borrow_within_cohort != "Never" or (
            settings.fair_sharing and policy.reclaim_within_cohort != "Never"
        )

    @property
    def all_topology(self) -> bool:
        """Do all flavors of the ClusterQueue have a topology?"""
        flavors, names = self.flavors, self.queue.flavor_names()
        return bool(names) and all(name in flavors and flavors[name].topology for name in names)

    def unit(self, positions: Sequence[int], pod_sets: Sequence[PodSetInfo]) -> list[PodSetResult]:
        """Pod sets that share flavors: one flavor for each resource group they ask something of, for all of them together."""
        asked = [self._requests(pod_set) for pod_set in pod_sets]
        charged = asked
        if self.replaces:
            charged = [self._charged(pod_set, requests) for pod_set, requests in zip(pod_sets, asked, strict=True)]
        if len(charged) == 1:
            total = charged[0]
        else:
            total = {}
            for requests in charged:
                for resource, amount in requests.items():
                    total[resource] = total.get(resource, 0) + amount
        found = _Found()
        seen: set[int] = set()
        for resource in sorted(total):
            group = self.queue.group_of.get(resource)
            if group is not None:
                if group not in seen:
                    seen.add(group)
                    self._group(positions[0], pod_sets, group, resource, total, found)
            elif found.failed:
                continue
            elif total[resource] and not self.settings.ignore_undeclared:
                found.fail((FlavorReason("resource_not_in_cluster_queue", resource=resource),), ())
        results = []
        assumed, chosen = self.assumed, found.choices
        reasons, attempts = tuple(found.reasons), tuple(found.attempts)
        for pod_set, requests, usage in zip(pod_sets, asked, charged, strict=True):
            choices = {resource: chosen[resource] for resource in requests if resource in chosen}
            for resource, choice in choices.items():
                assumed[choice.index] = assumed.get(choice.index, 0) + usage[resource]
            results.append(
                PodSetResult(pod_set.name, pod_set.count, requests, choices, reasons, attempts, found.failed)
            )
        return results

    def _requests(self, pod_set: PodSetInfo) -> dict[str, int]:
        """Its requests; pods are counted where the ClusterQueue has quota for them."""
        if "pods" not in self.queue.group_of:
            return pod_set.requests
        return {**pod_set.requests, "pods": pod_set.count}

    def _charged(self, pod_set: PodSetInfo, requests: dict[str, int]) -> dict[str, int]:
        """What counts against quota: of a workload that replaces an elastic slice only what it has more."""
        part = self.replaces.get(pod_set.name)
        if part is None:
            return requests
        return {resource: amount - part.requests.get(resource, 0) for resource, amount in requests.items()}

    def hand_off(self, info: WorkloadInfo, results: list[PodSetResult]) -> list[PodSetResult]:
        """The results after topology placement had its say."""
        assert self.placement is not None
        topology_flavors = [
            name for name in self.queue.flavor_names() if name in self.flavors and self.flavors[name].topology
        ]
        inherited(info.pod_sets, results, topology_flavors)
        needed = needed_placements(
            info.pod_sets, tuple(results), topology_flavors, all_topology=self.all_topology, elastic=bool(self.replaces)
        )
        return placed(results, needed, self.placement)

    def _group(
        self,
        position: int,
        pod_sets: Sequence[PodSetInfo],
        number: int,
        first: str,
        requests: Mapping[str, int],
        found: _Found,
    ) -> None:
        """The flavor for all requested resources that one group covers."""
        group = self.queue.groups[number]
        wanted = {name: requests[name] for name in group.covered if name in requests}
        start = self.progress.next_index(position, first) if self.progress is not None else 0
        best: tuple[Grade, int, dict[str, Grade]] | None = None
        attempts: list[Attempt] = []
        stopped = start
        for index in range(start, len(group.flavors)):
            stopped = index
            if self.pinned and not self._is_pinned(group.flavors[index].name, wanted):
                continue
            attempt, grades, grade = self._flavor(pod_sets, group, number, index, wanted)
            if attempt.reasons and attempt.reasons[0].code == "malformed_affinity":
                # Nobody can say what such pods want: no other flavor is tried, and none is given.
                found.fail(attempt.reasons, ())
                return
            attempts.append(attempt)
            if not self._go_on(grade):
                best = (grade, index, grades)
                break
            if self._better(grade, best[0] if best is not None else NO_FIT):
                best = (grade, index, grades)
        if best is None:
            found.fail([reason for attempt in attempts for reason in attempt.reasons], attempts)
            return
        if found.failed:
            return
        worst, chosen, grades = best
        found.attempts.extend(attempts)
        if worst is not FIT and any(each.mode is not GranularMode.FIT for each in grades.values()):
            found.reasons.extend([reason for attempt in attempts for reason in attempt.reasons])
        tried = -1 if stopped == len(group.flavors) - 1 else stopped
        option = group.flavors[chosen]
        for name in wanted:
            grade = grades[name]
            found.choices[name] = FlavorChoice(option.name, grade.mode, grade.level, tried, option.cells[name])

    def _is_pinned(self, flavor: str, wanted: Mapping[str, int]) -> bool:
        return all(flavor in self.pinned[resource] for resource in wanted if resource in self.pinned)

    def _go_on(self, grade: Grade) -> bool:
        """Should the next flavor be looked at before settling on one of this grade?"""
        if grade is FIT:
            return False
        if grade.mode in _HOPELESS:
            return True
        if not self.settings.flavor_fungibility:
            return grade.mode is not GranularMode.FIT
        fungibility: Fungibility = self.queue.fungibility
        if grade.mode is not GranularMode.FIT and fungibility.next_when_preempting:
            return True
        return grade.level > 0 and fungibility.next_when_borrowing

    def _better(self, grade: Grade, best: Grade) -> bool:
        if not self.settings.flavor_fungibility:
            return grade.mode > best.mode
        return preferred(grade, best, self.queue.fungibility)

    def _flavor(
        self, pod_sets: Sequence[PodSetInfo], group: ResourceGroup, number: int, index: int, wanted: Mapping[str, int]
    ) -> tuple[Attempt, dict[str, Grade], Grade]:
        """One flavor: do its nodes suit the pods, and how well does its quota do for each resource (the worst of these comes last)."""
        option = group.flavors[index]
        for pod_set in pod_sets:
            mismatch = self._mismatch(pod_set, option.name, group.covered)
            if mismatch is not None:
                no_fit = Attempt(
                    option.name, number, GranularMode.NO_FIT, 0, (mismatch,), PendingReason.NO_MATCHING_FLAVOR
                )
                return no_fit, {}, NO_FIT
        worst, refusal = FIT, ""
        reasons: list[FlavorReason] = []
        grades: dict[str, Grade] = {}
        for resource in sorted(wanted):
            held = self._held_flavor(pod_sets, resource) if self.replaces else ""
            if held and held != option.name:
                grade = NO_FIT
                reason: FlavorReason | None = FlavorReason("slice_flavor_pinned", flavor=option.name, detail=held)
                why: str = PendingReason.NO_MATCHING_FLAVOR
            else:
                grade, reason, why = self._quota(option.cells[resource], option.name, resource, wanted[resource])
            grades[resource] = grade
            if grade is FIT:
                continue
            if reason is not None:
                reasons.append(reason)
            if SEVERITY[why] > SEVERITY[refusal]:
                refusal = why
            if preferred(worst, grade, self.queue.fungibility):
                worst = grade
        if worst.mode is not GranularMode.NO_FIT:
            refusal = ""
        return Attempt(option.name, number, worst.mode, worst.level, tuple(reasons), refusal), grades, worst

    def _held_flavor(self, pod_sets: Sequence[PodSetInfo], resource: str) -> str:
        """The flavor in which the replaced slice holds this resource."""
        parts = [self.replaces[pod_set.name] for pod_set in pod_sets if pod_set.name in self.replaces]
        return next((part.flavors[resource] for part in parts if resource in part.flavors), "")

    def _mismatch(self, pod_set: PodSetInfo, name: str, covered: tuple[str, ...]) -> FlavorReason | None:
        if self.allowed is not None and name not in self.allowed:
            return FlavorReason("flavor_not_allowed", flavor=name)
        flavor = self.flavors.get(name)
        if flavor is None:
            return FlavorReason("flavor_missing", flavor=name)
        if self.placement is not None and pod_set.topology and is_explicit(pod_set):
            levels = self.placement.levels(flavor.topology) if flavor.topology else None
            wrong = topology_mismatch(pod_set, name, flavor.topology, levels, covered)
            if wrong is not None:
                return wrong
        elif flavor.topology and not self.all_topology:
            return FlavorReason("flavor_topology_only", flavor=name)
        if flavor.taints:
            taint = untolerated_taint(flavor.taints, pod_set.tolerations, flavor.tolerations)
            if taint is not None:
                text = f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"
                return FlavorReason("untolerated_taint", flavor=name, detail=text)
        if flavor.labels and (pod_set.node_selector or pod_set.affinity_terms is not None):
            try:
                if not affinity_matches(pod_set.node_selector, pod_set.affinity_terms, flavor.labels):
                    return FlavorReason("affinity_mismatch", flavor=name)
            except MalformedSelector as error:
                return FlavorReason("malformed_affinity", flavor=name, detail=str(error))
        return None

    def _quota(self, index: int, flavor: str, resource: str, request: int) -> tuple[Grade, FlavorReason | None, str]:
        """(grade, why not simply fit, PendingReason if it cannot) of one flavor-resource (6.5)."""
        assumed = self.assumed.get(index, 0)
        amount = assumed + request
        cell = self.forest.cell(self.queue.name, index)
        if amount > cell.potential:
            reason = FlavorReason(
                "over_max_capacity",
                flavor=flavor,
                resource=resource,
                assumed=assumed,
                requested=request,
                maximum=max(0, cell.potential),
                free=cell.available(),
                nominal=cell.nominal,
                used=cell.usage,
                borrowing_limit=cell.borrowing_limit,
            )
            return NO_FIT, reason, PendingReason.EXCEEDS_MAX_QUOTA
        level, may_reclaim = self.forest.find_height(self.queue.name, index, amount)
        available = cell.available()
        if amount <= available:
            return Grade(GranularMode.FIT, level) if level else FIT, None, ""
        asked = cell.nominal >= amount or may_reclaim or self.preempts_while_borrowing
        grade = self.oracle.simulate(index, amount, level) if asked else Grade(GranularMode.NO_FIT, level)
        reason = FlavorReason(
            "short_of_unused_quota",
            flavor=flavor,
            resource=resource,
            assumed=assumed,
            requested=request,
            missing=amount - available,
            maximum=max(0, cell.potential),
            free=available,
            nominal=cell.nominal,
            used=cell.usage,
            borrowing_limit=cell.borrowing_limit,
            preemption=_PREEMPTION.get(grade.mode, ""),
        )
        return grade, reason, "" if asked else PendingReason.WAITING_FOR_QUOTA
