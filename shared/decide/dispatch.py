"""Sending a workload to other clusters: whether clusters are to be nominated for it now (topology and checks specification 16).

Which ones, and what is done there, is not decided here.
"""

from __future__ import annotations

from shared.api import names


def skips_nomination(check_state: str, *, evicted: bool, placed: bool, elastic: bool) -> bool:
    """`check_state`: of MultiKueue's check. `placed`: a cluster has it already; a new slice of an elastic job is sent there all the same."""
    return check_state != names.CHECK_PENDING or evicted or (placed and not elastic)
