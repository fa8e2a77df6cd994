"""How much quota is set aside in a cycle for a head that must wait (core rule 6.6 e).

Why it exists: without it small workloads would take, bit by bit, the quota a large one waits for.
"""

from __future__ import annotations

from collections.abc import Mapping

from shared.model.amounts import add, sub
from shared.model.flavor_resources import Vector
from shared.model.quota_tree import QuotaForest


def set_aside(forest: QuotaForest, queue: str, level: int, usage: Mapping[int, int]) -> Vector:
    """Amount per flavor-resource for a workload that needs `usage` at this borrowing level.

    Level 0: what is left of the nominal quota. Borrowing: all of it, or as far as the ClusterQueue's borrowing limit goes.
    """
    reserved: Vector = {}
    for index, amount in usage.items():
        cell = forest.cell(queue, index)
        if level == 0:
            reserved[index] = max(0, min(amount, sub(cell.nominal, cell.usage)))
        elif cell.borrowing_limit is None:
            reserved[index] = amount
        else:
            reserved[index] = min(amount, sub(add(cell.nominal, cell.borrowing_limit), cell.usage))
    return reserved
