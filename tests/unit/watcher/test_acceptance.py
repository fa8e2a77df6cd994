"""The acceptance scenarios of the integration specification (20.2) by number, and its vectors (20.1): which tests hold each of them.

Where no other test holds a scenario as a whole, its test is here. Kinds of jobs go through their lives on a real control plane besides
(tests/integration/stack/test_kinds.py, tests/e2e).
"""

import ast
from collections.abc import AsyncIterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from services.watcher.managed_jobs import JobSettings
from shared.events import commands as c
from shared.jobs.naming import workload_name
from shared.kube.resources import WORKLOADS
from tests.unit.watcher.manifests import condition
from tests.unit.watcher.world import World, queued_job, running

TESTS = Path(__file__).parents[2]
NAME = workload_name(kind="Job", group="batch", name="j", uid="uid-j")

SCENARIOS: dict[str, tuple[str, ...]] = {
    "A1": (
        "integration/stack/test_life_of_a_job.py::test_a_job_from_creation_to_complete",
        "unit/watcher/test_reconcile_job.py::test_an_admitted_job_starts_with_its_flavor",
    ),
    "A2": (
        "integration/test_admission.py::test_a_job_without_a_queue_name_is_left_alone",
        "unit/watcher/test_reconcile_job.py::test_jobs_without_a_queue_are_left_alone",
    ),
    "A3": (
        "unit/webhook/test_handlers.py::test_jobs_without_a_queue_are_managed_when_told_so",
        "unit/watcher/test_acceptance.py::test_a3_a_job_without_a_queue_waits_until_it_gets_one",
    ),
    "A4": (
        "integration/test_admission.py::test_the_default_queue_of_a_namespace_found_by_a_live_read",
        "unit/webhook/test_default_job.py::test_defaults",
        "integration/stack/test_kinds.py::test_a_job_of_a_namespace_with_a_default_queue",
    ),
    "A5": ("unit/watcher/test_reconcile_job.py::test_a_pending_job_that_changes_keeps_its_workload",),
    "A6": ("unit/watcher/test_reconcile_job.py::test_a_pending_job_may_change_its_queue",),
    "A7": (
        "integration/test_admission.py::test_a_running_job_cannot_change_its_queue",
        "unit/webhook/test_validate_job.py::test_update",
    ),
    "A8": (
        "unit/jobs/test_equivalence.py::test_tolerations_of_an_admitted_workload_do_not_matter",
        "unit/watcher/test_acceptance.py::test_a8_tolerations_of_a_running_job_do_not_matter",
    ),
    "A9": (
        "unit/watcher/test_reconcile_job.py::test_an_eviction_stops_restores_and_then_releases",
        "integration/test_job_life.py::test_a_preempted_job_can_be_admitted_again",
    ),
    "A10": (
        "unit/watcher/test_acceptance.py::test_a10_a_workload_that_is_deleted_comes_back_under_its_name",
        "integration/test_job_life.py::test_a_workload_that_is_deleted_is_made_anew_and_the_job_stopped",
    ),
    "A11": ("unit/watcher/test_acceptance.py::test_a11_a_label_of_a_check_that_contradicts_the_template",),
    "A12": (
        "unit/watcher/test_job_kinds.py::test_its_jobs_are_children_and_follow_its_workload",
        "e2e/job_kinds.py::test_a_life_with_its_own_controller",
    ),
    "A13": (
        "unit/watcher/test_reconcile_job.py::test_a_class_that_is_missing_is_told_once_and_waited_for",
        "integration/test_job_life.py::test_a_missing_class_and_a_foreign_workload_are_told_once",
    ),
    "A14": ("unit/watcher/test_prebuilt.py::test_it_waits_for_the_workload_and_makes_none",),
    "A15": ("unit/watcher/test_prebuilt.py::test_one_that_differs_is_finished_and_the_job_stays_held",),
    "A16": ("unit/watcher/test_acceptance.py::test_a16_a_job_runs_with_fewer_pods_and_gets_them_back",),
    "A17": ("unit/watcher/test_elastic.py::test_fewer_pods_are_fewer_in_the_same_workload",),
    "A18": (
        "unit/watcher/test_elastic.py::test_more_pods_ask_by_a_new_slice_while_the_job_runs",
        "unit/watcher/test_elastic.py::test_pods_run_as_far_as_they_were_granted",
    ),
    "A19": (
        "integration/stack/test_kinds.py::test_a_plain_pod",
        "unit/webhook/test_pods.py::test_a_queued_pod_is_held_back_marked_and_kept",
    ),
    "A20": (
        "unit/watcher/test_reconcile_pod.py::test_an_evicted_pod_is_told_why_and_deleted_and_its_quota_is_free_at_once",
    ),
    "A21": ("unit/watcher/test_reconcile_group.py::test_nothing_is_asked_for_before_the_group_is_complete",),
    "A22": ("unit/watcher/test_reconcile_group.py::test_a_failed_pod_is_replaced_under_the_same_admission",),
    "A23": ("unit/watcher/test_reconcile_group.py::test_one_pod_too_many_is_deleted",),
    "A24": ("unit/watcher/test_reconcile_group.py::test_a_group_that_cannot_be_retried_is_over_when_all_have_ended",),
    "A25": ("unit/watcher/test_reconcile_group.py::test_a_foreign_workload_of_that_name_is_left_alone",),
    "A26": (
        "unit/jobs/test_deployment.py::test_each_pod_has_a_workload_of_its_own",
        "integration/stack/test_kinds.py::test_a_deployment_queues_by_its_pods",
    ),
    "A27": ("unit/jobs/test_stateful_set.py::test_replicas_change_from_or_to_none",),
    "A28": ("unit/jobs/test_stateful_set.py::test_replicas_change_from_or_to_none",),
    "A29": ("unit/jobs/test_leader_worker_set.py::test_a_workload_for_each_group",),
    "A30": ("unit/jobs/test_leader_worker_set.py::test_a_rollout_that_surges_has_more_groups",),
    "A31": (
        "unit/jobs/test_ray_job.py::test_the_submitter_is_the_last_pod_set",
        "integration/stack/test_kinds.py::test_a_life",
    ),
    "A32": ("unit/jobs/test_ray_cluster.py::test_a_cluster_that_scales_itself_must_be_elastic",),
    "A33": ("unit/watcher/test_reconcile_job.py::test_excluded_namespaces_are_left_alone",),
    "A34": ("unit/watcher/test_retention.py::test_a_job_that_was_given_up",),
    "A35": (
        "unit/jobs/test_queue_membership.py::test_a_stale_reference_protects_nothing",
        "unit/watcher/test_acceptance.py::test_a35_a_child_of_a_parent_of_another_uid_is_a_job_of_its_own",
    ),
}
"""Number -> the tests that hold it, from the folder of all tests."""
VECTORS: dict[str, str] = {
    "names of workloads": "unit/jobs/test_naming.py::test_published_vectors",
    "role hashes": "unit/jobs/test_pod_role.py::test_vectors",
    "the text that is hashed": "unit/jobs/test_pod_role.py::test_what_is_hashed",
    "reclaimable pods": "unit/jobs/test_batch_job.py::test_reclaimable",
    "reclaimable pods by index": "unit/jobs/test_batch_job.py::test_reclaimable_by_index",
}


