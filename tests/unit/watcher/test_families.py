"""The lane of families: variants are made, stopped and released as decided, and a job runs by its parent workload. What is decided is tested in decide."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from services.watcher.family_view import build_variant, family_of, followed, is_parent, is_variant
from services.watcher.kinds import read
from services.watcher.managed_jobs import JobSettings
from services.watcher.start_info import pod_set_infos
from services.watcher.workload_state import workload_of
from shared.api.cluster_queue import ClusterQueue
from shared.api.decoding import decode
from shared.api.workload import Workload
from shared.config.feature_gates import resolve
from shared.decide.variant_family import Variant
from shared.events import objects
from shared.jobs.manifest import section
from shared.jobs.naming import variant_name
from shared.kube.errors import Conflict, Refused
from tests.unit.watcher.manifests import LATER_S, TIME, condition, metadata, raw, template, workload
from tests.unit.watcher.world import World, queued_job, running

PARENT = "kueue.x-k8s.io/concurrent-admission-parent"
FLAVOR = "kueue.x-k8s.io/workload-allowed-resource-flavors"
GATE = "kueue.x-k8s.io/concurrent-admission"
JOB = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "uid-j", "controller": True}


def queue(*flavors: str, mode: str = "TryPreferredFlavors", version: int = 1) -> dict[str, Any]:
    quotas = [{"name": f, "resources": [{"name": "cpu", "nominalQuota": "9"}]} for f in flavors]
    group = {"coveredResources": ["cpu"], "flavors": quotas}
    spec: dict[str, Any] = {"resourceGroups": [group]}
    if mode:
        spec["concurrentAdmissionPolicy"] = {"migration": {"mode": mode}}
    return {"metadata": metadata("cq", version=version), "spec": spec}


def settings(on: bool = True) -> JobSettings:
    return JobSettings(gates=resolve({"ConcurrentAdmission": on}))


def prepare(world: World) -> None:
    for name in ("fast", "slow"):
        world.load("resourceflavor", {"metadata": metadata(name), "spec": {"nodeLabels": {"pool": name}}})
    world.load("clusterqueue", queue("fast", "slow"))
    world.load("localqueue", {"metadata": metadata("lq", namespace="team"), "spec": {"clusterQueue": "cq"}})


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with running(settings(), prepare) as made:
        yield made


def family(world: World) -> tuple[str, dict[str, str]]:
    """Name of the parent, and of each variant by its flavor."""
    found = world.api.objects_of("workloads")
    parents = [w["metadata"]["name"] for w in found if PARENT in w["metadata"].get("labels", {})]
    variants = {
        w["metadata"]["annotations"][FLAVOR]: w["metadata"]["name"]
        for w in found
        if FLAVOR in w["metadata"].get("annotations", {})
    }
    return parents[0] if parents else "", variants


async def queued(world: World, **meta: Any) -> tuple[str, dict[str, str]]:
    world.load("job", queued_job(**meta))
    await world.settled()
    return family(world)


async def admit(world: World, name: str, flavor: str) -> None:
    pods = objects.PodSetAssignment(name="main", count=3, flavors={"cpu": flavor}, usage={"cpu": 3000})
    await world.decide(world.admit(name, pod_sets=(pods,)))


def running_on(world: World) -> str:
    """The pool that the pods of the job are sent to; empty while it is held back."""
    spec = world.job()["spec"]
    return "" if spec["suspend"] else spec["template"]["spec"]["nodeSelector"]["pool"]


# --- making ----------------------------------------------------------------------------------------------------------


async def test_a_job_gets_a_parent_and_a_variant_for_each_flavor(world: World) -> None:
    parent, variants = await queued(world)
    assert list(variants) == ["fast", "slow"]
    made = world.workload(variants["fast"])
    whole = world.workload(parent)
    assert made["metadata"]["name"] == variant_name(parent, "fast")
    assert made["metadata"]["ownerReferences"] == [
        {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "Workload",
            "name": parent,
            "uid": whole["metadata"]["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]
    assert made["metadata"]["labels"] == {"kueue.x-k8s.io/job-uid": "uid-j"}
    assert "finalizers" not in made["metadata"]
    assert made["spec"]["podSets"] == whole["spec"]["podSets"]
    assert made["spec"]["preemptionGates"] == [{"name": GATE}]
    assert world.events(parent) == [
        ("CreatedVariant", "Created the variant on flavor fast"),
        ("CreatedVariant", "Created the variant on flavor slow"),
    ]


async def test_without_gate_or_policy_there_is_one_workload() -> None:
    async with running(settings(on=False), prepare) as world:
        assert await queued(world) == ("", {})
    async with running(settings(), prepare) as world:
        world.load("clusterqueue", queue("fast", "slow", mode="", version=2))
        assert await queued(world) == ("", {})


async def test_workloads_that_were_there_before_their_queue_follow_it() -> None:
    async with running(settings()) as world:
        assert await queued(world) == ("", {})
        prepare(world)
        await world.settled()
        assert list(family(world)[1]) == ["fast", "slow"]


async def test_flavors_come_and_go_with_the_queue(world: World) -> None:
    parent, variants = await queued(world)
    world.load("clusterqueue", queue("slow", "third"))
    await world.settled()
    world.deliver("workload", variants["fast"])
    await world.settled()
    assert list(family(world)[1]) == ["slow", "third"]
    assert ("DeletedVariant", "Deleted the variant on flavor fast") in world.events(parent)


async def test_the_status_of_a_queue_is_no_news(world: World) -> None:
    await queued(world)
    calls = len(world.api.calls)
    world.edit("clusterqueue", "cq", lambda q: q.update(status={"pendingWorkloads": 2}), namespace="")
    await world.settled()
    assert len(world.api.calls) == calls


async def test_a_variant_that_cannot_be_made_is_told_of_and_made_later(world: World) -> None:
    refusal = Refused(403, "Forbidden", "no more workloads here")
    # The parent is made, and then labelled; behind that come the variants.
    world.api.fail("patch", Conflict(409, "Conflict", "again"), meanwhile=lambda: world.api.fail("create", refusal))
    parent, variants = await queued(world)
    assert list(variants) == ["slow", "fast"]
    assert ("FailedCreate", "The variant on flavor fast cannot be created: no more workloads here") in world.events(
        parent
    )


# --- admission -------------------------------------------------------------------------------------------------------


async def test_the_job_runs_by_the_variant_that_is_admitted(world: World) -> None:
    parent, variants = await queued(world)
    await admit(world, variants["slow"], "slow")
    assert running_on(world) == "slow"
    assert world.condition("Admitted", parent) == ("True", "Admitted")
    assert world.workload(parent)["status"]["admission"] == world.workload(variants["slow"])["status"]["admission"]
    assert world.workload(variants["fast"])["spec"]["active"]
    assert "Admitted" in world.reasons(parent)


async def test_worse_flavors_are_given_up(world: World) -> None:
    _, variants = await queued(world)
    await admit(world, variants["fast"], "fast")
    assert not world.workload(variants["slow"])["spec"]["active"]
    assert world.reasons(variants["slow"]) == ["DeactivatedVariant"]


async def test_a_workload_that_has_variants_takes_no_quota_itself(world: World) -> None:
    parent, _ = await queued(world)
    await world.decide(world.admit(parent))
    assert world.outcomes[-1].status == "rejected"
    assert world.condition("QuotaReserved", parent) is None


async def test_not_even_before_it_has_any(world: World) -> None:
    world.api.fail("patch", Refused(422, "Invalid", "not yet"))
    world.load("workload", workload("w", meta={"ownerReferences": [JOB]}))
    await world.append(world.admit("w"))
    await world.until(lambda: bool(world.outcomes))
    assert (world.outcomes[0].status, world.condition("QuotaReserved", "w")) == ("rejected", None)


async def test_pods_get_what_the_checks_of_the_variant_say(world: World) -> None:
    parent, variants = await queued(world)
    update = {"name": "main", "labels": {"from": "check"}}
    state = {"name": "c", "state": "Ready", "lastTransitionTime": TIME, "message": "", "podSetUpdates": [update]}
    await admit(world, variants["fast"], "fast")
    world.edit("workload", variants["fast"], lambda w: w["status"].update(admissionChecks=[state]))
    stored = world.store.get("workload", "team", parent)
    assert stored is not None
    assert pod_set_infos(world.store, workload_of(stored))[0].labels["from"] == "check"
    assert "from" not in pod_set_infos(world.store, workload_of(stored), with_check_updates=False)[0].labels


# --- eviction --------------------------------------------------------------------------------------------------------


async def test_an_evicted_variant_gives_its_quota_back_behind_the_job(world: World) -> None:
    parent, variants = await queued(world)
    await admit(world, variants["slow"], "slow")
    runs = {"active": 3, "conditions": [condition("Suspended", "False")]}
    world.edit("job", "j", lambda j: j.update(status=runs))
    await world.settled()
    message = "Another variant on a preferred flavor can be admitted (UID: x)"
    better = f"team/{variants['fast']}"
    await world.append(
        world.preempt(
            variants["slow"],
            eviction="FlavorMigration",
            message=message,
            preemptor=better,
            preemptor_uid=f"uid-{variants['fast']}",
        )
    )
    await world.until(lambda: "Stopped" in world.reasons("j"))
    assert world.condition("Evicted", parent) == ("True", "VariantEvicted")
    assert "EvictedDueToVariantEvicted" in world.reasons(parent)
    assert running_on(world) == ""
    # Its pods still run.
    assert world.condition("QuotaReserved", variants["slow"]) == ("True", "QuotaReserved")
    stopped = {"active": 0, "conditions": [condition("Suspended", "True")]}
    world.edit("job", "j", lambda j: j.update(status=stopped))
    await world.settled()
    assert world.condition("QuotaReserved", parent) == ("False", "PendingEvaluation")
    assert world.condition("QuotaReserved", variants["slow"]) == ("False", "PendingEvaluation")
    # Parked by the migration, it may be tried again while nothing better is admitted.
    assert world.condition("Requeued", variants["slow"]) == ("True", "Reactivated")
    await admit(world, variants["fast"], "fast")
    assert running_on(world) == "fast"
    assert world.condition("Evicted", parent) == ("False", "QuotaReserved")


async def test_a_variant_that_vanishes_stops_the_job(world: World) -> None:
    parent, variants = await queued(world)
    await admit(world, variants["fast"], "fast")
    del world.api.objects[("workloads", "team", variants["fast"])]
    world.deliver("workload", variants["fast"])
    # Whether its pods are gone is not known yet, so it does not come to rest.
    await world.until(lambda: running_on(world) == "")
    assert world.condition("Evicted", parent) == ("True", "ConcurrentAdmission")
    assert list(family(world)[1]) == ["slow", "fast"]


async def test_gates_are_opened_and_looked_at_again_in_time(world: World) -> None:
    _, variants = await queued(world)
    blocked = [condition("BlockedOnPreemptionGates", reason="PreemptionGated"), condition("QuotaReserved", "False")]
    for name in variants.values():
        world.edit("workload", name, lambda w: w.update(status={"conditions": blocked}))
    # It does not come to rest: five minutes later it looks again.
    await world.until(lambda: bool(world.reasons(variants["fast"])))
    positions = {
        flavor: [(g["name"], g["position"]) for g in world.workload(name)["status"].get("preemptionGates", [])]
        for flavor, name in variants.items()
    }
    assert positions == {"fast": [(GATE, "Open")], "slow": []}
    assert world.reasons(variants["fast"]) == ["PreemptionUngatedVariant"]


# --- the end ---------------------------------------------------------------------------------------------------------


async def test_the_end_of_a_job_finishes_all_of_its_family(world: World) -> None:
    parent, variants = await queued(world)
    await admit(world, variants["fast"], "fast")
    complete = {"type": "Complete", "status": "True", "message": "done", "lastTransitionTime": TIME}
    world.edit("job", "j", lambda j: j.update(status={"conditions": [complete]}))
    await world.settled()
    assert {world.condition("Finished", name) for name in (parent, *variants.values())} == {("True", "Succeeded")}


async def test_a_family_whose_queue_has_no_policy_is_disbanded(world: World) -> None:
    parent, variants = await queued(world)
    other = queue("fast", mode="")
    world.load("clusterqueue", {**other, "metadata": metadata("plain")})
    world.load("localqueue", {"metadata": metadata("plain", namespace="team"), "spec": {"clusterQueue": "plain"}})
    world.edit("job", "j", lambda j: j["metadata"]["labels"].update({"kueue.x-k8s.io/queue-name": "plain"}))
    await world.settled()
    for name in variants.values():
        world.deliver("workload", name)
    await world.settled()
    assert family(world) == ("", {})
    assert PARENT not in world.workload(parent)["metadata"]["labels"]


async def test_gates_and_priority_of_the_job_reach_the_variants(world: World) -> None:
    gated = {"kueue.x-k8s.io/admission-gated-by": "example.com/a"}
    parent, variants = await queued(world, annotations=gated)
    assert world.workload(variants["fast"])["metadata"]["annotations"].items() >= gated.items()
    world.edit("job", "j", lambda j: j["metadata"].update(annotations={}))
    await world.settled()
    assert world.workload(variants["fast"])["metadata"]["annotations"] == {FLAVOR: "fast"}
    world.edit("workload", parent, lambda w: w["spec"].update(priority=7))
    await world.settled()
    assert world.workload(variants["slow"])["spec"]["priority"] == 7


# --- pure parts ------------------------------------------------------------------------------------------------------


def typed(document: dict[str, Any]) -> Workload:
    return workload_of(read("workload", raw(document)))


def made(**changes: Any) -> Workload:
    owner = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "name": "w",
        "uid": "uid-w",
        "controller": True,
    }
    meta = {"ownerReferences": [owner], "annotations": {FLAVOR: "fast"}}
    return typed(workload("v", meta=meta, **changes))


def seen(variant: Workload, parent: Workload | None = None) -> Variant:
    whole = parent if parent is not None else typed(workload(meta={"labels": {PARENT: "true"}}))
    return family_of(whole, decode(ClusterQueue, raw(queue("fast"))), [variant]).variants[0]


def test_who_is_what() -> None:
    assert is_parent(typed(workload(meta={"labels": {PARENT: "true"}})))
    assert not is_parent(typed(workload(meta={"labels": {PARENT: "false"}})))
    assert is_variant(made())
    foreign = {"apiVersion": "scheduling.k8s.io/v1alpha1", "kind": "Workload", "name": "w", "uid": "u"}
    assert not is_variant(typed(workload(meta={"ownerReferences": [{**foreign, "controller": True}]})))
    assert not is_variant(typed(workload()))


def test_a_plain_variant() -> None:
    assert seen(made()) == Variant(name="v", flavor="fast")


@pytest.mark.parametrize(
    ("conditions", "field"),
    [
        ([condition("QuotaReserved")], {"reserved": True, "looked_at": True, "admissible": False}),
        ([condition("Admitted")], {"admitted": True}),
        ([condition("Evicted")], {"evicted": True}),
        ([condition("QuotaReserved", "False")], {"looked_at": True}),
        ([condition("QuotaReserved", "False", "OnHold")], {"looked_at": True, "admissible": False}),
        ([condition("BlockedOnPreemptionGates")], {"blocked": True}),
        ([condition("BlockedOnPreemptionGates", "False")], {}),
        ([condition("WaitingForReplacementPods")], {"admissible": False}),
        ([condition("Requeued", "False", "FlavorMigration")], {"parked": True}),
        ([condition("Requeued", "False", "PodsReadyTimeout")], {}),
    ],
)
def test_what_its_conditions_say(conditions: list[dict[str, Any]], field: dict[str, Any]) -> None:
    assert seen(made(status={"conditions": conditions})) == Variant(name="v", flavor="fast", **field)


def test_an_open_gate() -> None:
    at = "2026-01-02T03:05:05Z"
    gates = [{"name": GATE, "position": "Open", "lastTransitionTime": at}]
    assert seen(made(status={"preemptionGates": gates})).open_since == LATER_S
    gates[0]["position"] = "Closed"
    assert seen(made(status={"preemptionGates": gates})).open_since is None
    other = [{"name": "example.com/other", "position": "Open", "lastTransitionTime": at}]
    assert seen(made(status={"preemptionGates": other})).open_since is None


def test_progress_is_that_of_the_parent() -> None:
    ready = {"conditions": [condition("PodsReady")], "reclaimablePods": [{"name": "main", "count": 1}]}
    parent = typed(workload(status=ready))
    assert not seen(made(), parent).same_progress
    assert seen(made(status=ready), parent).same_progress
    # Without a word of the parent the variant keeps what it has.
    assert seen(made(status={"conditions": [condition("PodsReady")]})).same_progress


def test_what_is_followed() -> None:
    reference = {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "high"}
    parent = typed(workload(queueName="other", priority=5, priorityClassRef=reference))
    assert followed(parent, made()) == {"spec": {"priority": 5, "priorityClassRef": reference, "queueName": "other"}}
    holding = made(status={"conditions": [condition("QuotaReserved")]})
    assert "queueName" not in section(followed(parent, holding), "spec")
    assert followed(typed(workload()), made()) == {}


def test_other_pods_are_not_current() -> None:
    bigger = typed(workload(pod_sets=[{"name": "main", "count": 3, "template": template("2")}]))
    assert not seen(made(), bigger).current
    assert not seen(made(), typed(workload(maximumExecutionTimeSeconds=5))).current


def test_the_view_of_a_parent() -> None:
    admission = {"clusterQueue": "cq", "podSetAssignments": [{"name": "main", "flavors": {"cpu": "slow"}}]}
    status = {
        "conditions": [condition(t) for t in ("QuotaReserved", "Admitted", "Evicted")],
        "admission": admission,
        "requeueState": {"count": 1, "requeueAt": "2026-01-02T03:05:05Z"},
    }
    document = queue("fast", "slow", mode="RetainFirstAdmission")
    document["spec"]["concurrentAdmissionPolicy"]["migration"]["constraints"] = {"lastAcceptableFlavorName": "fast"}
    found = family_of(typed(workload(status=status, active=False)), decode(ClusterQueue, raw(document)), ())
    assert (found.flavors, found.retain_first, found.last_acceptable) == (("fast", "slow"), True, "fast")
    assert (found.active, found.reserved, found.admitted, found.evicted) == (False, True, True, True)
    assert (found.flavor, found.requeue_at, found.finished, found.deleting) == ("slow", LATER_S, False, False)
    assert family_of(typed(workload()), None, ()).flavors is None
    assert family_of(typed(workload()), decode(ClusterQueue, raw(queue("fast", mode=""))), ()).flavors == ()


def test_a_variant_is_no_group_and_keeps_other_gates() -> None:
    parent = workload(
        preemptionGates=[{"name": "kueue.x-k8s.io/multikueue"}, {"name": GATE}],
        meta={"labels": {PARENT: "true", "a": "b"}, "annotations": {"kueue.x-k8s.io/is-group-workload": "true"}},
    )
    parent["spec"]["active"] = False
    found = build_variant(parent, "fast")
    assert section(found, "metadata")["annotations"] == {FLAVOR: "fast"}
    assert section(found, "metadata")["labels"] == {"a": "b"}
    assert section(found, "spec")["preemptionGates"] == [{"name": "kueue.x-k8s.io/multikueue"}, {"name": GATE}]
    assert section(found, "spec")["active"] is True
