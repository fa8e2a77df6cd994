"""The loop that writes: guards, conflicts, lost answers, refusals."""

from typing import Any

import pytest

from services.watcher.object_writer import ObjectWriter, Rejected, Written
from services.watcher.patches import Refusal
from services.watcher.store import Store, Stored
from shared.api import names
from shared.api.workload import Workload
from shared.api.workload_status import WorkloadStatus
from shared.decide import transitions
from shared.jobs.manifest import JsonObject
from shared.kube.errors import Conflict, Invalid, TooManyRequests, Unauthorized, Unavailable, Unreachable, WritesHeld
from tests.unit.watcher.fake_api import FakeApi
from tests.unit.watcher.manifests import workload
from tests.unit.watcher.moments import NOW

LOST = Unreachable(0, "Unreachable", "no answer in time")


@pytest.fixture
def api() -> FakeApi:
    return FakeApi()


@pytest.fixture
def store(api: FakeApi) -> Store:
    made = Store()
    api.load(made, "workload", "workloads", workload())
    return made


def finish(found: Workload) -> WorkloadStatus | Refusal:
    return transitions.finish(found.status, "Succeeded", "done", NOW, found.metadata.generation)


def conditions(api: FakeApi) -> list[str]:
    return [c["type"] for c in api.one("workloads", "w")["status"].get("conditions", [])]


async def test_a_write_is_bound_to_the_state_it_was_planned_on(api: FakeApi, store: Store) -> None:
    version = api.version
    result = await ObjectWriter(store, api.client).workload_status("team", "w", "uid-w", finish)
    assert result == Written(api.version, changed=True)
    (call,) = api.calls
    assert call.subresource == "status"
    assert call.body["metadata"] == {}
    assert set(call.body["status"]) == {"conditions"}
    found = store.get("workload", "team", "w")
    assert found is not None
    assert found.version == api.version > version


async def test_what_is_there_already_is_written_and_costs_nothing(api: FakeApi, store: Store) -> None:
    writer = ObjectWriter(store, api.client)
    await writer.workload_status("team", "w", "uid-w", finish)
    before = api.version
    assert await writer.workload_status("team", "w", "uid-w", finish) == Written(before, changed=False)
    assert len(api.calls) == 1


async def test_after_a_conflict_it_plans_again_on_what_is_there(api: FakeApi, store: Store) -> None:
    api.put("workloads", workload(queueName="other"))
    seen: list[str] = []

    def plan(found: Workload) -> WorkloadStatus | Refusal:
        seen.append(found.spec.queue_name)
        return finish(found)

    result = await ObjectWriter(store, api.client).workload_status("team", "w", "uid-w", plan)
    assert isinstance(result, Written)
    assert seen == ["lq", "other"]
    assert conditions(api) == ["Finished"]


async def test_a_conflict_may_end_in_a_refusal_with_the_version_that_proves_it(api: FakeApi, store: Store) -> None:
    api.put("workloads", workload(queueName="other"))

    def plan(found: Workload) -> WorkloadStatus | Refusal:
        return Refusal("moved") if found.spec.queue_name == "other" else finish(found)

    result = await ObjectWriter(store, api.client).workload_status("team", "w", "uid-w", plan)
    assert result == Rejected("moved", api.version)


async def test_a_write_whose_answer_was_lost_is_found_again(api: FakeApi, store: Store) -> None:
    api.fail("patch", LOST, landed=True)
    result = await ObjectWriter(store, api.client).workload_status("team", "w", "uid-w", finish)
    assert result == Written(api.version, changed=False)
    assert len(api.calls) == 1


async def test_a_write_that_did_not_land_is_repeated(api: FakeApi, store: Store) -> None:
    api.fail("patch", LOST)
    result = await ObjectWriter(store, api.client).workload_status("team", "w", "uid-w", finish)
    assert result == Written(api.version, changed=True)
    assert conditions(api) == ["Finished"]


async def test_without_any_answer_nobody_is_told_anything(api: FakeApi, store: Store) -> None:
    api.fail("patch", LOST)
    api.fail("get", LOST)
    with pytest.raises(Unavailable):
        await ObjectWriter(store, api.client).workload_status("team", "w", "uid-w", finish)


