"""The contract of deletion: preconditions, finalizers, what is owned, and namespaces."""

from __future__ import annotations

import pytest

from shared.kube import errors
from shared.kube.resources import JOBS, LOCAL_QUEUES, NAMESPACES, WORKLOADS, Resource
from tests.contract.kube.server import (
    CONFIG_MAPS,
    WITHIN_S,
    Caller,
    Document,
    config_map,
    job,
    local_queue,
    version,
    workload,
)
from tests.contract.kube.writing import api
from tests.eventually import eventually

__all__ = ["api"]


def owned_by(resource: Resource, owner: Document, *, blocks: bool = False) -> list[Document]:
    metadata = owner["metadata"]
    reference = {"apiVersion": resource.api_version, "kind": resource.kind, "name": metadata["name"]}
    return [{**reference, "uid": metadata["uid"], "controller": True, "blockOwnerDeletion": blocks}]


class Deleting:
    async def test_it_is_gone(self, api: Caller) -> None:
        made = await api.create(LOCAL_QUEUES, local_queue("a"))
        told = await api.delete(LOCAL_QUEUES, "a")
        assert (told["kind"], told["status"]) == ("Status", "Success")
        assert told["details"]["uid"] == made["metadata"]["uid"]
        for call in (api.get(LOCAL_QUEUES, "a"), api.delete(LOCAL_QUEUES, "a")):
            with pytest.raises(errors.NotFound):
                await call

    async def test_only_the_very_object(self, api: Caller) -> None:
        first = await api.create(LOCAL_QUEUES, local_queue("a"))
        uid = first["metadata"]["uid"]
        with pytest.raises(errors.Conflict):
            await api.delete(LOCAL_QUEUES, "a", uid="another")
        await api.patch(LOCAL_QUEUES, "a", {"metadata": {"labels": {"x": "y"}}})
        with pytest.raises(errors.Conflict):
            await api.delete(LOCAL_QUEUES, "a", uid=uid, version=version(first))
        await api.delete(LOCAL_QUEUES, "a", uid=uid)
        assert not await api.exists(LOCAL_QUEUES, "a")

    async def test_a_finalizer_holds_it(self, api: Caller) -> None:
        made = await api.create(LOCAL_QUEUES, local_queue("a", finalizers=["a.b/c", "a.b/d"]))
        marked = await api.delete(LOCAL_QUEUES, "a")
        metadata = marked["metadata"]
        assert metadata["deletionTimestamp"].endswith("Z")
        assert metadata["deletionGracePeriodSeconds"] == 0
        assert metadata["generation"] == 2
        assert version(marked) > version(made)
        again = await api.delete(LOCAL_QUEUES, "a")
        assert version(again) == version(marked)
        patched = await api.patch(LOCAL_QUEUES, "a", {"metadata": {"finalizers": ["a.b/d"]}})
        assert patched["metadata"]["deletionTimestamp"] == metadata["deletionTimestamp"]
        with pytest.raises(errors.AlreadyExists):
            await api.create(LOCAL_QUEUES, local_queue("a"))
        last = await api.patch(LOCAL_QUEUES, "a", {"metadata": {"finalizers": None}})
        assert "finalizers" not in last["metadata"]
        assert not await api.exists(LOCAL_QUEUES, "a")

    async def test_what_is_marked_can_still_be_written(self, api: Caller) -> None:
        await api.create(LOCAL_QUEUES, local_queue("a", finalizers=["a.b/c"]))
        await api.delete(LOCAL_QUEUES, "a")
        patched = await api.patch(LOCAL_QUEUES, "a", {"status": {"pendingWorkloads": 1}}, subresource="status")
        assert patched["status"] == {"pendingWorkloads": 1}
        with pytest.raises(errors.Invalid):
            await api.patch(LOCAL_QUEUES, "a", {"metadata": {"finalizers": ["a.b/c", "a.b/new"]}})
        await api.patch(LOCAL_QUEUES, "a", {"metadata": {"finalizers": []}})
        assert not await api.exists(LOCAL_QUEUES, "a")


