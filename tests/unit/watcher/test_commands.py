"""Every command: what it writes, when it writes nothing, when it is refused; one outcome each, and the command is gone."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import msgspec
import pytest

from services.watcher.commands import urgency_of
from services.watcher.lanes import Urgency
from services.watcher.object_writer import Written
from shared.api import names
from shared.bus.interface import OpenCommand
from shared.events import commands as c
from shared.events import objects
from tests.unit.watcher.manifests import condition, metadata, workload
from tests.unit.watcher.moments import NOW, NOW_TEXT
from tests.unit.watcher.world import World, queued_job, running

WHO: dict[str, Any] = {"id": "", "kind": "workload", "namespace": "team", "name": "w"}
AT = int(NOW.timestamp())


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with running(before=lambda w: w.load("workload", workload())) as found:
        yield found


def writes(world: World) -> int:
    return len([call for call in world.api.calls if call.plural != "events"])


async def twice(world: World, command: c.Command) -> None:
    """Applied both times, written the first time only."""
    assert (await world.command(command)).status == "applied"
    after = writes(world)
    second = await world.command(command)
    assert (second.status, writes(world)) == ("applied", after)
    assert world.broker.commands == {}


async def test_report_pending(world: World) -> None:
    command = c.ReportPending(
        **WHO, reason="WaitingForQuota", message="no cpu", requests={"main": {"cpu": 1500, "memory": 2**30}}
    )
    await twice(world, command)
    assert world.condition("QuotaReserved") == ("False", "WaitingForQuota")
    assert world.workload()["status"]["resourceRequests"] == [
        {"name": "main", "resources": {"cpu": "1500m", "memory": "1Gi"}}
    ]
    assert world.events("w") == [("WaitingForQuota", "no cpu")]
    assert writes(world) == 1


async def test_report_pending_without_event_and_about_a_reservation(world: World) -> None:
    await world.command(c.ReportPending(**WHO, reason="Suspended", message="stopped", event=False))
    assert world.events("w") == []
    await world.decide(world.admit())
    before = writes(world)
    assert (await world.command(c.ReportPending(**WHO, reason="WaitingForQuota", message="x"))).status == "applied"
    assert writes(world) == before
    assert world.condition("QuotaReserved") == ("True", "QuotaReserved")


async def test_evict(world: World) -> None:
    await world.decide(world.admit(checks=("a",)))
    command = c.Evict(
        **WHO,
        reason="Deactivated",
        message="was switched off",
        cause="AdmissionCheck",
        requeue_count=2,
        requeue_at=AT + 60,
    )
    await twice(world, command)
    assert world.condition("Evicted") == ("True", "DeactivatedDueToAdmissionCheck")
    assert world.condition("QuotaReserved") == ("True", "QuotaReserved")
    assert world.workload()["status"]["requeueState"] == {"count": 2, "requeueAt": "2026-01-02T04:01:00Z"}
    assert ("EvictedDueToDeactivatedDueToAdmissionCheck", "was switched off") in world.events("w")


async def test_an_eviction_of_a_pending_workload_is_no_event(world: World) -> None:
    await twice(world, c.Evict(**WHO, reason="Deactivated", message="off"))
    assert world.events("w") == []


@pytest.mark.parametrize(
    ("ready", "command"),
    [
        (3, c.Evict(**WHO, reason="PodsReadyTimeout", message="late", cause="WaitForStart")),
        (3, c.SetDeactivationTarget(**WHO, reason="RequeuingLimitExceeded", message="late")),
        (2, c.Evict(**WHO, reason="PodsReadyTimeout", message="late", cause="WaitForStart")),
        (3, c.Evict(**WHO, reason="Preempted", message="for another")),
    ],
)
async def test_pods_that_are_ready_are_not_blamed_for_being_late(ready: int, command: c.Command) -> None:
    """The condition may not have been written yet, as on jobs that were running before we came."""
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "uid-j", "controller": True}
    running_job = {**queued_job(suspend=False), "status": {"ready": ready}}

    def load(world: World) -> None:
        world.load("job", running_job)
        world.load("workload", workload(meta={"ownerReferences": [owner]}))

    async with running(before=load) as world:
        await world.decide(world.admit())
        # Where it is applied, the job has to stop next, which is not waited for.
        await world.broker.bus("preemptor").command([msgspec.structs.replace(command, id="late")])
        await world.until(lambda: bool(world.command_outcomes))
        (outcome,) = world.command_outcomes
        blamed = ready == 3 and not (isinstance(command, c.Evict) and command.reason == "Preempted")
        assert (outcome.status, outcome.why) == (("rejected", "its pods are ready") if blamed else ("applied", ""))


async def test_unreserve(world: World) -> None:
    await world.decide(world.admit(checks=("a",)))
    await twice(world, c.Unreserve(**WHO, reason="Suspended", message="the queue is stopped"))
    assert world.condition("QuotaReserved") == ("False", "Suspended")
    assert "admission" not in world.workload()["status"]


async def test_an_admitted_workload_is_not_unreserved(world: World) -> None:
    await world.decide(world.admit())
    outcome = await world.command(c.Unreserve(**WHO, reason="Suspended", message="x"))
    assert outcome.status == "rejected"
    assert "evicted first" in outcome.why


async def test_requeueing(world: World) -> None:
    await twice(world, c.SetRequeueAt(**WHO, at=AT + 60))
    assert world.workload()["status"]["requeueState"]["requeueAt"] == "2026-01-02T04:01:00Z"
    await world.command(c.SetRequeueAt(**WHO, at=AT + 30))
    assert world.workload()["status"]["requeueState"]["requeueAt"] == "2026-01-02T04:01:00Z"
    await twice(world, c.MarkRequeued(**WHO, reason="BackoffFinished", message="", clear_requeue_at=True))
    assert "requeueAt" not in world.workload()["status"].get("requeueState", {})
    assert world.condition("Requeued") == ("True", "BackoffFinished")
    await twice(world, c.SetRequeueAt(**WHO, clear_state=True))
    assert "requeueState" not in world.workload()["status"]


async def test_checks_and_admission(world: World) -> None:
    await world.decide(world.admit(checks=("a",)))
    await twice(world, c.SyncChecks(**WHO, checks=("b", "a")))
    assert [check["name"] for check in world.workload()["status"]["admissionChecks"]] == ["a", "b"]
    update = c.PodSetUpdate(name="main", labels={"l": "1"}, tolerations=(objects.Toleration(key="k"),))
    await twice(world, c.SetCheckState(**WHO, check="a", state="Ready", message="ok", pod_set_updates=(update,)))
    first = world.workload()["status"]["admissionChecks"][0]
    assert first == {
        "name": "a",
        "state": "Ready",
        "lastTransitionTime": NOW_TEXT,
        "message": "ok",
        "podSetUpdates": [{"name": "main", "labels": {"l": "1"}, "tolerations": [{"key": "k", "operator": "Equal"}]}],
    }
    await world.command(c.SetCheckState(**WHO, check="b", state="Ready"))
    world.clock.pass_(5)
    await twice(world, c.SyncAdmitted(**WHO))
    assert world.condition("Admitted") == ("True", "Admitted")
    assert world.events("w")[-1] == ("Admitted", "Admitted by ClusterQueue cq, wait time since reservation was 5s")
    outcome = await world.command(c.SetCheckState(**WHO, check="c", state="Ready"))
    assert outcome.why == "the workload has no admission check c"


async def test_deactivation(world: World) -> None:
    await twice(
        world,
        c.SetDeactivationTarget(**WHO, reason="AdmissionCheck", message="rejected", event="AdmissionCheckRejected"),
    )
    assert world.condition("DeactivationTarget") == ("True", "AdmissionCheck")
    assert world.events("w") == [("AdmissionCheckRejected", "rejected")]
    await twice(world, c.SetActive(**WHO, active=False))
    assert world.workload()["spec"]["active"] is False


async def test_priority_and_end(world: World) -> None:
    await twice(world, c.SetPriority(**WHO, priority=9))
    assert world.workload()["spec"]["priority"] == 9
    assert (await world.command(c.FinishWorkload(**WHO, reason="OwnerNotFound", message="gone"))).status == "applied"
    assert world.condition("Finished") == ("True", "OwnerNotFound")
    outcome = await world.command(c.SyncAdmitted(**WHO))
    assert outcome.why == "the workload has finished"


@pytest.mark.parametrize(
    "command",
    [
        c.MarkRequeued(**WHO, reason="Reactivated", message="", incarnation="0" * 12),
        c.SetActive(**WHO, active=False, incarnation="0" * 12),
        c.Evict(**WHO, reason="x", message="", uid="another"),
        c.SetPriority(**{**WHO, "name": "absent"}, priority=1),
        c.SyncAdmitted(**{**WHO, "kind": "clusterqueue"}),
        c.SetActive(**{**WHO, "kind": "resourceflavor", "namespace": "", "name": "default"}, active=True),
        c.SetFinalizer(**{**WHO, "kind": "namespace"}, present=True),
    ],
)
async def test_what_is_about_something_else_is_rejected(world: World, command: c.Command) -> None:
    assert (await world.command(command)).status == "rejected"
    assert writes(world) == 0
    assert world.broker.commands == {}


def queue_status(kind: str, name: str, namespace: str = "", **changes: Any) -> c.SetQueueStatus:
    command = c.SetQueueStatus(
        id="",
        kind=kind,
        namespace=namespace,
        name=name,
        pending=3,
        reserving=2,
        admitted=1,
        reservation=objects.QueueUsage(rows=(("f", "cpu", 1500, 500), ("f", "memory", 2**31, 0), ("g", "gpu", 0, 0))),
        usage=objects.QueueUsage(rows=(("f", "cpu", 1000, 0),)),
        active=objects.Condition("Active", False, "Stopped", "Can't admit new workloads: stopped.", AT, 4),
    )
    return msgspec.structs.replace(command, **changes)


async def test_cluster_queue_status(world: World) -> None:
    world.load("clusterqueue", {"metadata": metadata("cq", generation=4), "spec": {}})
    await twice(world, queue_status("clusterqueue", "cq"))
    assert world.api.one("clusterqueues", "cq", "")["status"] == {
        "conditions": [
            {
                "type": "Active",
                "status": "False",
                "observedGeneration": 4,
                "lastTransitionTime": NOW_TEXT,
                "reason": "Stopped",
                "message": "Can't admit new workloads: stopped.",
            }
        ],
        "flavorsReservation": [
            {
                "name": "f",
                "resources": [
                    {"name": "cpu", "total": "1500m", "borrowed": "500m"},
                    {"name": "memory", "total": "2Gi", "borrowed": "0"},
                ],
            },
            {"name": "g", "resources": [{"name": "gpu", "total": "0", "borrowed": "0"}]},
        ],
        "flavorsUsage": [{"name": "f", "resources": [{"name": "cpu", "total": "1", "borrowed": "0"}]}],
        "pendingWorkloads": 3,
        "reservingWorkloads": 2,
        "admittedWorkloads": 1,
    }


async def test_local_queue_status_has_no_borrowed_quota(world: World) -> None:
    world.load("localqueue", {"metadata": metadata("lq", namespace="team"), "spec": {"clusterQueue": "cq"}})
    await twice(world, queue_status("localqueue", "lq", "team"))
    status = world.api.one("localqueues", "lq")["status"]
    assert status["flavorsUsage"] == [{"name": "f", "resources": [{"name": "cpu", "total": "1"}]}]
    assert status["pendingWorkloads"] == 3


async def test_shares_of_a_queue_and_a_cohort_come_and_go(world: World) -> None:
    world.load("clusterqueue", {"metadata": metadata("cq"), "spec": {}})
    world.load("cohort", {"metadata": metadata("team"), "spec": {}})
    await twice(world, queue_status("clusterqueue", "cq", weighted_share=200))
    assert world.api.one("clusterqueues", "cq", "")["status"]["fairSharing"] == {"weightedShare": 200}
    await world.command(c.SetCohortStatus(id="a", kind="cohort", name="team", weighted_share=0))
    assert world.api.one("cohorts", "team", "")["status"] == {"fairSharing": {"weightedShare": 0}}
    await world.command(queue_status("clusterqueue", "cq", id="b"))
    assert "fairSharing" not in world.api.one("clusterqueues", "cq", "")["status"]
    await world.command(c.SetCohortStatus(id="c", kind="cohort", name="team"))
    assert world.api.one("cohorts", "team", "")["status"] == {}


async def test_past_usage_of_a_local_queue_stays_until_it_is_written_anew(world: World) -> None:
    world.load("localqueue", {"metadata": metadata("lq", namespace="team"), "spec": {"clusterQueue": "cq"}})
    await world.command(queue_status("localqueue", "lq", "team", consumed={"cpu": "1500m"}, consumed_at=AT, id="a"))
    wanted = {
        "weightedShare": 0,
        "admissionFairSharingStatus": {"consumedResources": {"cpu": "1500m"}, "lastUpdate": NOW_TEXT},
    }
    assert world.api.one("localqueues", "lq")["status"]["fairSharing"] == wanted
    await world.command(queue_status("localqueue", "lq", "team", pending=9, id="b"))
    assert world.api.one("localqueues", "lq")["status"]["fairSharing"] == wanted
    await world.command(queue_status("localqueue", "lq", "team", consumed={}, consumed_at=AT + 60, id="c"))
    usage = world.api.one("localqueues", "lq")["status"]["fairSharing"]["admissionFairSharingStatus"]
    assert usage.get("consumedResources", {}) == {}


async def test_a_gated_preemptor_is_told_so_in_the_same_write(world: World) -> None:
    await twice(world, c.ReportPending(**WHO, reason="WaitingForQuota", message="m", gated=True))
    assert world.condition("BlockedOnPreemptionGates") == ("True", "PreemptionGated")
    assert world.condition("QuotaReserved") == ("False", "WaitingForQuota")


def _taken(world: World, subject: str, sequence: int) -> bool:
    newest = world.gateway._commands._newest.get(subject)
    return newest is not None and newest.sequence == sequence


async def test_only_the_newest_status_of_a_queue_is_written(world: World) -> None:
    world.load("clusterqueue", {"metadata": metadata("cq"), "spec": {}})
    await world.gateway.pause()
    bus = world.broker.bus("queue_manager")
    for number in range(5):
        await bus.command([queue_status("clusterqueue", "cq", id=f"n{number}", pending=number)])
        (subject,) = world.broker.commands
        await world.until(partial(_taken, world, subject, number + 1))
    world.gateway.resume()
    await world.until(lambda: len(world.command_outcomes) == 5)
    assert world.api.one("clusterqueues", "cq", "")["status"]["pendingWorkloads"] == 4
    assert writes(world) == 1
    assert sorted(o.status for o in world.command_outcomes) == ["applied", *["rejected"] * 4]
    await world.until(lambda: world.broker.commands == {})


async def test_commands_of_wiped_streams_are_new_whatever_their_sequence(world: World) -> None:
    for _ in range(3):
        await world.command(c.SetPriority(**WHO, priority=1))
    await world.gateway.pause()
    bus = world.broker.bus("queue_manager")
    await bus.command([c.SetPriority(**{**WHO, "id": "before"}, priority=5)])
    (subject,) = world.broker.commands
    await world.until(partial(_taken, world, subject, 4))
    world.broker.clear("COMMANDS")
    world.gateway._commands._take(
        OpenCommand(c.SetPriority(**{**WHO, "id": "after"}, priority=6), "queue_manager", subject, 1)
    )
    world.gateway.resume()
    await world.until(lambda: {"before", "after"} <= {o.command for o in world.command_outcomes})
    assert world.workload()["spec"]["priority"] == 6
    assert {o.command: o.status for o in world.command_outcomes}["before"] == "rejected"


async def test_a_command_found_again_after_nats_was_started_again_is_carried_out_once_and_closed_where_it_is(
    world: World,
) -> None:
    await world.gateway.pause()
    command = c.SetPriority(**{**WHO, "id": "one"}, priority=5)
    subject = c.subject_of("queue_manager", command)
    world.gateway._commands._take(OpenCommand(command, "queue_manager", subject, 7, stream="an earlier one"))
    await world.broker.bus("queue_manager").command([command])
    await world.until(lambda: subject in world.gateway._commands._found_again)
    world.gateway.resume()
    await world.until(lambda: world.broker.commands == {})
    assert world.workload()["spec"]["priority"] == 5
    assert [(o.command, o.status) for o in world.command_outcomes] == [("one", "applied")]
    assert writes(world) == 1


async def test_a_command_found_again_while_its_outcome_is_on_its_way_is_closed_too(world: World) -> None:
    await world.gateway.pause()
    command = c.SetPriority(**{**WHO, "id": "one"}, priority=5)
    subject = c.subject_of("queue_manager", command)
    runner = world.gateway._commands
    earlier = OpenCommand(command, "queue_manager", subject, 7, stream="an earlier one")
    runner._take(earlier)
    runner._answer(earlier, Written(1, changed=False))
    await world.broker.bus("queue_manager").command([command])
    await world.until(lambda: bool(world.command_outcomes))
    world.gateway.resume()
    await world.until(lambda: world.broker.commands == {})
    assert {o.command for o in world.command_outcomes} == {"one"}


async def test_check_active_and_finalizers(world: World) -> None:
    world.load("admissioncheck", {"metadata": metadata("ac"), "spec": {"controllerName": "x"}})
    active = objects.Condition("Active", True, "Active", "The admission check is active")
    await twice(world, c.SetCheckActive(id="", kind="admissioncheck", name="ac", active=active))
    assert world.api.one("admissionchecks", "ac", "")["status"]["conditions"][0]["reason"] == "Active"
    await twice(world, c.SetFinalizer(id="", kind="admissioncheck", name="ac", present=True))
    meta = world.api.one("admissionchecks", "ac", "")["metadata"]
    assert meta["finalizers"] == ["kueue.x-k8s.io/resource-in-use"]
    await twice(world, c.SetFinalizer(id="", kind="admissioncheck", name="ac", present=False))
    assert world.api.one("admissionchecks", "ac", "")["metadata"]["finalizers"] == []


async def test_a_check_of_provisioning_is_not_active_in_a_cluster_that_has_none(world: World) -> None:
    controller = "kueue.x-k8s.io/provisioning-request"
    world.load("admissioncheck", {"metadata": metadata("ac"), "spec": {"controllerName": controller}})
    for truth, outcome in ((True, "rejected"), (False, "applied")):
        active = objects.Condition("Active", truth, "Some", "text")
        command = c.SetCheckActive(id="", kind="admissioncheck", name="ac", active=active)
        assert (await world.command(command)).status == outcome
    assert world.command_outcomes[-2].why == names.PROVISIONING_NOT_SERVED
    world.store.replace("provisioningrequest", (), 7)
    active = objects.Condition("Active", True, "Active", "text")
    await twice(world, c.SetCheckActive(id="", kind="admissioncheck", name="ac", active=active))
    assert world.api.one("admissionchecks", "ac", "")["status"]["conditions"][0]["status"] == "True"


async def test_an_object_that_goes_is_not_held(world: World) -> None:
    world.load("resourceflavor", {"metadata": metadata("going", deletionTimestamp=NOW_TEXT), "spec": {}})
    outcome = await world.command(c.SetFinalizer(id="", kind="resourceflavor", name="going", present=True))
    assert outcome.why == "the object is being deleted"


async def test_poison_is_put_aside_and_rejected(world: World) -> None:
    world.api.poison.add("w")
    outcome = await world.command(c.SetPriority(**WHO, priority=9))
    assert outcome.why == "put aside after 5 attempts: poison"
    assert [dead.stream for dead in world.broker.dead] == ["COMMANDS"]
    assert world.broker.commands == {}


@pytest.mark.parametrize(
    ("command", "urgency"),
    [
        (c.Evict(**WHO, reason="x", message=""), Urgency.STOP),
        (c.SetActive(**WHO, active=False), Urgency.STOP),
        (c.SetActive(**WHO, active=True), Urgency.START),
        (c.SyncAdmitted(**WHO), Urgency.START),
        (c.ReportPending(**WHO, reason="x", message=""), Urgency.STATUS),
        (c.SetPriority(**WHO, priority=1), Urgency.STATUS),
    ],
)
def test_urgency(command: c.Command, urgency: Urgency) -> None:
    assert urgency_of(command) is urgency


async def test_a_workload_that_is_evicted_is_not_evicted_again_but_its_back_off_is_cleared(world: World) -> None:
    world.edit(
        "workload",
        "w",
        lambda w: w.update(status={"conditions": [condition("Evicted")], "requeueState": {"count": 1}}),
    )
    await twice(world, c.Evict(**WHO, reason="Deactivated", message="x", clear_requeue_state=True))
    assert world.condition("Evicted") == ("True", "Because")
    assert "requeueState" not in world.workload()["status"]


async def test_a_deactivation_that_is_done_is_not_asked_for_any_more(world: World) -> None:
    conditions = [condition("Evicted"), condition("DeactivationTarget")]
    world.edit("workload", "w", lambda w: w.update(status={"conditions": conditions}))
    await twice(world, c.Evict(**WHO, reason="Deactivated", message="x", clear_deactivation_target=True))
    assert world.condition("Evicted") == ("True", "Because")
    assert world.condition("DeactivationTarget") is None


class NoBudget:
    """None is left until `more`."""

    def __init__(self) -> None:
        self.more = asyncio.Event()

    @contextlib.asynccontextmanager
    async def spend(self) -> AsyncIterator[None]:
        await self.more.wait()
        yield


async def test_a_queue_that_opens_or_closes_does_not_wait_for_the_budget_and_numbers_do(world: World) -> None:
    budget = world.gateway._commands._queues.budget = NoBudget()
    world.load("clusterqueue", {"metadata": metadata("cq"), "spec": {}})
    await world.command(queue_status("clusterqueue", "cq", pending=1))
    before = writes(world)
    numbers = asyncio.create_task(world.command(queue_status("clusterqueue", "cq", pending=2)))
    await world.until(lambda: bool(world.gateway._commands._queues.waiting))
    assert not numbers.done()
    assert writes(world) == before
    budget.more.set()
    assert (await numbers).status == "applied"
    assert writes(world) == before + 1


async def test_numbers_that_waited_for_the_budget_while_the_queue_closed_are_replaced(world: World) -> None:
    budget = world.gateway._commands._queues.budget = NoBudget()
    world.load("clusterqueue", {"metadata": metadata("cq"), "spec": {}})
    await world.command(queue_status("clusterqueue", "cq", pending=1))
    numbers = asyncio.create_task(world.command(queue_status("clusterqueue", "cq", pending=2)))
    await world.until(lambda: bool(world.gateway._commands._queues.waiting))
    closed = objects.Condition("Active", False, "NotFound", "Can't admit new workloads: gone.", AT, 4)
    assert (await world.command(queue_status("clusterqueue", "cq", pending=3, active=closed))).status == "applied"
    assert (await numbers).status == "rejected"
    budget.more.set()
    later = queue_status("clusterqueue", "cq", pending=4, active=closed)
    assert (await world.command(later)).status == "applied"
