"""A Job and its Workload from creation to the end, and every way in between, without a real cluster."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from services.watcher.lanes import LaneKey
from services.watcher.managed_jobs import JobSettings
from shared.config.feature_gates import resolve
from shared.events import commands as c
from shared.jobs.naming import workload_name
from shared.kube.errors import Unreachable
from shared.kube.resources import WORKLOADS
from tests.unit.watcher.manifests import condition, metadata, template, workload
from tests.unit.watcher.world import World, queued_job, running

LOST = Unreachable(0, "Unreachable", "no answer in time")
NAME = workload_name(kind="Job", group="batch", name="j", uid="uid-j")


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with running() as found:
        yield found


async def created(world: World, **job: Any) -> None:
    world.load("job", queued_job(**job))
    await world.settled()


async def admitted(world: World) -> None:
    await created(world)
    await world.decide(world.admit(NAME))


def finish_job(document: dict[str, Any], type_: str = "Complete") -> None:
    document["status"] = {"conditions": [condition(type_)], "succeeded": 3}


async def test_a_queued_job_gets_its_workload(world: World) -> None:
    await created(
        world,
        labels={"kueue.x-k8s.io/max-exec-time-seconds": "60"},
        annotations={"provreq.kueue.x-k8s.io/x": "1", "other": "2"},
    )
    found = world.workload(NAME)
    assert found["metadata"]["labels"] == {"kueue.x-k8s.io/job-uid": "uid-j"}
    assert found["metadata"]["annotations"] == {"provreq.kueue.x-k8s.io/x": "1"}
    assert found["metadata"]["finalizers"] == ["kueue.x-k8s.io/resource-in-use"]
    assert found["metadata"]["ownerReferences"] == [
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": "j",
            "uid": "uid-j",
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]
    spec = found["spec"]
    assert (spec["queueName"], spec["priority"], spec["maximumExecutionTimeSeconds"]) == ("lq", 0, 60)
    (pod_set,) = spec["podSets"]
    assert (pod_set["name"], pod_set["count"], pod_set["template"]) == ("main", 3, template())
    assert world.events("j") == [("CreatedWorkload", f"Created Workload: team/{NAME}")]


async def test_nothing_is_made_twice(world: World) -> None:
    await created(world)
    world.edit(
        "job",
        "j",
        lambda job: job["metadata"]["annotations"].update(x="1") if "annotations" in job["metadata"] else None,
    )
    await world.settled()
    assert len(world.api.created("workloads")) == 1


async def test_an_admitted_job_starts_with_its_flavor(world: World) -> None:
    await admitted(world)
    job = world.job()
    assert job["spec"]["suspend"] is False
    pod = job["spec"]["template"]
    assert pod["spec"]["nodeSelector"] == {"pool": "a"}
    assert pod["spec"]["tolerations"] == [{"key": "t", "operator": "Exists"}]
    assert pod["metadata"]["labels"]["kueue.x-k8s.io/podset"] == "main"
    assert pod["metadata"]["annotations"] == {"kueue.x-k8s.io/workload": NAME}
    assert world.events("j")[1:] == [("Started", "Admitted by clusterQueue cq")]


@pytest.mark.parametrize("landed", [True, False])
async def test_a_start_whose_answer_is_lost_happens_once(world: World, landed: bool) -> None:
    await created(world)
    # The flavor is missing when the workload is admitted, so that the next patch is the start.
    world.store.remove("resourceflavor", "", "default", version=world.api.version + 1)
    await world.append(world.admit(NAME))
    await world.until(lambda: world.condition("Admitted", NAME) is not None)
    world.api.fail("patch", LOST, landed=landed)
    world.api.version += 10
    world.load("resourceflavor", {"metadata": metadata("default", uid="new"), "spec": {}})
    await world.settled()
    assert world.job()["spec"]["suspend"] is False
    starts = [c for c in world.api.calls if c.plural == "jobs" and c.body.get("spec", {}).get("suspend") is False]
    assert len(starts) == 1


@pytest.mark.parametrize(("type_", "reason"), [("Complete", "Succeeded"), ("Failed", "Failed")])
async def test_the_end_of_the_job_is_that_of_the_workload(world: World, type_: str, reason: str) -> None:
    await admitted(world)
    world.edit("job", "j", lambda job: finish_job(job, type_))
    await world.settled()
    assert world.condition("Finished", NAME) == ("True", reason)
    assert world.condition("QuotaReserved", NAME) == ("True", "QuotaReserved")
    assert "FinishedWorkload" in world.reasons("j")
    assert world.workload(NAME)["metadata"]["finalizers"] == []


async def test_an_eviction_stops_restores_and_then_releases(world: World) -> None:
    await admitted(world)
    original = queued_job()["spec"]

    def runs(job: dict[str, Any]) -> None:
        job["status"] = {
            "active": 3,
            "startTime": "2026-01-02T04:00:00Z",
            "conditions": [condition("Suspended", "False")],
        }

    world.edit("job", "j", runs)
    await world.append(world.preempt(NAME))
    await world.until(lambda: world.job()["spec"] == original)
    job = world.job()
    assert "startTime" not in job["status"]
    assert world.condition("QuotaReserved", NAME) == ("True", "QuotaReserved")
    await world.until(lambda: "Stopped" in world.reasons("j"))

    def stopped(job: dict[str, Any]) -> None:
        job["status"] = {"active": 0, "conditions": [condition("Suspended", "True")]}

    world.edit("job", "j", stopped)
    await world.settled()
    assert world.condition("QuotaReserved", NAME) == ("False", "PendingEvaluation")
    assert world.condition("Admitted", NAME) == ("False", "NoReservation")
    assert world.condition("Requeued", NAME) == ("True", "Preempted")
    assert "admission" not in world.workload(NAME)["status"]


async def test_quota_of_a_job_that_was_started_and_stopped_at_once_is_not_given_away(world: World) -> None:
    """Its status says no active pods, but it was written before its controller saw the start."""
    await created(world)
    world.edit("job", "j", lambda job: job["status"].update(conditions=[condition("Suspended", "True")]))
    await world.decide(world.admit(NAME))
    await world.append(world.preempt(NAME))
    await world.until(lambda: world.job()["spec"]["suspend"] is True)
    await world.until(lambda: "kueue.x-k8s.io/stopping" not in world.job()["metadata"].get("annotations", {}))
    assert world.condition("QuotaReserved", NAME) == ("True", "QuotaReserved")
    world.edit(
        "job", "j", lambda job: job.update(status={"active": 2, "conditions": [condition("Suspended", "False")]})
    )
    world.edit("job", "j", lambda job: job.update(status={"active": 0, "conditions": [condition("Suspended", "True")]}))
    await world.until(lambda: world.condition("QuotaReserved", NAME) == ("False", "PendingEvaluation"))


async def test_a_job_that_runs_without_admission_is_stopped(world: World) -> None:
    await created(world, suspend=False)
    assert world.job()["spec"]["suspend"] is True
    assert world.reasons("j") == ["Stopped", "CreatedWorkload"]
    world.edit("job", "j", lambda job: job["spec"].update(suspend=False))
    await world.settled()
    assert world.job()["spec"]["suspend"] is True
    assert len(world.api.created("workloads")) == 1


async def test_a_running_job_without_workload_waits_for_its_pods(world: World) -> None:
    document = queued_job(suspend=False)
    document["status"] = {"active": 1}
    world.load("job", document)
    await world.settled()
    assert world.job()["spec"]["suspend"] is True
    assert world.api.created("workloads") == []
    world.edit("job", "j", lambda job: job.update(status={}))
    await world.settled()
    assert len(world.api.created("workloads")) == 1


async def test_a_pending_job_that_changes_keeps_its_workload(world: World) -> None:
    await created(world)
    world.edit("job", "j", lambda job: job["spec"].update(parallelism=2))
    await world.settled()
    assert world.workload(NAME)["spec"]["podSets"][0]["count"] == 2
    assert len(world.api.created("workloads")) == 1
    assert world.reasons("j") == ["CreatedWorkload", "UpdatedWorkload"]


async def test_a_pending_job_may_change_its_queue(world: World) -> None:
    await created(world)
    world.edit("job", "j", lambda job: job["metadata"]["labels"].update({"kueue.x-k8s.io/queue-name": "other"}))
    await world.settled()
    assert world.workload(NAME)["spec"]["queueName"] == "other"


async def test_a_reserved_workload_that_no_longer_fits_its_job_is_made_anew(world: World) -> None:
    await created(world)
    await world.decide(world.admit(NAME, checks=("check",)))
    world.edit("job", "j", lambda job: job["spec"].update(parallelism=1, completions=1))
    await world.until(lambda: any(c.verb == "delete" for c in world.api.calls))
    assert ("workloads", "team", NAME) not in world.api.objects
    world.deliver("workload", NAME)
    await world.settled()
    assert world.workload(NAME)["spec"]["podSets"][0]["count"] == 1
    assert world.reasons("j").count("DeletedWorkload") == 1


async def test_a_deleted_workload_stops_the_job_and_is_made_anew(world: World) -> None:
    await admitted(world)
    await world.api.delete(WORKLOADS, "team", NAME)
    world.deliver("workload", NAME)
    await world.settled()
    assert world.job()["spec"] == queued_job()["spec"]
    assert ("workloads", "team", NAME) not in world.api.objects
    world.deliver("workload", NAME)
    await world.settled()
    assert len(world.api.created("workloads")) == 2


async def test_a_deleted_job_finishes_its_workload(world: World) -> None:
    await created(world)
    del world.api.objects[("jobs", "team", "j")]
    world.deliver("job", "j")
    await world.settled()
    assert world.condition("Finished", NAME) == ("True", "OwnerNotFound")
    assert world.workload(NAME)["metadata"]["finalizers"] == []


async def test_a_workload_whose_job_went_unnoticed_is_finished_too() -> None:
    owner = [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "uid-j", "controller": True}]
    meta = {"ownerReferences": owner, "finalizers": ["kueue.x-k8s.io/resource-in-use"]}
    async with running(before=lambda w: w.load("workload", workload(meta=meta))) as world:
        assert world.condition("Finished") == ("True", "OwnerNotFound")
        assert world.workload()["metadata"]["finalizers"] == []


async def test_an_orphan_is_finished(world: World) -> None:
    meta = {"labels": {"kueue.x-k8s.io/job-uid": "x"}, "finalizers": ["kueue.x-k8s.io/resource-in-use", "other"]}
    world.load("workload", workload(meta=meta))
    world.load("workload", workload("mine"))
    await world.settled()
    assert world.condition("Finished") == ("True", "OwnerNotFound")
    assert world.workload()["metadata"]["finalizers"] == ["other"]
    assert world.condition("Finished", "mine") is None


async def test_with_the_gate_off_an_orphan_goes_on_waiting() -> None:
    meta = {"labels": {"kueue.x-k8s.io/job-uid": "x"}, "finalizers": ["kueue.x-k8s.io/resource-in-use"]}
    off = JobSettings(gates=resolve({"FinishOrphanedWorkloads": False}))
    async with running(off, lambda world: world.load("workload", workload(meta=meta))) as world:
        await world.settled()
        assert world.condition("Finished") is None
        assert world.workload()["metadata"]["finalizers"] == meta["finalizers"]
        # One that is over may go all the same.
        world.edit("workload", "w", lambda found: found.update(status={"conditions": [condition("Finished")]}))
        await world.settled()
        assert world.workload()["metadata"]["finalizers"] == []


@pytest.mark.parametrize("labels", [{}, {"kueue.x-k8s.io/queue-name": ""}])
async def test_jobs_without_a_queue_are_left_alone(world: World, labels: dict[str, str]) -> None:
    document = queued_job(suspend=False)
    document["metadata"]["labels"] = labels
    world.load("job", document)
    await world.settled()
    assert world.api.calls == []


async def test_excluded_namespaces_are_left_alone(world: World) -> None:
    document = queued_job()
    document["metadata"]["namespace"] = "kube-system"
    world.load(
        "namespace", {"metadata": metadata("kube-system", labels={"kubernetes.io/metadata.name": "kube-system"})}
    )
    world.load("job", document)
    await world.settled()
    assert world.api.calls == []


async def test_all_jobs_may_be_managed() -> None:
    async with running(JobSettings(manage_without_queue_name=True)) as world:
        document = queued_job(suspend=False)
        document["metadata"]["labels"] = {}
        world.load("job", document)
        await world.settled()
        assert world.job()["spec"]["suspend"] is True
        assert "queueName" not in world.workload(NAME)["spec"]


async def test_a_child_is_held_back_until_its_parent_is_admitted(world: World) -> None:
    await created(world)
    child = queued_job("child", suspend=False)
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "uid-j", "controller": True}
    child["metadata"]["ownerReferences"] = [owner]
    world.load("job", child)
    await world.settled()
    assert world.job("child")["spec"]["suspend"] is True
    assert world.reasons("child") == ["Suspended"]
    await world.decide(world.admit(NAME))
    world.edit("job", "child", lambda job: job["spec"].update(suspend=False))
    await world.settled()
    assert world.job("child")["spec"]["suspend"] is False
    assert len(world.api.created("workloads")) == 1


async def test_a_class_that_is_missing_is_told_once_and_waited_for(world: World) -> None:
    world.load("job", queued_job(labels={"kueue.x-k8s.io/priority-class": "high"}))
    await world.until(lambda: bool(world.events("j")))
    assert world.events("j") == [("WorkloadPriorityClassNotFound", "WorkloadPriorityClass 'high' does not exist")]
    world.load("workloadpriorityclass", {"metadata": metadata("high"), "value": 7})
    await world.settled()
    spec = world.workload(NAME)["spec"]
    assert spec["priority"] == 7
    assert spec["priorityClassRef"] == {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "high"}
    assert world.reasons("j") == ["WorkloadPriorityClassNotFound", "CreatedWorkload"]


async def test_a_foreign_workload_of_the_needed_name_is_left_alone(world: World) -> None:
    world.api.put("workloads", workload(NAME))
    world.load("job", queued_job())
    await world.until(lambda: bool(world.events("j")))
    await world.until(lambda: len(world.api.created("workloads")) == 2)
    ((reason, note),) = world.events("j")
    assert reason == "ErrWorkloadCompose"
    assert "belongs to nobody" in note
    assert world.workload(NAME)["metadata"].get("ownerReferences") is None


async def test_a_creation_whose_answer_was_lost_is_adopted(world: World) -> None:
    world.api.fail("create", LOST, landed=True)
    world.load("job", queued_job())
    await world.settled()
    assert world.store.get("workload", "team", NAME) is not None
    assert "ErrWorkloadCompose" not in world.reasons("j")


async def test_a_template_that_contradicts_the_flavor_can_never_start(world: World) -> None:
    document = queued_job()
    document["spec"]["template"]["spec"]["nodeSelector"] = {"pool": "other"}
    world.load("job", document)
    await world.settled()
    await world.decide(world.admit(NAME))
    assert world.condition("Finished", NAME) == ("True", "FailedToStart")
    assert world.job()["spec"]["suspend"] is True


async def test_fewer_pods_than_asked_for(world: World) -> None:
    await created(world, annotations={"kueue.x-k8s.io/job-min-parallelism": "1"})
    assert world.workload(NAME)["spec"]["podSets"][0]["minCount"] == 1
    await world.decide(world.admit(NAME, count=2))
    assert (world.job()["spec"]["suspend"], world.job()["spec"]["parallelism"]) == (False, 2)
    assert len(world.api.created("workloads")) == 1


async def test_pods_that_are_done_give_their_quota_back(world: World) -> None:
    await admitted(world)
    world.edit("job", "j", lambda job: job.update(status={"succeeded": 1, "active": 2}))
    await world.settled()
    assert world.workload(NAME)["status"]["reclaimablePods"] == [{"name": "main", "count": 1}]


async def test_pods_ready_is_written_where_it_is_waited_for() -> None:
    async with running(JobSettings(wait_for_pods_ready=True)) as world:
        await created(world)
        assert world.condition("PodsReady", NAME) is None, "before the start it would say nothing and cost a write"
        await world.decide(world.admit(NAME))
        await world.settled()
        assert world.condition("PodsReady", NAME) == ("False", "WaitForStart")
        world.edit("job", "j", lambda job: job.update(status={"ready": 3, "active": 3}))
        await world.settled()
        assert world.condition("PodsReady", NAME) == ("True", "Started")
        world.edit("job", "j", lambda job: job.update(status={"ready": 2, "active": 3}))
        await world.settled()
        assert world.condition("PodsReady", NAME) == ("False", "WaitForRecovery")


async def test_what_the_checks_say_reaches_the_job(world: World) -> None:
    await created(world)
    await world.decide(world.admit(NAME, checks=("check",)))

    def eta(document: dict[str, Any]) -> None:
        document["status"]["admissionChecks"][0]["message"] = "in 5 minutes"

    world.edit("workload", NAME, eta)
    await world.settled()
    assert ("UpdatedAdmissionCheck", "check: in 5 minutes") in world.events("j")
    assert world.job()["spec"]["suspend"] is True


@pytest.mark.parametrize("again", ["command", "decision"])
async def test_an_eviction_that_is_there_already_has_the_job_looked_at(
    world: World, again: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await admitted(world)

    def runs(job: dict[str, Any]) -> None:
        job["status"] = {"active": 3, "conditions": [condition("Suspended", "False")]}

    world.edit("job", "j", runs)
    await world.append(world.preempt(NAME))
    await world.until(lambda: world.condition("Evicted", NAME) == ("True", "Preempted"))

    def stopped(job: dict[str, Any]) -> None:
        job["status"] = {"active": 0, "conditions": [condition("Suspended", "True")]}

    world.edit("job", "j", stopped)
    await world.settled()
    looked: list[str] = []

    async def reconcile(kind: object, lane: LaneKey) -> None:
        looked.append(f"{lane.namespace}/{lane.name}")

    monkeypatch.setattr(world.gateway._reconciler, "reconcile", reconcile)
    if again == "command":
        outcome = await world.command(
            c.Evict(id="again", kind="workload", namespace="team", name=NAME, reason="Preempted", message="m")
        )
        assert outcome.status == "applied"
    else:
        await world.append(world.preempt(NAME))
        await world.until(lambda: len(world.outcomes) == 3)
        assert world.outcomes[-1].status == "applied"
    await world.until(lambda: bool(looked))
    assert set(looked) == {"team/j"}
