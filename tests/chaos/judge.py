"""Judges from the Kubernetes API alone: the promises of `cli.verifier`, evictions that belong to preemptions, and pauses of admissions.

A pause is time in which no workload was admitted although at least one job was waiting all the while. Times are monotonic seconds.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable

import msgspec

from cli.verifier import JobState
from shared.api.workload import Workload
from tests.integration.stack.histories import Histories

PREEMPTOR = re.compile(r"\(UID: ([^,]+),")
"""In the message of an eviction: for whom."""
PREEMPTOR_JOB = re.compile(r"JobUID: ([^)]+)\)")


class Pause(msgspec.Struct, frozen=True):
    """Nothing was admitted from `begin` to `end`."""

    begin: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.begin


class Pauses:
    """Told of jobs that begin and cease to wait, and of admissions, it knows the pauses."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.waiting: set[str] = set()
        self.admissions = 0
        self._since: float | None = None
        self._past: list[Pause] = []

    def waits(self, uid: str, does: bool) -> None:
        """A job waits for admission, or does not."""
        if does:
            self.waiting.add(uid)
            if self._since is None:
                self._since = self._clock()
        else:
            self.waiting.discard(uid)
            if not self.waiting:
                self._end()

    def admitted(self) -> None:
        """A workload was admitted."""
        self.admissions += 1
        if self._since is not None:
            self._end()
        if self.waiting:
            self._since = self._clock()

    def present(self) -> float:
        """How long the present pause lasts."""
        return self._clock() - self._since if self._since is not None else 0.0

    def longest(self, after: float, before: float = math.inf) -> float:
        """Seconds of the longest pause that ended after that time and began before the other, the present one included."""
        now = self._clock()
        present = [Pause(self._since, now)] if self._since is not None else []
        found = (pause for pause in (*self._past, *present) if pause.end >= after and pause.begin < before)
        return max((pause.seconds for pause in found), default=0.0)

    def _end(self) -> None:
        if self._since is not None:
            self._past.append(Pause(self._since, self._clock()))
        self._since = None


class Judge(Histories):
    """A verifier that remembers histories and pauses.

    One preemption evicts a victim once. Evicted again for the same preemptor is another preemption only if the victim had been admitted again and the
    preemptor still waited: others that go before it may take what was freed for it (spec core 4.5), and it has to preempt anew. An eviction that is merely
    repeated comes without that admission, or for somebody who has got its quota meanwhile.
    """

    def __init__(self) -> None:
        super().__init__()
        self.pauses = Pauses()
        self._preempted: dict[tuple[str, str], int] = {}
        """(victim, preemptor) -> how often the victim had been admitted when it was last evicted for that one."""

    def job(self, job: JobState) -> None:
        """A job exists or changed."""
        super().job(job)
        if job.complete or job.failed or not job.suspended:
            self.pauses.waits(job.uid, False)
        else:
            self.pauses.waits(job.uid, not self._is_admitted(job.uid))

    def workload(self, workload: Workload, *, deleted: bool = False) -> None:
        """A workload exists, changed or is gone."""
        owner = workload.metadata.controller_owner()
        before = self.admissions[owner.uid] if owner is not None else 0
        evictions = len(self.evictions[owner.uid]) if owner is not None else 0
        super().workload(workload, deleted=deleted)
        if owner is None:
            return
        for message in self.evictions[owner.uid][evictions:]:
            self._evicted(owner.uid, message)
        job = self.jobs.get(owner.uid)
        if self.admissions[owner.uid] > before:
            self.pauses.admitted()
            self.pauses.waits(owner.uid, False)
        elif job is not None and job.suspended and not job.complete and not self._is_admitted(owner.uid):
            self.pauses.waits(owner.uid, True)

    def finish(self, *, expected: object = ()) -> None:
        """See Verifier; also: what was not evicted was admitted once, and each preemption evicted a victim once."""
        super().finish(expected=expected)  # type: ignore[arg-type]
        for uid, admissions in self.admissions.items():
            evictions = len(self.evictions[uid])
            key = self.jobs[uid].key if uid in self.jobs else uid
            if admissions > 1 + evictions:
                self._problem(f"twice: {key} was admitted {admissions} times, evicted {evictions} times")

    def _evicted(self, victim: str, message: str) -> None:
        for preemptor, job in zip(PREEMPTOR.findall(message), PREEMPTOR_JOB.findall(message), strict=True):
            before, admissions = self._preempted.get((victim, preemptor)), self.admissions[victim]
            if before is not None and (admissions == before or self._is_admitted(job)):
                key = self.jobs[victim].key if victim in self.jobs else victim
                why = (
                    "was not admitted in between"
                    if admissions == before
                    else "was evicted when the preemptor had its quota"
                )
                self._problem(f"evicted twice: {key} {why}, for one preemption: {self.evictions[victim]}")
            self._preempted[victim, preemptor] = admissions

    def stories(self, limit: int = 10) -> list[str]:
        """Of jobs that have not finished, the last states."""
        open_ = [job for job in self.jobs.values() if not job.complete]
        return [f"{job.key}: suspended={job.suspended} {self.seen[job.uid][-3:]}" for job in open_[:limit]]

    def _is_admitted(self, uid: str) -> bool:
        return self.now(uid, "Admitted").startswith("True")