class Owning:
    async def test_what_is_owned_goes_with_its_owner(self, api: Caller) -> None:
        owner = await api.create(JOBS, job("owner"))
        child = workload("child")
        child["metadata"]["ownerReferences"] = owned_by(JOBS, owner)
        made = await api.create(WORKLOADS, child)
        await api.create(CONFIG_MAPS, config_map("grandchild", ownerReferences=owned_by(WORKLOADS, made)))
        await api.create(CONFIG_MAPS, config_map("stranger"))
        await api.delete(JOBS, "owner", propagation="Background")
        assert await api.gone(JOBS, "owner")
        assert await api.gone(WORKLOADS, "child")
        assert await api.gone(CONFIG_MAPS, "grandchild")
        assert await api.exists(CONFIG_MAPS, "stranger")

    async def test_what_comes_after_its_owner_has_gone(self, api: Caller) -> None:
        owner = await api.create(CONFIG_MAPS, config_map("owner"))
        await api.delete(CONFIG_MAPS, "owner")
        await api.create(CONFIG_MAPS, config_map("late", ownerReferences=owned_by(CONFIG_MAPS, owner)))
        assert await api.gone(CONFIG_MAPS, "late")

    async def test_one_owner_left_is_enough(self, api: Caller) -> None:
        owners = [await api.create(CONFIG_MAPS, config_map(name)) for name in ("first", "second")]
        references = [{**owned_by(CONFIG_MAPS, one)[0], "controller": False} for one in owners]
        await api.create(CONFIG_MAPS, config_map("shared", ownerReferences=references))
        await api.create(CONFIG_MAPS, config_map("sign", ownerReferences=references[:1]))
        await api.delete(CONFIG_MAPS, "first")
        assert await api.gone(CONFIG_MAPS, "sign")
        assert await api.exists(CONFIG_MAPS, "shared")
        await api.delete(CONFIG_MAPS, "second")
        assert await api.gone(CONFIG_MAPS, "shared")

    async def test_a_finalizer_holds_what_is_owned(self, api: Caller) -> None:
        owner = await api.create(CONFIG_MAPS, config_map("owner"))
        held = config_map("held", ownerReferences=owned_by(CONFIG_MAPS, owner), finalizers=["a.b/c"])
        await api.create(CONFIG_MAPS, held)
        await api.delete(CONFIG_MAPS, "owner")

        async def marked() -> bool:
            return "deletionTimestamp" in (await api.get(CONFIG_MAPS, "held"))["metadata"]

        assert await eventually(marked, WITHIN_S)
        await api.patch(CONFIG_MAPS, "held", {"metadata": {"finalizers": None}})
        assert await api.gone(CONFIG_MAPS, "held")

    async def test_orphans_stay(self, api: Caller) -> None:
        owner = await api.create(CONFIG_MAPS, config_map("owner"))
        await api.create(CONFIG_MAPS, config_map("orphan", ownerReferences=owned_by(CONFIG_MAPS, owner)))
        await api.delete(CONFIG_MAPS, "owner", propagation="Orphan")
        assert await api.gone(CONFIG_MAPS, "owner")
        assert "ownerReferences" not in (await api.get(CONFIG_MAPS, "orphan"))["metadata"]

    async def test_in_the_foreground_the_owner_waits(self, api: Caller) -> None:
        owner = await api.create(CONFIG_MAPS, config_map("owner"))
        references = owned_by(CONFIG_MAPS, owner, blocks=True)
        held = config_map("held", ownerReferences=references, finalizers=["a.b/c"])
        await api.create(CONFIG_MAPS, held)
        marked = await api.delete(CONFIG_MAPS, "owner", propagation="Foreground")
        assert marked["metadata"]["finalizers"] == ["foregroundDeletion"]

        async def child_marked() -> bool:
            return "deletionTimestamp" in (await api.get(CONFIG_MAPS, "held"))["metadata"]

        assert await eventually(child_marked, WITHIN_S)
        assert await api.exists(CONFIG_MAPS, "owner")
        await api.patch(CONFIG_MAPS, "held", {"metadata": {"finalizers": None}})
        assert await api.gone(CONFIG_MAPS, "owner")


class Namespaces:
    async def test_a_namespace_takes_its_contents_along(self, api: Caller) -> None:
        name = f"{api.namespace}-short"
        made = await api.create(NAMESPACES, {"metadata": {"name": name}})
        assert made["metadata"]["labels"] == {"kubernetes.io/metadata.name": name}
        assert made["status"] == {"phase": "Active"}
        await api.client.create(CONFIG_MAPS, name, b'{"metadata":{"name":"a","finalizers":["a.b/c"]}}')
        await api.delete(NAMESPACES, name)
        assert (await api.get(NAMESPACES, name))["status"]["phase"] == "Terminating"
        with pytest.raises(errors.Forbidden):
            await api.client.create(CONFIG_MAPS, name, b'{"metadata":{"name":"b"}}')

        async def marked() -> bool:
            return b"deletionTimestamp" in await api.client.get(CONFIG_MAPS, name, "a")

        assert await eventually(marked, WITHIN_S)
        await api.client.patch(CONFIG_MAPS, name, "a", b'{"metadata":{"finalizers":null}}')
        assert await api.gone(NAMESPACES, name)
