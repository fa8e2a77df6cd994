"""The objects of two-phase admission: made of the workload's own templates, found again after lost answers, handed over."""

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from services.watcher.provisioning_objects import requests_from_limits
from shared.api import names
from shared.events import commands as c
from shared.kube.errors import Invalid, NotFound, Unreachable
from tests.unit.watcher.manifests import metadata, template, workload
from tests.unit.watcher.world import World, running

LOST = Unreachable(0, "Unreachable", "no answer")
COMMAND = c.CreateProvisioningRequest(
    id="",
    kind="provisioningrequest",
    namespace="team",
    name="w-check-1",
    workload="w",
    workload_uid="uid-w",
    check="check",
    class_name="check-capacity",
    parameters={"p": "1"},
    templates=(c.TemplateSource(name="ppt-w-check-1-main", pod_set="main", count=3),),
)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with running(before=lambda w: w.load("workload", workload())) as found:
        await found.decide(found.admit(checks=("check",)))
        yield found


async def test_request_and_templates(world: World) -> None:
    outcome = await world.command(COMMAND, "provisioning_request")
    request = world.api.one("provisioningrequests", "w-check-1")
    assert (outcome.status, outcome.version) == ("applied", int(request["metadata"]["resourceVersion"]))
    assert request["spec"] == {
        "provisioningClassName": "check-capacity",
        "parameters": {"p": "1"},
        "podSets": [{"podTemplateRef": {"name": "ppt-w-check-1-main"}, "count": 3}],
    }
    assert request["metadata"]["labels"] == {"kueue.x-k8s.io/managed": "true"}
    assert request["metadata"]["ownerReferences"][0]["uid"] == "uid-w"
    made = world.api.one("podtemplates", "ppt-w-check-1-main")
    assert made["metadata"]["ownerReferences"] == [
        {
            "apiVersion": "autoscaling.x-k8s.io/v1",
            "kind": "ProvisioningRequest",
            "name": "w-check-1",
            "uid": "uid-w-check-1",
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]
    assert made["template"]["spec"]["nodeSelector"] == {"pool": "a"}
    assert made["template"]["spec"]["tolerations"] == [{"key": "t", "operator": "Exists"}]
    assert made["template"]["spec"]["containers"] == template()["spec"]["containers"]
    assert "ProvisioningRequestCreated" in world.reasons("w")


@pytest.mark.parametrize("step", [0, 1])
async def test_what_an_attempt_without_answer_left_is_taken_up(world: World, step: int) -> None:
    if step:
        world.load(
            "podtemplate",
            {"metadata": metadata("ppt-w-check-1-main", namespace="team", labels={"kueue.x-k8s.io/managed": "true"})},
        )
    world.api.fail("create", LOST, landed=True)
    outcome = await world.command(COMMAND, "provisioning_request")
    assert outcome.status == "applied"
    owners = world.api.one("podtemplates", "ppt-w-check-1-main")["metadata"]["ownerReferences"]
    assert [owner["kind"] for owner in owners] == ["ProvisioningRequest"]


async def test_a_second_command_changes_nothing(world: World) -> None:
    await world.command(COMMAND, "provisioning_request")
    before = len(world.api.calls)
    assert (await world.command(COMMAND, "provisioning_request")).status == "applied"
    assert len(world.api.calls) == before


async def test_someone_elses_object_is_not_touched(world: World) -> None:
    world.api.put("provisioningrequests", {"metadata": metadata("w-check-1", namespace="team", labels={"x": "y"})})
    outcome = await world.command(COMMAND, "provisioning_request")
    assert outcome.status == "rejected"
    assert "is not ours" in outcome.why
    assert "FailedCreate" in world.reasons("w")


async def test_a_refusal_is_told_on_the_workload(world: World) -> None:
    world.api.fail("create", Invalid(422, "Invalid", "no such class"))
    outcome = await world.command(COMMAND, "provisioning_request")
    assert outcome.why.startswith('Error creating PodTemplate "ppt-w-check-1-main": ')
    assert ("FailedCreate", outcome.why) in world.events("w")


@pytest.mark.parametrize("served", [False, True])
async def test_a_cluster_without_provisioning_requests_is_told_in_words(world: World, served: bool) -> None:
    if served:
        world.store.replace("provisioningrequest", (), 7)
    absent = NotFound(404, "NotFound", "the server could not find the requested resource")
    ready = {"metadata": metadata("ppt-w-check-1-main", namespace="team", labels={"kueue.x-k8s.io/managed": "true"})}
    world.load("podtemplate", ready)
    world.api.fail("create", absent)
    outcome = await world.command(COMMAND, "provisioning_request")
    assert outcome.status == "rejected"
    assert (names.PROVISIONING_NOT_SERVED in outcome.why) is not served
    assert outcome.why.startswith('Error creating ProvisioningRequest "w-check-1": ')


@pytest.mark.parametrize("change", [{"workload": "absent"}, {"workload_uid": "other"}])
async def test_a_workload_that_is_gone(world: World, change: dict[str, Any]) -> None:
    outcome = await world.command(msgspec.structs.replace(COMMAND, **change), "provisioning_request")
    assert outcome.why == "the workload is gone"


async def test_delete(world: World) -> None:
    await world.command(COMMAND, "provisioning_request")
    delete = c.DeleteProvisioningRequest(id="", kind="provisioningrequest", namespace="team", name="w-check-1")
    assert (await world.command(delete, "provisioning_request")).status == "applied"
    assert ("provisioningrequests", "team", "w-check-1") not in world.api.objects
    assert (await world.command(delete, "provisioning_request")).status == "rejected"


def test_requests_come_from_limits() -> None:
    containers = [
        {"name": "a", "resources": {"limits": {"cpu": "2", "gpu": "1"}, "requests": {"cpu": "1"}}},
        {"name": "b"},
    ]
    found: Any = requests_from_limits({"spec": {"containers": containers}})
    assert found["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "1", "gpu": "1"}
    assert found["spec"]["containers"][1] == {"name": "b"}
