"""Other kinds than batch/v1 Job go through the same reconciler: a row in the table of watched kinds, and the Protocol."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from services.watcher.kinds import KINDS, UNMARKED_POD, read, watched_kinds
from services.watcher.managed_jobs import JobSettings
from shared.jobs import registry
from shared.jobs.jobset import JobSet
from shared.jobs.naming import workload_name
from shared.jobs.registry import integrated, owner_kind
from tests.unit.watcher.manifests import condition, metadata, raw, template
from tests.unit.watcher.world import World, queued_job, queued_pod, running

FRAMEWORK = "jobset.x-k8s.io/jobset"
TOKEN = "jobset.jobset.x-k8s.io"
NAME = workload_name(kind="JobSet", group="jobset.x-k8s.io", name="s", uid="uid-s")


def job_set(name: str = "s", *, suspend: bool = True, **meta: Any) -> dict[str, Any]:
    labels = {"kueue.x-k8s.io/queue-name": "lq"}
    job = {"spec": {"parallelism": 3, "completions": 3, "template": template()}}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": metadata(name, namespace="team", labels=labels, generation=1, **meta),
        "spec": {"suspend": suspend, "replicatedJobs": [{"name": "main", "replicas": 1, "template": job}]},
        "status": {},
    }


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with running(JobSettings(frameworks=(FRAMEWORK, "batch/job"))) as found:
        yield found


def status(active: int, *conditions: dict[str, Any]) -> dict[str, Any]:
    one = {"name": "main", "active": active, "ready": 0, "succeeded": 0, "failed": 0, "suspended": 0}
    return {"replicatedJobsStatus": [one], "conditions": list(conditions)}


def test_only_what_is_enabled_is_watched() -> None:
    nothing = watched_kinds(())
    assert set(nothing) == set(KINDS) - {"job"}
    table = watched_kinds(integrated([FRAMEWORK, "batch/job", "pod"]).values())
    assert set(table) - set(nothing) == {"job", "pod", TOKEN}
    assert table[TOKEN].optional
    assert not table["job"].optional
    assert not table["pod"].optional
    assert table["pod"].query == {"labelSelector": "kueue.x-k8s.io/managed=true"}
    assert not any(table[token].on_bus for token in ("job", "pod", TOKEN))
    assert table[TOKEN].resource.path("ns", "s") == "/apis/jobset.x-k8s.io/v1alpha2/namespaces/ns/jobsets/s"


LWS = "leaderworkerset.x-k8s.io/leaderworkerset"


@pytest.mark.parametrize(
    ("enabled", "sets"),
    [
        ([], set()),
        (["deployment"], set()),
        (["statefulset"], {"statefulset"}),
        ([LWS], {"statefulset", "leaderworkerset.leaderworkerset.x-k8s.io"}),
    ],
)
def test_sets_are_watched_with_the_pods_that_nobody_has_marked(enabled: list[str], sets: set[str]) -> None:
    nothing, table = watched_kinds(()), watched_kinds((), registry.grouped(enabled))
    assert set(table) - set(nothing) == (sets | {UNMARKED_POD} if sets else set())
    assert not any(table[token].on_bus for token in sets)
    assert {token for token in sets if table[token].optional} == sets - {"statefulset"}


def test_of_a_pod_that_nobody_has_marked_only_what_is_asked_is_kept() -> None:
    table = watched_kinds((), registry.grouped(["statefulset"]))
    assert table[UNMARKED_POD].query == {"labelSelector": "statefulset.kubernetes.io/pod-name,!kueue.x-k8s.io/managed"}
    stored = read(UNMARKED_POD, raw(queued_pod("p")), table)
    assert (stored.raw, stored.object.metadata.name) == (b"", "p")


def test_what_is_kept_of_an_object() -> None:
    table = watched_kinds(integrated([FRAMEWORK, "pod"]).values())
    done = {**job_set(), "status": status(0, condition("Completed"))}
    assert JobSet().finished(json.loads(read(TOKEN, raw(done), table).raw)) is not None
    assert read("pod", raw(queued_pod("p")), table).raw
    assert read("pod", raw(queued_pod("p", phase="Succeeded")), table).raw == b""


async def test_a_life(world: World) -> None:
    world.load(TOKEN, job_set())
    await world.settled()
    (owner,) = world.workload(NAME)["metadata"]["ownerReferences"]
    assert (owner["apiVersion"], owner["kind"]) == ("jobset.x-k8s.io/v1alpha2", "JobSet")
    await world.decide(world.admit(NAME))
    started = world.api.one("jobsets", "s")
    assert started["spec"]["suspend"] is False
    pods = started["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    assert pods["spec"]["nodeSelector"] == {"pool": "a"}
    world.edit(TOKEN, "s", lambda job: job.update(status=status(1)))
    await world.append(world.preempt(NAME))
    await world.until(lambda: world.api.one("jobsets", "s")["spec"]["suspend"] is True)
    assert world.api.one("jobsets", "s")["spec"] == job_set()["spec"]
    world.edit(TOKEN, "s", lambda job: job.update(status=status(0, condition("Suspended"))))
    await world.settled()
    assert world.condition("QuotaReserved", NAME) == ("False", "PendingEvaluation")
    assert world.reasons("s") == ["CreatedWorkload", "Started", "Stopped"]
    await world.decide(world.admit(NAME))
    world.edit(TOKEN, "s", lambda job: job.update(status=status(0, condition("Completed"))))
    await world.settled()
    assert world.condition("Finished", NAME) == ("True", "Succeeded")


async def test_deleted(world: World) -> None:
    world.load(TOKEN, job_set())
    await world.settled()
    del world.api.objects[("jobsets", "team", "s")]
    world.deliver(TOKEN, "s")
    await world.settled()
    assert world.condition("Finished", NAME) == ("True", "OwnerNotFound")


async def test_its_jobs_are_children_and_follow_its_workload(world: World) -> None:
    world.load(TOKEN, job_set())
    api_version, kind = owner_kind(JobSet())
    reference = {"apiVersion": api_version, "kind": kind, "name": "s", "uid": "uid-s", "controller": True}
    world.load("job", queued_job("child", suspend=False, ownerReferences=[reference]))
    await world.settled()
    assert world.job("child")["spec"]["suspend"] is True
    assert [w["metadata"]["name"] for w in world.api.created("workloads")] == [NAME]
    await world.decide(world.admit(NAME))
    world.edit("job", "child", lambda job: job["spec"].update(suspend=False))
    await world.settled()
    assert world.job("child")["spec"]["suspend"] is False


async def test_kinds_of_one_name_in_two_groups_have_lanes_of_their_own(world: World) -> None:
    world.load(TOKEN, job_set("same"))
    world.load("job", queued_job("same"))
    await world.settled()
    owners = {w["metadata"]["ownerReferences"][0]["kind"] for w in world.api.created("workloads")}
    assert owners == {"Job", "JobSet"}


async def test_a_queue_change_is_followed_while_it_waits(world: World) -> None:
    world.load(TOKEN, job_set())
    await world.settled()
    world.edit(TOKEN, "s", lambda job: job["metadata"]["labels"].update({"kueue.x-k8s.io/queue-name": "other"}))
    await world.settled()
    assert world.workload(NAME)["spec"]["queueName"] == "other"


class _Restless(JobSet):
    """A kind with everything that is optional: it holds, it skips, it refers, and it starts in two writes."""

    def skip(self, job: Any, gates: Any) -> bool:
        return "skip" in job["metadata"].get("annotations", {})

    def on_hold(self, job: Any) -> bool:
        return "hold" in job["metadata"].get("annotations", {})

    def start(self, job: Any, infos: Any) -> Any:
        if not job["metadata"].get("annotations", {}).get("prepared"):
            return {"metadata": {"annotations": {"prepared": "yes"}}}
        return super().start(job, infos)


@pytest.fixture
async def restless(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    monkeypatch.setattr(registry, "INTEGRATED", (_Restless(),))
    async with running(JobSettings(frameworks=(FRAMEWORK,))) as found:
        yield found


async def test_a_start_of_two_writes(restless: World) -> None:
    restless.load(TOKEN, job_set())
    await restless.settled()
    await restless.decide(restless.admit(NAME))
    found = restless.api.one("jobsets", "s")
    assert found["spec"]["suspend"] is False
    assert found["metadata"]["annotations"]["prepared"] == "yes"
    assert [c.verb for c in restless.api.calls if c.plural == "jobsets"] == ["patch", "patch"]
    assert restless.reasons("s").count("Started") == 1


async def test_what_is_skipped_is_left_alone(restless: World) -> None:
    restless.load(TOKEN, job_set(annotations={"skip": ""}))
    await restless.settled()
    assert restless.api.created("workloads") == []


async def test_on_hold_a_job_holds_no_quota(restless: World) -> None:
    restless.load(TOKEN, job_set(annotations={"hold": ""}))
    await restless.settled()
    assert restless.api.created("workloads") == []
    restless.edit(TOKEN, "s", lambda job: job["metadata"]["annotations"].pop("hold"))
    await restless.settled()
    await restless.decide(restless.admit(NAME, checks=("waits",)))
    assert restless.condition("QuotaReserved", NAME) == ("True", "QuotaReserved")
    restless.edit(TOKEN, "s", lambda job: job["metadata"].update(annotations={"hold": ""}))
    await restless.settled()
    assert restless.condition("QuotaReserved", NAME) == ("False", "OnHold")