@cache
def _functions(file: str) -> frozenset[str]:
    tree = ast.parse((TESTS / file).read_text())
    return frozenset(n.name for n in tree.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))


def test_there_are_thirty_five() -> None:
    assert list(SCENARIOS) == [f"A{n}" for n in range(1, 36)]


@pytest.mark.parametrize("scenario", [*SCENARIOS, *VECTORS])
def test_each_is_held_by_a_test_that_is_there(scenario: str) -> None:
    for test in SCENARIOS.get(scenario) or (VECTORS[scenario],):
        file, _, name = test.partition("::")
        assert name in _functions(file), test


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with running() as found:
        yield found


async def admitted(world: World, **job: Any) -> None:
    world.load("job", queued_job(**job))
    await world.settled()
    await world.decide(world.admit(NAME))
    assert world.job()["spec"]["suspend"] is False


async def test_a3_a_job_without_a_queue_waits_until_it_gets_one() -> None:
    async with running(JobSettings(manage_without_queue_name=True)) as world:
        job = queued_job()
        job["metadata"]["labels"] = {}
        world.load("job", job)
        await world.settled()
        assert "queueName" not in world.workload(NAME)["spec"]
        world.edit("job", "j", lambda job: job["metadata"]["labels"].update({"kueue.x-k8s.io/queue-name": "lq"}))
        await world.settled()
        assert world.workload(NAME)["spec"]["queueName"] == "lq"
        await world.decide(world.admit(NAME))
        assert world.job()["spec"]["suspend"] is False