async def test_bad_credentials_of_ours_reject_nothing(api: FakeApi, store: Store) -> None:
    api.fail("patch", Unauthorized(401, "Unauthorized", "expired"))
    with pytest.raises(Unavailable):
        await ObjectWriter(store, api.client).workload_status("team", "w", "uid-w", finish)


async def test_a_permanent_refusal_is_a_rejection(api: FakeApi, store: Store) -> None:
    api.fail("patch", Invalid(422, "Invalid", "no such flavor"))
    result = await ObjectWriter(store, api.client).workload_status("team", "w", "uid-w", finish)
    assert result == Rejected("the API server refuses it: no such flavor", api.version)


@pytest.mark.parametrize(("name", "uid"), [("absent", "uid-absent"), ("w", "another")])
async def test_an_object_that_is_gone(api: FakeApi, store: Store, name: str, uid: str) -> None:
    result = await ObjectWriter(store, api.client).workload_status("team", name, uid, finish)
    assert result == Rejected("the object is gone", gone=True)
    assert api.calls == []


async def test_an_object_that_goes_meanwhile_or_is_made_anew(api: FakeApi, store: Store) -> None:
    writer = ObjectWriter(store, api.client)
    del api.objects[("workloads", "team", "w")]
    assert await writer.workload_status("team", "w", "uid-w", finish) == Rejected("the object is gone", gone=True)
    api.put("workloads", workload(uid="new"))
    assert await writer.workload_status("team", "w", "uid-w", finish) == Rejected("the object is gone", gone=True)


async def test_an_object_that_always_changes_is_left_for_later(api: FakeApi, store: Store) -> None:
    for _ in range(20):
        api.fail("patch", Conflict(409, "Conflict", "again"))
    with pytest.raises(Unavailable, match="faster"):
        await ObjectWriter(store, api.client).workload_status("team", "w", "uid-w", finish)


async def test_spec_and_metadata_of_any_kind(api: FakeApi, store: Store) -> None:
    def plan(stored: Stored) -> JsonObject | Refusal:
        return {"spec": {"active": False}, "metadata": {"finalizers": ["f"]}}

    result = await ObjectWriter(store, api.client).change("workload", "team", "w", "", plan)
    assert isinstance(result, Written)
    found: Any = api.one("workloads", "w")
    assert found["spec"]["active"] is False
    assert found["metadata"]["finalizers"] == ["f"]
    assert names.FINISHED not in conditions(api)


async def test_a_busy_server_is_waited_for_and_then_it_plans_again(api: FakeApi, store: Store) -> None:
    """What spoke for the write may have passed meanwhile: a preemptor that is gone evicts nobody."""
    wanted = [True, False]

    def plan(found: Workload) -> WorkloadStatus | Refusal:
        return finish(found) if wanted.pop(0) else Refusal("nobody wants it any more")

    api.fail("patch", TooManyRequests(429, "TooManyRequests", "busy", 0.001))
    result = await ObjectWriter(store, api.client).workload_status("team", "w", "uid-w", plan)
    assert isinstance(result, Rejected)
    assert conditions(api) == []


async def test_who_is_not_active_judges_nothing_by_its_copy(api: FakeApi, store: Store) -> None:
    """A gateway that was stopped for long misses objects that others have decided about since: they are not gone."""
    api.is_active = False
    writer = ObjectWriter(store, api.client)
    for name in ("w", "made-meanwhile"):
        with pytest.raises(WritesHeld):
            await writer.workload_status("team", name, "uid-w", finish)
    assert api.calls == []


async def test_with_old_words_a_pending_workload_says_pending_once(api: FakeApi, store: Store) -> None:
    def evaluated(found: Workload) -> WorkloadStatus | Refusal:
        return transitions.unreserve(found.status, "PendingEvaluation", "released", NOW, found.metadata.generation)

    writer = ObjectWriter(store, api.client, legacy_reasons=True)
    await writer.workload_status("team", "w", "uid-w", evaluated)
    told = [(c["type"], c["status"], c["reason"]) for c in api.one("workloads", "w")["status"]["conditions"]]
    assert told == [("QuotaReserved", "False", "Pending")]
    before = api.version
    assert await writer.workload_status("team", "w", "uid-w", evaluated) == Written(before, changed=False)
