"""The decision log, applied: preconditions, outcomes, replays, lost answers, poison, the settled floor."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from services.watcher.workload_state import workload_of
from shared.events.decisions import SecondPass
from shared.kube.errors import Invalid, Unreachable
from tests.unit.watcher.manifests import condition, workload
from tests.unit.watcher.moments import NOW_TEXT
from tests.unit.watcher.world import World, running

LOST = Unreachable(0, "Unreachable", "no answer in time")


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with running(before=lambda w: w.load("workload", workload())) as found:
        yield found


def statuses(world: World) -> list[tuple[str, str]]:
    return [(o.status, o.why) for o in world.outcomes]


async def test_an_admission_is_one_write_of_all_that_belongs_together(world: World) -> None:
    await world.decide(world.admit(queued_since=int(world.clock()) - 7, considered="default"))
    (call,) = [c for c in world.api.calls if c.plural == "workloads"]
    assert call.subresource == "status"
    status = world.workload()["status"]
    assert status["admission"] == {
        "clusterQueue": "cq",
        "podSetAssignments": [
            {"name": "main", "flavors": {"cpu": "default"}, "resourceUsage": {"cpu": "3"}, "count": 3}
        ],
    }
    assert world.condition("QuotaReserved") == ("True", "QuotaReserved")
    assert world.condition("Admitted") == ("True", "Admitted")
    (outcome,) = world.outcomes
    assert (outcome.status, outcome.version) == ("applied", int(world.workload()["metadata"]["resourceVersion"]))
    assert world.events("w") == [
        (
            "QuotaReserved",
            "Quota reserved in ClusterQueue cq, wait time since queued was 7s; Flavors considered: default",
        ),
        ("Admitted", "Admitted by ClusterQueue cq, wait time since reservation was 0s"),
    ]


async def test_checks_that_are_not_ready_hold_the_admission_back(world: World) -> None:
    await world.decide(world.admit(checks=("b", "a")))
    assert world.condition("Admitted") == ("False", "UnsatisfiedAdmissionChecks")
    checks = world.workload()["status"]["admissionChecks"]
    assert [(c["name"], c["state"], c["lastTransitionTime"]) for c in checks] == [
        ("a", "Pending", NOW_TEXT),
        ("b", "Pending", NOW_TEXT),
    ]
    assert world.reasons("w") == ["QuotaReserved"]


async def test_a_reservation_resets_what_an_eviction_left(world: World) -> None:
    def evicted(document: dict[str, object]) -> None:
        document["status"] = {
            "conditions": [condition("Evicted", reason="Preempted"), condition("Preempted"), condition("Requeued")],
            "resourceRequests": [{"name": "main", "resources": {"cpu": "3"}}],
        }

    world.edit("workload", "w", evicted)
    await world.decide(world.admit())
    assert world.condition("Evicted") == ("False", "QuotaReserved")
    assert world.condition("Preempted") == ("False", "QuotaReserved")
    assert "resourceRequests" not in world.workload()["status"]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"incarnation": "0" * 12}, "the workload has changed since it was decided about"),
        ({"uid": "another"}, "the object is gone"),
        ({"key": "team/absent"}, "the object is gone"),
    ],
)
async def test_a_decision_about_something_else_is_rejected(world: World, changes: dict[str, str], why: str) -> None:
    await world.decide(msgspec.structs.replace(world.admit(), **changes))
    assert statuses(world) == [("rejected", why)]
    assert [c for c in world.api.calls if c.plural == "workloads"] == []


@pytest.mark.parametrize(
    ("edit", "why"),
    [
        ({"spec": {"active": False}}, "the workload is not active"),
        ({"metadata": {"deletionTimestamp": NOW_TEXT}}, "the workload is being deleted"),
        ({"status": {"conditions": [condition("Finished")]}}, "the workload has finished"),
    ],
)
async def test_a_workload_that_may_not_be_admitted(world: World, edit: dict[str, dict[str, object]], why: str) -> None:
    decision = world.admit()

    def change(document: dict[str, dict[str, object]]) -> None:
        for part, fields in edit.items():
            document[part] = {**document[part], **fields}

    world.edit("workload", "w", change)
    await world.decide(decision)
    assert statuses(world) == [("rejected", why)]


async def test_of_two_decisions_about_one_state_the_first_in_the_log_wins(world: World) -> None:
    first = world.admit()
    await world.decide(first, msgspec.structs.replace(first, cluster_queue="other"))
    assert [s for s, _ in statuses(world)] == ["applied", "rejected"]
    assert world.workload()["status"]["admission"]["clusterQueue"] == "cq"


async def test_a_write_whose_answer_was_lost_is_applied_once(world: World) -> None:
    world.api.fail("patch", LOST, landed=True)
    await world.decide(world.admit())
    assert statuses(world) == [("applied", "")]
    assert len([c for c in world.api.calls if c.plural == "workloads"]) == 1


async def test_an_api_server_that_is_away_rejects_nothing(world: World) -> None:
    for _ in range(3):
        world.api.fail("patch", LOST)
        world.api.fail("get", LOST)
    await world.decide(world.admit())
    assert statuses(world) == [("applied", "")]


async def test_a_user_who_is_faster_makes_it_a_rejection_with_the_newer_version(world: World) -> None:
    decision = world.admit()
    document = workload(queueName="elsewhere", meta={"generation": 2})
    world.api.put("workloads", document)
    await world.decide(decision)
    (outcome,) = world.outcomes
    assert (outcome.status, outcome.version) == ("rejected", world.api.version)


async def test_what_the_api_server_refuses_for_good_is_rejected(world: World) -> None:
    world.api.fail("patch", Invalid(422, "Invalid", "usage is no multiple of count"))
    await world.decide(world.admit())
    assert statuses(world) == [("rejected", "the API server refuses it: usage is no multiple of count")]


async def test_a_replay_touches_nothing_that_has_an_outcome(world: World) -> None:
    await world.decide(world.admit())
    before = len(world.api.calls)
    again = asyncio.create_task(world.gateway.follow(shard="0", epoch=1))
    await world.settled()
    assert len(world.api.calls) == before
    assert statuses(world) == [("applied", "")]
    again.cancel()


async def test_a_gateway_that_died_before_the_outcome_finds_its_write_applied(world: World) -> None:
    await world.decide(world.admit())
    version = world.outcomes[0].version
    world.broker.clear("OUTCOMES")
    again = asyncio.create_task(world.gateway.follow(shard="0", epoch=1))
    await world.until(lambda: bool(world.outcomes))
    assert [(o.status, o.version) for o in world.outcomes] == [("applied", version)]
    again.cancel()


async def test_a_preemption_evicts_and_tells_both_sides(world: World) -> None:
    await world.decide(world.admit())
    await world.decide(world.preempt())
    assert world.condition("Evicted") == ("True", "Preempted")
    assert world.condition("Preempted") == ("True", "InClusterQueue")
    assert world.condition("QuotaReserved") == ("True", "QuotaReserved")
    assert world.workload()["status"]["schedulingStats"]["evictions"] == [
        {"reason": "Preempted", "underlyingCause": "", "count": 1}
    ]
    assert world.reasons("w")[2:] == ["Preempted", "EvictedDueToPreempted"]
    ((reason, note),) = world.events("p")
    assert reason == "PreemptedWorkload"
    assert note.startswith("Preempted workload team/w (UID: uid-w) in ClusterQueue cq; preemptor effective priority: 5")


async def test_a_victim_that_is_evicted_already_or_holds_nothing(world: World) -> None:
    await world.decide(world.preempt())
    assert statuses(world) == [("rejected", "the workload holds no quota")]
    await world.decide(world.admit())
    await world.decide(world.preempt())
    await world.decide(world.preempt(incarnation="0" * 12))
    assert [s for s, _ in statuses(world)] == ["rejected", "applied", "applied", "applied"]
    assert world.workload()["status"]["schedulingStats"]["evictions"][0]["count"] == 1


async def test_a_victim_may_be_evicted_as_its_own_admission_has_left_it(world: World) -> None:
    admit = world.admit()
    await world.decide(admit, world.preempt(incarnation=""))
    assert [s for s, _ in statuses(world)] == ["applied", "applied"]
    assert world.condition("Evicted") == ("True", "Preempted")


async def test_a_victim_that_was_released_and_admitted_again_is_not_evicted(world: World) -> None:
    await world.decide(world.admit())
    preempt = world.preempt()

    def admitted_again(document: dict[str, Any]) -> None:
        count = {"reason": "Preempted", "underlyingCause": "", "count": 1}
        document["status"]["schedulingStats"] = {"evictions": [count]}

    world.edit("workload", "w", admitted_again)
    await world.decide(preempt)
    assert statuses(world)[-1] == ("rejected", "the workload has changed since it was decided about")
    assert world.condition("Evicted") is None


@pytest.mark.parametrize(
    "change",
    [
        {"spec": {"active": False}},
        {"status": {"conditions": [condition("Finished")]}},
        {"metadata": {"deletionTimestamp": NOW_TEXT}},
        {"metadata": {"uid": "another"}},
    ],
)
async def test_nobody_is_evicted_for_a_preemptor_that_is_gone(
    world: World, change: dict[str, dict[str, object]]
) -> None:
    await world.decide(world.admit())
    preempt = world.preempt()

    def edit(document: dict[str, Any]) -> None:
        for part, fields in change.items():
            document[part] |= fields

    world.edit("workload", "p", edit)
    await world.decide(preempt)
    assert statuses(world)[-1] == ("rejected", "the preemptor is gone, or does not want quota any more")
    assert world.condition("Evicted") is None
    (last,) = [o for o in world.outcomes if o.status == "rejected"]
    assert (last.gone, last.version) == (False, int(world.workload()["metadata"]["resourceVersion"]))


async def test_nobody_is_evicted_for_a_preemptor_that_has_got_its_quota_meanwhile(world: World) -> None:
    await world.decide(world.admit())
    preempt = world.preempt()
    world.edit("workload", "p", lambda found: found["status"].update(conditions=[condition("QuotaReserved")]))
    await world.decide(preempt)
    assert statuses(world)[-1] == ("rejected", "the preemptor has got its quota without it")
    assert world.condition("Evicted") is None


async def test_a_preemptor_that_was_deleted(world: World) -> None:
    await world.decide(world.admit())
    preempt = world.preempt()
    del world.api.objects["workloads", "team", "p"]
    world.deliver("workload", "p")
    await world.decide(preempt)
    assert statuses(world)[-1][0] == "rejected"
    assert world.condition("Evicted") is None


async def test_a_migration_is_an_eviction_without_preemption(world: World) -> None:
    await world.decide(world.admit())
    await world.decide(world.preempt(eviction="FlavorMigration", reason="FlavorMigration"))
    assert world.condition("Evicted") == ("True", "FlavorMigration")
    assert world.condition("Preempted") is None
    assert world.reasons("w")[2:] == ["EvictedDueToFlavorMigration"]
    assert world.events("p") == []


async def test_an_older_slice_is_finished_once_the_newer_has_its_quota(world: World) -> None:
    world.load("workload", workload("old"))
    await world.decide(world.admit(replaces="team/old", replaced_uid="uid-old"))
    assert world.condition("Finished", "old") == ("True", "WorkloadSliceReplaced")
    assert world.reasons("old") == ["WorkloadSliceReplaced"]
    await world.decide(world.admit(replaces="team/old", replaced_uid="another"))
    assert [s for s, _ in statuses(world)] == ["applied", "applied"]


async def test_a_second_pass_is_answered(world: World) -> None:
    found = world.projection()
    await world.decide(SecondPass(key=found.key, uid=found.uid, incarnation=found.incarnation, cluster_queue="cq"))
    assert statuses(world) == [("rejected", "second passes are not applied by this version")]


async def test_poison_is_put_aside_and_rejected_and_others_go_on(world: World) -> None:
    world.load("workload", workload("x"))
    world.api.poison.add("w")
    await world.decide(world.admit(), world.admit("x"))
    answers = {o.key: (o.status, o.why) for o in world.outcomes}
    assert answers == {"team/w": ("rejected", "put aside after 5 attempts: poison"), "team/x": ("applied", "")}
    (dead,) = world.broker.dead
    assert dead.stream == "DECISIONS_0_1"
    assert "poison" in dead.error


async def test_the_floor_waits_for_outcome_and_projection(world: World) -> None:
    await world.decide(world.admit())
    log = world.gateway._log
    assert log.floor == 3
    published = world.store._subscribers.pop()
    world.load("workload", workload("late"))
    await world.decide(world.admit("late"))
    assert log.floor == 3
    stored = world.store.get("workload", "team", "late")
    assert stored is not None
    assert workload_of(stored).status.admission is not None
    log.published("team/late", stored.version)
    assert log.floor == 4
    world.store._subscribers.append(published)
