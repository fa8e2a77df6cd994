"""Trial removal of victims: would the preemptor fit, and which victims can be kept after all.

Why it exists: every search for victims removes and restores usage on the live quota forest; the caller opens a mark of the
forest's journal before and undoes to it after. Whom to try is the business of the searches.
"""

from __future__ import annotations

from shared.decide.preemption_request import PreemptionRequest, Target
from shared.model.world import World


class Trial:
    """One search in progress."""

    __slots__ = ("_cells", "request", "world")

    def __init__(self, world: World, request: PreemptionRequest) -> None:
        self.world = world
        self.request = request
        name, forest = request.queue.name, world.forest
        self._cells = [(forest.cell(name, index), amount) for index, amount in request.demand.items()]

    def target(self, key: str, queue: str, reason: str) -> Target:
        """A victim with what it holds."""
        return Target(key, queue, reason, self.world.charges[key].vector)

    def remove(self, target: Target) -> None:
        """Without the victim."""
        self.world.forest.remove_usage(target.cluster_queue, target.vector)

    def restore(self, target: Target) -> None:
        """With the victim again."""
        self.world.forest.add_usage(target.cluster_queue, target.vector)

    def fits(self, allow_borrowing: bool) -> bool:
        """Does all that the preemptor asks fit now? Without borrowing, within the nominal quota of its ClusterQueue."""
        for cell, amount in self._cells:
            if not allow_borrowing and cell.borrows_with(amount):
                return False
            if amount > cell.available():
                return False
        return True


def fill_back(trial: Trial, targets: list[Target], allow_borrowing: bool) -> list[Target]:
    """Keep victims that turned out to be unnecessary (core rule 7.5). All targets are removed when it begins; some are restored.

    From the second to last to the first; the last one was needed. The last target takes the place of one that is kept, as in Kueue.
    """
    for place in range(len(targets) - 2, -1, -1):
        trial.restore(targets[place])
        if trial.fits(allow_borrowing):
            targets[place] = targets[-1]
            targets.pop()
        else:
            trial.remove(targets[place])
    return targets
