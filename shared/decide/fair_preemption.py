"""The search for victims with fair sharing (core rules 7.6 and 7.7).

Why it exists: with fair sharing a workload may preempt where its side of the tree ends up with no larger a share than the side that
loses one. Steps:
1. Candidates: of the own ClusterQueue, and of every other one of the tree that borrows what is needed.
2. First pass, first strategy: again and again from the ClusterQueue with the highest share, until the preemptor fits.
3. Second pass, second strategy: at most one more from each ClusterQueue whose candidates failed before.
4. Keep victims that need not go after all.
The preemptor's demand is never put into the forest: shares are read with it on top, fits without it.
"""

from __future__ import annotations

from collections.abc import Iterator

from shared.api import names
from shared.decide.candidates import own_candidates, queue_candidates
from shared.decide.fair_preemption_order import Line, Ordering
from shared.decide.fair_share import FairShares, Share
from shared.decide.preemption_request import Target
from shared.decide.preemption_trial import Trial, fill_back
from shared.decide.settings import FairSharing
from shared.model.quota_tree import Node
from shared.model.reservations import Rank

FINAL_SHARE = "LessThanOrEqualToFinalShare"
INITIAL_SHARE = "LessThanInitialShare"


def search(trial: Trial, fair: FairSharing) -> list[Target]:
    """Victims in the order of 7.5; empty if there is no way. The forest is left changed: the caller undoes to its mark."""
    return _Search(trial, fair).run()


class _Search:
    """One search in progress."""

    def __init__(self, trial: Trial, fair: FairSharing) -> None:
        self.trial = trial
        self.world = trial.world
        self.shares = FairShares(trial.world)
        self.own = trial.world.forest.queue_node(trial.request.queue.name)
        self.strategies = fair.strategies or (FINAL_SHARE, INITIAL_SHARE)
        self.within_nominal = fair.preempt_within_nominal and self._stays_within_nominal()
        self.targets: list[Target] = []
        self.failed: dict[Node, Rank] = {}
        """ClusterQueue -> its first candidate that did not pass the first strategy."""

    def run(self) -> list[Target]:
        done = self._first_pass() or (len(self.strategies) > 1 and self._second_pass())
        return fill_back(self.trial, self.targets, allow_borrowing=True) if done else []

    def _first_pass(self) -> bool:
        ordering = self._ordering(list(self._lines()))
        while (line := ordering.next()) is not None:
            if line.node is self.own:
                victim, reason = line.pop(), names.REASON_IN_CLUSTER_QUEUE
            elif self.within_nominal:
                victim, reason = line.pop(), names.REASON_IN_COHORT_RECLAMATION
            else:
                found = self._first_passing(ordering, line)
                if found is None:
                    ordering.changed(line, removed=False)
                    continue
                victim, reason = found, names.REASON_IN_COHORT_FAIR_SHARING
            if self._take(ordering, line, victim, reason):
                return True
        return False

    def _first_passing(self, ordering: Ordering, line: Line) -> Rank | None:
        """The first candidate of a line that passes the first strategy; those before it are left to the second pass."""
        own_side, target_side = ordering.sides(line)
        own, before = ordering.share(own_side), ordering.share(target_side)
        if self.strategies[0] == INITIAL_SHARE:
            if own.key < before.key:
                return line.pop()
        elif own.key <= before.key:
            return self._first_above(ordering, line, own, target_side)
        # Losing a workload never raises a share, so none of this line can pass.
        self._give_up(line)
        return None

    def _first_above(self, ordering: Ordering, line: Line, own: Share, target_side: Node) -> Rank | None:
        """The first candidate without which the target side still has at least the share of the preemptor's side."""
        failing: set[tuple[tuple[int, int], ...]] = set()
        charges = self.world.charges
        while line.head is not None:
            candidate = line.pop()
            vector = charges[candidate[4]].vector
            alike = tuple(vector.items())
            if alike not in failing:
                if own.key <= ordering.share_without(line, vector, target_side).key:
                    return candidate
                failing.add(alike)
            self.failed.setdefault(line.node, candidate)
        return None

    def _give_up(self, line: Line) -> None:
        """None of this line passes: the whole of it is left to the second pass."""
        self.failed.setdefault(line.node, line.pop())
        line.drop()

    def _second_pass(self) -> bool:
        ordering = self._ordering([Line(node, (candidate,)) for node, candidate in self.failed.items()])
        while (line := ordering.next()) is not None:
            own_side, target_side = ordering.sides(line)
            victim = line.pop()
            if ordering.share(own_side).key < ordering.share(target_side).key:
                if self._take(ordering, line, victim, names.REASON_IN_COHORT_FAIR_SHARING):
                    return True
            else:
                ordering.changed(line, removed=False)
        return False

    def _take(self, ordering: Ordering, line: Line, victim: Rank, reason: str) -> bool:
        """Remove a victim; does the preemptor fit now?"""
        target = self.trial.target(victim[4], line.node.name, reason)
        self.trial.remove(target)
        self.targets.append(target)
        if self.trial.fits(True):
            return True
        ordering.changed(line, removed=True)
        return False

    def _ordering(self, lines: list[Line]) -> Ordering:
        return Ordering(self.world.forest, self.shares, self.own, self.trial.request.demand, lines)

    def _stays_within_nominal(self) -> bool:
        """Does the preemptor's ClusterQueue exceed no nominal quota of what is needed, the preemptor included?"""
        request = self.trial.request
        for index in request.need:
            cell = self.world.forest.node_cell(self.own, index)
            if cell.usage + request.demand.get(index, 0) > cell.nominal:
                return False
        return True

    # --- candidates ------------------------------------------------------------------------------------------------

    def _lines(self) -> Iterator[Line]:
        """Candidates by ClusterQueue, where there are any."""
        world, request = self.world, self.trial.request
        own = Line(self.own, own_candidates(world, request))
        if own.head is not None:
            yield own
        top = self.own
        while top.parent is not None and not top.cyclic:
            top = top.parent
        if top is self.own or request.queue.preemption.reclaim_within_cohort == "Never":
            return
        way = {self.own}
        above = self.own.parent
        while above is not None:
            way.add(above)
            above = above.parent
        for node in self._borrowers(top, way):
            line = Line(node, queue_candidates(world, request, node.name))
            if line.head is not None:
                yield line

    def _borrowers(self, cohort: Node, way: set[Node]) -> Iterator[Node]:
        """Other ClusterQueues below a cohort that borrow what is needed. Cohorts that borrow nothing are left alone, save those on the
        way to the preemptor."""
        need = self.trial.request.need
        for child in cohort.children.values():
            if child.is_cohort:
                if child in way or self.shares.of(child).borrowing:
                    yield from self._borrowers(child, way)
            elif child is not self.own:
                for index in need:
                    cell = child.cells.get(index)
                    if cell is not None and cell.usage > cell.nominal:
                        if self.world.in_snapshot(child.name):
                            yield child
                        break