async def test_a8_tolerations_of_a_running_job_do_not_matter(world: World) -> None:
    await admitted(world)
    more = [{"key": "other", "operator": "Exists"}]
    world.edit("job", "j", lambda job: job["spec"]["template"]["spec"].update(tolerations=more))
    await world.settled()
    assert world.job()["spec"]["suspend"] is False
    assert len(world.api.created("workloads")) == 1
    assert not any(call.verb == "delete" for call in world.api.calls)


async def test_a10_a_workload_that_is_deleted_comes_back_under_its_name(world: World) -> None:
    await admitted(world)
    await world.api.delete(WORKLOADS, "team", NAME)
    world.deliver("workload", NAME)
    await world.settled()
    assert world.job()["spec"] == queued_job()["spec"]
    world.deliver("workload", NAME)
    await world.settled()
    assert [made["metadata"]["name"] for made in world.api.created("workloads")] == [NAME, NAME]
    assert "admission" not in world.workload(NAME).get("status", {})


async def test_a11_a_label_of_a_check_that_contradicts_the_template(world: World) -> None:
    job = queued_job()
    job["spec"]["template"].setdefault("metadata", {})["labels"] = {"rack": "one"}
    world.load("job", job)
    await world.settled()
    await world.decide(world.admit(NAME, checks=("check",)))
    found = world.projection(NAME)
    who: dict[str, Any] = {"id": "", "kind": "workload", "namespace": "team", "name": NAME, "uid": found.uid}
    update = c.PodSetUpdate(name="main", labels={"rack": "two"})
    await world.command(c.SetCheckState(**who, check="check", state="Ready", pod_set_updates=(update,)))
    assert world.condition("Finished", NAME) is None
    await world.command(c.SyncAdmitted(**who))
    assert world.condition("Admitted", NAME) == ("True", "Admitted")
    assert world.condition("Finished", NAME) == ("True", "FailedToStart")
    assert world.job()["spec"] == job["spec"]


async def test_a16_a_job_runs_with_fewer_pods_and_gets_them_back(world: World) -> None:
    job = queued_job(annotations={"kueue.x-k8s.io/job-min-parallelism": "3"})
    job["spec"] |= {"parallelism": 10, "completions": 10}
    world.load("job", job)
    await world.settled()
    pod_set = world.workload(NAME)["spec"]["podSets"][0]
    assert (pod_set["count"], pod_set["minCount"]) == (10, 3)
    await world.decide(world.admit(NAME, count=5))
    assert (world.job()["spec"]["suspend"], world.job()["spec"]["parallelism"]) == (False, 5)
    status = {"active": 5, "conditions": [condition("Suspended", "False")]}
    world.edit("job", "j", lambda job: job.update(status=status))
    await world.append(world.preempt(NAME))
    await world.until(lambda: world.job()["spec"]["suspend"] is True)
    await world.until(lambda: world.job()["spec"] == job["spec"])
    assert world.job()["spec"]["parallelism"] == 10


async def test_a35_a_child_of_a_parent_of_another_uid_is_a_job_of_its_own(world: World) -> None:
    world.load("job", queued_job("parent"))
    child = queued_job()
    stale = {"apiVersion": "batch/v1", "kind": "Job", "name": "parent", "uid": "uid-of-before", "controller": True}
    child["metadata"]["ownerReferences"] = [stale]
    world.load("job", child)
    await world.settled()
    (owner,) = world.workload(NAME)["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"]) == ("Job", "j")
    await world.decide(world.admit(NAME))
    assert world.job()["spec"]["suspend"] is False
