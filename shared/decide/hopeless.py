"""Turns that are known to come to nothing: a ClusterQueue rests instead of asking for workloads that cannot be admitted.

Why it exists: in a crowd in which every workload differs, looking at each after every change costs as much as there are workloads. Workloads of
one family (`shared.model.pending_queue.family_key`) differ only in amounts. If a made-up workload that asks for the least of each resource, and is
the oldest, can be neither admitted nor helped by preemption, no member can. What single cycles would do with them is exact in its effects:

1. After a head was refused, its family is judged by that made-up workload on the state that the next cycle begins with.
2. While it is hopeless, its ClusterQueue has no head for as many cycles as the family has shapes. Nobody else notices: such heads take nothing
   and set nothing aside.
3. When a decision could have given it victims, it is judged again; where there is hope, as many shapes as had a turn are parked, and the rest waits.
4. When all had their turn, the family is parked until the next retry.

It applies only where the conclusion from the least to all is safe; elsewhere each head is looked at.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from shared.decide.assignment import Attempt, GranularMode
from shared.decide.decisions import Admit, Decision, NotAdmitted
from shared.decide.nomination import Nominator
from shared.decide.settings import CycleSettings
from shared.model.cluster_queue import ClusterQueue
from shared.model.pending import RequeueReason
from shared.model.pending_groups import Family
from shared.model.workload import WorkloadInfo
from shared.model.world import World

_HOPELESS = frozenset({RequeueReason.NO_FIT, RequeueReason.PREEMPTION_NO_CANDIDATES})
_WORTH_IT = 2
"""A family of fewer shapes is looked at as fast as it is judged."""

Tree = tuple[bool, str]


class _Rest(msgspec.Struct):
    """A ClusterQueue without a head while the turns of this family pass."""

    family: Family
    info: WorkloadInfo
    reason: str
    until: int
    """The turn with which it ends."""
    shapes: int
    tree: Tree
    victims: int


class HopelessFamilies:
    """What rests within one batch."""

    def __init__(self, world: World, settings: CycleSettings) -> None:
        self.world = world
        self.nominator = Nominator(world, settings)
        policy = world.pending.policy
        self._applies = (
            policy.equivalence_hashing and settings.fair is None and world.afs is None and not settings.block_admission
        )
        self._turn = 0
        self._rests: dict[str, _Rest] = {}
        self._next_end = 0
        self._decided: dict[Tree, int] = {}
        """How much was decided in each tree; a family that had hope is not judged again before more is."""
        self._victims: dict[Tree, int] = {}
        """How often a decision may have made new victims in each tree."""
        self._hopeful: dict[Family, int] = {}

    # --- turns -----------------------------------------------------------------------------------------------------

    def passed(self, decisions: Iterable[Decision], refused: Iterable[NotAdmitted]) -> bool:
        """One more cycle is over, with these decisions and refusals. True if a ClusterQueue that rested has heads again."""
        self._turn += 1
        if not self._applies:
            return False
        before = len(self._rests)
        if self._rests and self._turn >= self._next_end:
            self._end_due()
        for decision in decisions:
            self._note(decision)
        self._judge_again()
        woken = len(self._rests) < before
        for entry in refused:
            self._consider(entry)
        return woken

    def skip_ahead(self) -> bool:
        """Nothing else happens until a rest ends: let that many cycles pass. True if one has ended."""
        if not self._rests:
            return False
        skipped = max(0, self._next_end - self._turn)
        self._turn += skipped
        self.world.cycle += skipped
        self._end_due()
        return True

    def stop(self) -> None:
        """The batch ends here: what had its turn is parked, the rest waits."""
        for name in list(self._rests):
            self._wake(name)

    def _end_due(self) -> None:
        for name, rest in list(self._rests.items()):
            if rest.until <= self._turn:
                del self._rests[name]
                queue = self.world.pending.queues[name]
                queue.resting = False
                queue.park_family(rest.family, rest.reason)
                self.world.pending.note_ready(name)
        self._next_end = min((rest.until for rest in self._rests.values()), default=0)

    def _wake(self, name: str) -> None:
        """A rest ends early."""
        rest = self._rests.pop(name)
        queue = self.world.pending.queues[name]
        queue.resting = False
        taken = rest.shapes - (rest.until - self._turn)
        shapes = dict.fromkeys(group.shape for group in rest.family.active())
        for shape in list(shapes)[:taken]:
            queue.park_shape(shape, rest.reason)
        self.world.pending.note_ready(name)
        self._next_end = min((one.until for one in self._rests.values()), default=0)

    # --- judging ---------------------------------------------------------------------------------------------------

    def _note(self, decision: Decision) -> None:
        forest = self.world.forest
        tree = forest.tree_id(decision.cluster_queue)
        self._decided[tree] = self._decided.get(tree, 0) + 1
        if isinstance(decision, Admit) and not decision.replaces and not self._exceeds(decision):
            return
        self._victims[tree] = self._victims.get(tree, 0) + 1

    def _exceeds(self, admit: Admit) -> bool:
        """Can the ClusterQueue, or a cohort above it, be a source of victims now?"""
        charge = self.world.charges.get(admit.key)
        if charge is None:
            return True
        for index in charge.vector:
            cell = self.world.forest.cell(admit.cluster_queue, index)
            while cell.parent is not None:
                if cell.usage > cell.subtree:
                    return True
                cell = cell.parent
        return False

    def _judge_again(self) -> None:
        for name, rest in list(self._rests.items()):
            victims = self._victims.get(rest.tree, 0)
            if victims == rest.victims:
                continue
            rest.victims = victims
            if not self._is_hopeless(self.world.cluster_queues[name], rest.family, rest.info):
                self._hopeful[rest.family] = self._decided.get(rest.tree, 0)
                self._wake(name)

    def _consider(self, entry: NotAdmitted) -> None:
        """Let the ClusterQueue of a refused head rest if all the next turns would come to nothing."""
        name = entry.cluster_queue
        info = self.world.workloads.get(entry.key)
        queue = self.world.pending.queues.get(name)
        if entry.requeue not in _HOPELESS or info is None or queue is None or queue.strict or not queue.active:
            return
        family = queue.leading_family(info)
        if family is None:
            return
        tree = self.world.forest.tree_id(name)
        decided = self._decided.get(tree, 0)
        if self._hopeful.get(family) == decided:
            return
        shapes = family.active_shapes()
        if shapes < _WORTH_IT or self._scanning(name, family):
            return
        if not self._is_hopeless(self.world.cluster_queues[name], family, info):
            self._hopeful[family] = decided
            return
        until = self._turn + shapes
        self._rests[name] = _Rest(family, info, entry.refusal.reason, until, shapes, tree, self._victims.get(tree, 0))
        self._next_end = min(self._next_end, until) if len(self._rests) > 1 else until
        queue.resting = True
        self.world.pending.note_ready(name)

    def _scanning(self, name: str, family: Family) -> bool:
        """Would some of the family go on with a search for flavors that it has begun?"""
        queue = self.world.pending.queues[name]
        for key in self.world.pending.progress:
            item = queue.waiting.get(key)
            if item is not None and item.group is not None and item.group.family is family:
                return True
        return False

    def _claims(self, name: str) -> bool:
        """May some workload of this ClusterQueue set quota aside as the one that waits for victims?"""
        return self.nominator.settings.order.prioritize_preemptors and (
            self.world.pending.queues[name].preemptor is not None
        )

    def _is_hopeless(self, queue: ClusterQueue, family: Family, info: WorkloadInfo) -> bool:
        """Is the least of the family without hope, in a way that holds for whoever asks for more?"""
        world = self.world
        least, most = family.bounds()
        pod_set = info.pod_sets[0]
        groups = {queue.group_of.get(resource) for resource in least}
        if len(groups) != 1 or None in groups or least.keys() != pod_set.requests.keys():
            return False
        if not all(world.namespace_matches(queue.name, namespace) for namespace in family.namespaces):
            return False
        made_up = msgspec.structs.replace(
            info, created=0, conditions=(), pod_sets=(msgspec.structs.replace(pod_set, requests=least),)
        )
        found = self.nominator.find(queue, made_up)
        if found.acceptable:
            return False
        return all(self._closed(queue, attempt, most) for attempt in found.assignment.pod_sets[0].attempts)

    def _closed(self, queue: ClusterQueue, attempt: Attempt, most: dict[str, int]) -> bool:
        """Is a flavor that the least cannot have out of reach for all?

        Without any way to preempt it is. Else one resource alone must be short, whoever asks, in a flat tree (where the order of victims does not
        matter), and a head without victims must set nothing aside for others to miss.
        """
        if attempt.mode is GranularMode.NO_FIT:
            return True
        forest = self.world.forest
        parent = forest.queue_node(queue.name).parent
        flat = parent is None or (parent.parent is None and not any(one.is_cohort for one in parent.children.values()))
        if attempt.mode is not GranularMode.NO_PREEMPTION_CANDIDATES or not flat:
            return False
        if parent is not None and (queue.preemption.reclaim_within_cohort != "Any" or self._claims(queue.name)):
            return False
        short = {reason.resource for reason in attempt.reasons}
        cells = next(one for one in queue.groups[attempt.group].flavors if one.name == attempt.flavor).cells
        return len(short) == 1 and all(
            amount <= forest.cell(queue.name, cells[resource]).available()
            for resource, amount in most.items()
            if resource not in short
        )
