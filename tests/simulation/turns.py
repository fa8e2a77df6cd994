"""Which state of a workload a decision was about, told from what was committed and published alone.

A workload takes a turn whenever its spec changes, or it begins or ceases to hold quota, or to be evicted. An incarnation is about the turns during which
OBJECTS showed it; a decision may be written only while its workload is in one of these.
"""

from __future__ import annotations

from collections import defaultdict

from shared.events.objects import Workload

State = tuple[int, bool, bool]
"""(generation, holds quota, is evicted)"""


class Turns:
    """Fed with each commit of a workload, and with each projection of one."""

    def __init__(self) -> None:
        self._began: defaultdict[str, list[tuple[int, State]]] = defaultdict(list)
        """uid -> (version, state), ascending."""
        self._shown: defaultdict[tuple[str, str], set[int]] = defaultdict(set)
        """(uid, incarnation) -> turns."""

    def committed(self, uid: str, version: int, state: State) -> None:
        """The workload is in this state from `version` on."""
        began = self._began[uid]
        if not began or began[-1][1] != state:
            began.append((version, state))

    def stored(self, workload: Workload) -> None:
        """OBJECTS shows this projection."""
        self._shown[workload.uid, workload.incarnation].add(self._at(workload.uid, workload.version))

    def is_about(self, uid: str, incarnation: str) -> bool:
        """Is the workload, right now, in a state that was shown as this incarnation? Also if the decision names none."""
        return not incarnation or len(self._began[uid]) in self._shown[uid, incarnation]

    def _at(self, uid: str, version: int) -> int:
        return sum(began <= version for began, _ in self._began[uid])
