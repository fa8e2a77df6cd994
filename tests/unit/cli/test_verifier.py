"""The judge must notice each broken promise, and nothing else."""

from __future__ import annotations

from typing import Any

from cli.verifier import JobState, Verifier
from shared.api.cluster_queue import ClusterQueue
from shared.api.decoding import convert
from shared.api.workload import Workload

TIME = "2026-01-01T00:00:00Z"


def queue(name: str, cpu: str, cohort: str = "", limit: str | None = None) -> ClusterQueue:
    quota: dict[str, Any] = {"name": "cpu", "nominalQuota": cpu}
    if limit is not None:
        quota["borrowingLimit"] = limit
    group = {"coveredResources": ["cpu"], "flavors": [{"name": "f", "resources": [quota]}]}
    spec = {"cohortName": cohort, "resourceGroups": [group]}
    return convert(ClusterQueue, {"metadata": {"name": name}, "spec": spec})


def workload(uid: str, cpu: str, queue_name: str = "a", *true: str) -> Workload:
    conditions = [
        {"type": t, "status": "True", "reason": "r", "message": "", "lastTransitionTime": TIME}
        for t in true or ("QuotaReserved", "Admitted")
    ]
    assignment = {"name": "main", "count": 1, "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": cpu}}
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": f"job-{uid}", "controller": True}
    return convert(
        Workload,
        {
            "metadata": {"name": uid, "namespace": "n", "uid": uid, "ownerReferences": [owner]},
            "spec": {"podSets": []},
            "status": {
                "conditions": conditions,
                "admission": {"clusterQueue": queue_name, "podSetAssignments": [assignment]},
            },
        },
    )


def job(uid: str, *, suspended: bool, complete: bool = False) -> JobState:
    return JobState(uid=f"job-{uid}", key=f"n/{uid}", version=1, suspended=suspended, complete=complete)


def judge(*items: ClusterQueue | Workload | JobState) -> Verifier:
    verifier = Verifier()
    for item in items:
        if isinstance(item, ClusterQueue):
            verifier.cluster_queue(item)
        elif isinstance(item, Workload):
            verifier.workload(item)
        else:
            verifier.job(item)
    return verifier


def kinds(verifier: Verifier) -> list[str]:
    return [p.split(":")[0] for p in verifier.problems]


def test_a_good_life_is_no_problem() -> None:
    verifier = judge(
        queue("a", "1"),
        job("w", suspended=True),
        workload("w", "1"),
        job("w", suspended=False),
        job("w", suspended=False, complete=True),
        workload("w", "1", "a", "QuotaReserved", "Admitted", "Finished"),
        workload("x", "1"),
    )
    verifier.finish(expected=["job-w"])
    assert verifier.problems == []
    assert verifier.peak["a", ("f", "cpu")] == 1000


def test_more_than_nominal_without_a_cohort() -> None:
    assert kinds(judge(queue("a", "1"), workload("w", "600m"), workload("x", "600m"))) == ["quota"]


def test_borrowing_within_and_beyond_the_limit() -> None:
    lent = [queue("a", "1", "c", "500m"), queue("b", "1", "c")]
    assert kinds(judge(*lent, workload("w", "1500m"))) == []
    assert kinds(judge(*lent, workload("w", "1600m"))) == ["quota"]
    assert kinds(judge(*lent, workload("w", "1500m"), workload("x", "600m", "b"))) == ["quota"]


def test_quota_taken_away_under_a_running_workload_is_nobodys_fault() -> None:
    verifier = judge(queue("a", "2"), workload("w", "2"), queue("a", "1"), workload("w", "2"))
    assert verifier.problems == []


def test_a_deleted_workload_holds_nothing() -> None:
    verifier = judge(queue("a", "1"), workload("w", "1"))
    verifier.workload(workload("w", "1"), deleted=True)
    verifier.workload(workload("x", "1"))
    assert verifier.problems == []


def test_a_queue_that_does_not_exist() -> None:
    assert kinds(judge(workload("w", "1"))) == ["quota"]


def test_a_job_that_ran_at_once() -> None:
    assert kinds(judge(job("w", suspended=False))) == ["order"]


def test_started_more_often_than_admitted() -> None:
    verifier = judge(
        queue("a", "1"),
        job("w", suspended=True),
        workload("w", "1"),
        job("w", suspended=False),
        job("w", suspended=True),
        job("w", suspended=False),
    )
    verifier.finish(expected=[])
    assert kinds(verifier) == ["once"]


def test_unfinished_failed_and_unknown_jobs() -> None:
    failed = JobState(uid="job-f", key="n/f", version=1, suspended=True, failed=True)
    verifier = judge(job("w", suspended=True), failed)
    verifier.finish(expected=["job-w", "job-f", "job-x"])
    assert [p.rsplit(" ", 1)[1] for p in verifier.problems] == ["unfinished", "failed", "unknown"]


def test_a_problem_is_said_once() -> None:
    verifier = judge(job("w", suspended=False))
    verifier.finish(expected=["job-w"])
    verifier.finish(expected=["job-w"])
    assert len(verifier.problems) == len(set(verifier.problems))
