"""Users apply specs server-side, Sluice writes statuses: neither takes anything from the other, however often both write."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec
import pytest

from cli.observe import Observer
from devcluster.stack import Stack
from shared.api import names
from shared.kube.client import APPLY_PATCH, KubeClient
from shared.kube.errors import Conflict
from shared.kube.resources import CLUSTER_QUEUES, LOCAL_QUEUES, RESOURCE_FLAVORS, WORKLOADS, Resource
from tests.eventually import eventually
from tests.integration.stack.manifests import API, Manifest, cluster_queue, create_job, flavor, job, local_queue

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(180)]

NAME = "shared-fields"
TEAM, OPERATOR = "team", "operator"
WAIT_S = 30.0


async def apply(client: KubeClient, resource: Resource, manifest: Manifest, owner: str) -> Manifest:
    """Without force: a conflict is an error."""
    metadata = manifest["metadata"]
    body = msgspec.json.encode(manifest)
    answer = await client.patch(
        resource, metadata.get("namespace", ""), metadata["name"], body, content_type=APPLY_PATCH, field_manager=owner
    )
    applied: Manifest = msgspec.json.decode(answer)
    return applied


async def read(client: KubeClient, resource: Resource, name: str) -> Manifest:
    found: Manifest = msgspec.json.decode(await client.get(resource, "default" if resource.namespaced else "", name))
    return found


def fields_of(document: Manifest, *owners: str) -> set[str]:
    """Top-level fields, and below metadata, of which these own something; without owners, of which anybody else than a user of the test does."""
    found: set[str] = set()
    for entry in document["metadata"]["managedFields"]:
        if entry["manager"] in owners or not (owners or entry["manager"] in (TEAM, OPERATOR)):
            for field, below in entry["fieldsV1"].items():
                found |= {f"{field}.{inner}" for inner in below} if field == "f:metadata" else {field}
    return found


async def test_a_queue_that_its_team_applies_again_and_again(
    stack: Stack, watched: tuple[KubeClient, Observer]
) -> None:
    client, seen = watched
    queue = cluster_queue(NAME, "4")
    manifests = ((RESOURCE_FLAVORS, flavor(NAME)), (CLUSTER_QUEUES, queue), (LOCAL_QUEUES, local_queue(NAME)))
    for resource, manifest in manifests:
        await apply(client, resource, manifest, TEAM)
    await create_job(client, job(NAME, NAME, run_seconds="60"))
    key = f"default/{NAME}"
    assert await seen.until(lambda: key in seen.jobs and not seen.jobs[key].suspended, WAIT_S)

    async def counted() -> bool:
        return bool((await read(client, CLUSTER_QUEUES, NAME)).get("status", {}).get("admittedWorkloads") == 1)

    assert await eventually(counted, WAIT_S)
    for resource, manifest in manifests:
        before = await read(client, resource, NAME)
        # Nothing to say is no write, and a change of spec meets no conflict.
        again = await apply(client, resource, manifest, TEAM)
        assert again["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
        assert again.get("status") == before.get("status")
        assert fields_of(again) <= {"f:status", "f:metadata.f:finalizers", "f:metadata.f:annotations"}
        assert "f:status" not in fields_of(again, TEAM)
    grown = cluster_queue(NAME, "5", stopPolicy="Hold")
    changed = await apply(client, CLUSTER_QUEUES, grown, TEAM)
    assert changed["status"]["admittedWorkloads"] == 1
    assert names.RESOURCE_IN_USE in changed["metadata"]["finalizers"]

    async def stopped() -> bool:
        conditions = (await read(client, CLUSTER_QUEUES, NAME))["status"]["conditions"]
        return [c["reason"] for c in conditions if c["type"] == "Active"] == ["Stopped"]

    assert await eventually(stopped, WAIT_S)
    # What the team takes out of its manifest goes, and only that.
    left = await apply(client, CLUSTER_QUEUES, cluster_queue(NAME, "5"), TEAM)
    assert left["spec"]["stopPolicy"] == "None"
    assert left["status"]["admittedWorkloads"] == 1
    await stack.cluster.kubectl("delete", "job", NAME)


async def test_a_workload_whose_spec_an_operator_applies(stack: Stack, watched: tuple[KubeClient, Observer]) -> None:
    client, _ = watched
    name = f"{NAME}-workload"
    for resource, manifest in ((RESOURCE_FLAVORS, flavor(name)), (CLUSTER_QUEUES, cluster_queue(name, "1"))):
        await apply(client, resource, manifest, TEAM)
    await apply(client, LOCAL_QUEUES, local_queue(name), TEAM)
    uid = await create_job(client, job(name, name, run_seconds="60"))

    async def workload() -> Manifest | None:
        listed = msgspec.json.decode(await client.list_page(WORKLOADS, "default"))
        owned: list[Manifest] = [
            w for w in listed["items"] if w["metadata"].get("labels", {}).get(names.JOB_UID_LABEL) == uid
        ]
        return owned[0] if owned else None

    async def standing(**wanted: str) -> Manifest | None:
        """The workload once these conditions have these statuses."""
        found = await workload()
        conditions: list[dict[str, Any]] = [] if found is None else found.get("status", {}).get("conditions", [])
        statuses = {c["type"]: c["status"] for c in conditions}
        return found if wanted.items() <= statuses.items() else None

    found = await eventually(partial(standing, Admitted="True"), WAIT_S)
    assert found is not None
    identity = {"name": found["metadata"]["name"], "namespace": "default"}

    def active(yes: bool) -> Manifest:
        return {"apiVersion": API, "kind": "Workload", "metadata": identity, "spec": {"active": yes}}

    # The field is the gateway's, which made the workload: taking it over is asked for once.
    with pytest.raises(Conflict):
        await apply(client, WORKLOADS, active(False), OPERATOR)
    body = msgspec.json.encode(active(False))
    await client.apply(WORKLOADS, "default", identity["name"], body, field_manager=OPERATOR)
    assert await eventually(partial(standing, Admitted="False", Evicted="True"), WAIT_S) is not None
    await apply(client, WORKLOADS, active(True), OPERATOR)
    again = await eventually(partial(standing, Admitted="True", Evicted="False"), WAIT_S)
    assert again is not None
    # All that was written since then, eviction and admission among it, left him his field; he has none of the status.
    assert fields_of(again, OPERATOR) == {"f:spec"}
    assert again["spec"] == found["spec"]
    unchanged = await apply(client, WORKLOADS, active(True), OPERATOR)
    assert unchanged["spec"] == again["spec"]
    assert unchanged["status"]["admission"] == found["status"]["admission"]
    stolen = {**active(True), "status": {"admission": {"clusterQueue": "other", "podSetAssignments": []}}}
    taking = client.patch(
        WORKLOADS, "default", identity["name"], msgspec.json.encode(stolen),
        subresource="status", content_type=APPLY_PATCH, field_manager=OPERATOR,
    )  # fmt: skip
    with pytest.raises(Conflict, match="admission"):
        await taking
    await stack.cluster.kubectl("delete", "job", name)
