"""Watches the Kubernetes API, and nothing else, and says whether the promises of a queueing system were kept.

- quota: what holds a reservation never exceeds nominal quota plus what the limits allow, per ClusterQueue and per cohort (flat ones);
- order: no job of a queue runs without its workload being admitted before;
- once: a job is started at most once per admission;
- complete: every job ends well (asked for at the end).

States come in the order of their resourceVersions per kind, so after each one the sums are those of a moment that existed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

import msgspec

from shared.api.cluster_queue import ClusterQueue
from shared.api.quantity import UNLIMITED, quota_units, request_units
from shared.api.workload import Workload

FlavorResource = tuple[str, str]


class JobState(msgspec.Struct):
    """What the verifier needs of one state of a batch/v1 Job."""

    uid: str
    key: str
    version: int
    suspended: bool
    complete: bool = False
    failed: bool = False


class _Quota(msgspec.Struct):
    cohort: str
    nominal: dict[FlavorResource, int]
    limit: dict[FlavorResource, int]
    """nominal + borrowingLimit; UNLIMITED where nothing but the cohort limits; nominal without a cohort."""


class Verifier:
    """Fold states in; `problems` grows, and says each thing once."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.peak: dict[tuple[str, FlavorResource], int] = defaultdict(int)
        """Highest usage seen, per ClusterQueue."""
        self.jobs: dict[str, JobState] = {}
        self.admissions: dict[str, int] = defaultdict(int)
        """Admissions seen per job UID."""
        self.starts: dict[str, int] = defaultdict(int)
        self.waited: set[str] = set()
        """Jobs that were seen suspended before they ran."""
        self._queues: dict[str, _Quota] = {}
        self._usage: dict[str, dict[FlavorResource, int]] = {}
        self._home: dict[str, str] = {}
        self._admitted: dict[str, bool] = {}

    def cluster_queue(self, queue: ClusterQueue) -> None:
        """A ClusterQueue exists or changed; raised quotas count from now on."""
        nominal: dict[FlavorResource, int] = {}
        limit: dict[FlavorResource, int] = {}
        for group in queue.spec.resource_groups:
            for flavor in group.flavors:
                for quota in flavor.resources:
                    key = (flavor.name, quota.name)
                    nominal[key] = quota_units(quota.name, quota.nominal_quota)
                    if not queue.spec.cohort_name:
                        limit[key] = nominal[key]
                    elif quota.borrowing_limit is None:
                        limit[key] = UNLIMITED
                    else:
                        limit[key] = nominal[key] + quota_units(quota.name, quota.borrowing_limit)
        self._queues[queue.metadata.name] = _Quota(queue.spec.cohort_name, nominal, limit)

    def workload(self, workload: Workload, *, deleted: bool = False) -> None:
        """A workload exists, changed or is gone."""
        uid = workload.metadata.uid
        true = {c.type for c in workload.status.conditions if c.status == "True"}
        admission = workload.status.admission
        holds = not deleted and "QuotaReserved" in true and "Finished" not in true and admission is not None
        usage: dict[FlavorResource, int] = defaultdict(int)
        if holds and admission is not None:
            for assignment in admission.pod_set_assignments:
                for resource, quantity in assignment.resource_usage.items():
                    flavor = assignment.flavors.get(resource, "")
                    usage[flavor, resource] += request_units(resource, quantity)
            self._home[uid] = admission.cluster_queue
        grew = any(v > self._usage.get(uid, {}).get(k, 0) for k, v in usage.items())
        self._usage[uid] = usage
        self._count_admission(workload, "Admitted" in true and not deleted)
        if grew:
            self._check_quota(self._home[uid], workload.metadata.key)

    def job(self, job: JobState) -> None:
        """A job of a queue exists or changed."""
        before = self.jobs.get(job.uid)
        self.jobs[job.uid] = job
        if job.suspended:
            self.waited.add(job.uid)
            return
        if before is not None and not before.suspended:
            return
        self.starts[job.uid] += 1
        if job.uid not in self.waited:
            self._problem(f"order: job {job.key} ran without having been suspended first")

    def finish(self, *, expected: Iterable[str]) -> None:
        """After all watches have caught up: every job of `expected` (UIDs) is complete, every start has its admission."""
        for uid in expected:
            job = self.jobs.get(uid)
            if job is None or not job.complete:
                state = "unknown" if job is None else "failed" if job.failed else "unfinished"
                self._problem(f"complete: job {job.key if job else uid} is {state}")
        for uid, starts in self.starts.items():
            if starts > self.admissions[uid]:
                key = self.jobs[uid].key
                self._problem(f"once: job {key} was started {starts} times, admitted {self.admissions[uid]} times")

    def _count_admission(self, workload: Workload, admitted: bool) -> None:
        uid = workload.metadata.uid
        if admitted and not self._admitted.get(uid, False):
            owner = workload.metadata.controller_owner()
            self.admissions[owner.uid if owner else uid] += 1
        self._admitted[uid] = admitted

    def _check_quota(self, cluster_queue: str, cause: str) -> None:
        quota = self._queues.get(cluster_queue)
        if quota is None:
            self._problem(f"quota: {cause} was admitted into {cluster_queue}, which does not exist")
            return
        used = self._sum({cluster_queue})
        for key, value in used.items():
            self.peak[cluster_queue, key] = max(self.peak[cluster_queue, key], value)
            limit = quota.limit.get(key, 0)
            if value > limit:
                self._problem(f"quota: {cluster_queue} uses {value} of {key}, allowed are {limit} (after {cause})")
        if quota.cohort:
            members = {name for name, q in self._queues.items() if q.cohort == quota.cohort}
            for key, value in self._sum(members).items():
                total = sum(self._queues[m].nominal.get(key, 0) for m in members)
                if value > total:
                    self._problem(f"quota: cohort {quota.cohort} uses {value} of {key}, has {total} (after {cause})")

    def _sum(self, queues: set[str]) -> Mapping[FlavorResource, int]:
        total: dict[FlavorResource, int] = defaultdict(int)
        for uid, usage in self._usage.items():
            if self._home.get(uid) in queues:
                for key, value in usage.items():
                    total[key] += value
        return total

    def _problem(self, text: str) -> None:
        if text not in self.problems:
            self.problems.append(text)
