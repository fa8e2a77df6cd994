"""The contract of admission by webhook: what a webhook is told, what its answer does, and what happens when it fails or takes its time."""

from __future__ import annotations

import asyncio
import base64

import msgspec
import pytest

from shared.kube import errors
from shared.kube.resources import LOCAL_QUEUES
from tests.contract.kube.server import CONFIG_MAPS, WITHIN_S, Caller, Document, Server, config_map, local_queue
from tests.contract.kube.writing import api

__all__ = ["api"]

CONFIG_MAP_WRITES: Document = {
    "apiGroups": [""],
    "apiVersions": ["v1"],
    "operations": ["CREATE", "UPDATE"],
    "resources": ["configmaps"],
}
QUEUE_STATUS: Document = {
    "apiGroups": ["kueue.x-k8s.io"],
    "apiVersions": ["v1beta2"],
    "operations": ["UPDATE"],
    "resources": ["localqueues/status"],
}


class Recorder:
    """Remembers the requests, and answers each the same way."""

    def __init__(self, response: Document | None = None) -> None:
        self.requests: list[Document] = []
        self.response = response or {"allowed": True}

    async def __call__(self, request: Document) -> Document:
        self.requests.append(request)
        return self.response


def patching(*operations: Document) -> Document:
    return {
        "allowed": True,
        "patchType": "JSONPatch",
        "patch": base64.b64encode(msgspec.json.encode(operations)).decode(),
    }


class Admitting:
    async def test_what_a_webhook_is_told(self, server: Server, api: Caller) -> None:
        told = Recorder()
        async with server.webhook("Validating", told, rules=[CONFIG_MAP_WRITES]):
            made = await api.create(CONFIG_MAPS, config_map("a"))
            await api.patch(CONFIG_MAPS, "a", {"data": {"a": "2"}})
            await api.delete(CONFIG_MAPS, "a")
        created, updated = told.requests
        for request, operation in ((created, "CREATE"), (updated, "UPDATE")):
            assert request["operation"] == operation
            assert request["kind"] == {"group": "", "version": "v1", "kind": "ConfigMap"}
            assert (request["namespace"], request["name"]) == (api.namespace, "a")
            assert request["userInfo"]["username"] == server.user
            assert not request.get("subResource")
        assert created["oldObject"] is None
        assert created["object"]["data"] == {"a": "1"}
        assert updated["oldObject"]["data"] == {"a": "1"}
        assert updated["oldObject"]["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
        assert updated["object"]["data"] == {"a": "2"}
        assert updated["object"]["metadata"]["uid"] == made["metadata"]["uid"]

    async def test_a_subresource_has_rules_of_its_own(self, server: Server, api: Caller) -> None:
        told = Recorder()
        await api.create(LOCAL_QUEUES, local_queue("a"))
        async with server.webhook("Validating", told, rules=[CONFIG_MAP_WRITES, QUEUE_STATUS]):
            await api.patch(LOCAL_QUEUES, "a", {"metadata": {"labels": {"x": "y"}}})
            await api.patch(LOCAL_QUEUES, "a", {"status": {"pendingWorkloads": 1}}, subresource="status")
        (request,) = told.requests
        assert request["subResource"] == "status"
        assert request["object"]["status"] == {"pendingWorkloads": 1}
        assert "status" not in request["oldObject"]

    async def test_its_patch_is_applied_before_others_validate(self, server: Server, api: Caller) -> None:
        add = {"op": "add", "path": "/metadata/finalizers", "value": ["a.b/c"]}
        told = Recorder()
        async with (
            server.webhook("Validating", told, rules=[CONFIG_MAP_WRITES]),
            server.webhook("Mutating", Recorder(patching(add)), rules=[CONFIG_MAP_WRITES]),
        ):
            made = await api.create(CONFIG_MAPS, config_map("a"))
        assert made["metadata"]["finalizers"] == ["a.b/c"]
        assert told.requests[0]["object"]["metadata"]["finalizers"] == ["a.b/c"]
        await api.patch(CONFIG_MAPS, "a", {"metadata": {"finalizers": None}})

    @pytest.mark.parametrize(
        ("status", "kind", "code"),
        [
            ({"code": 403, "reason": "Forbidden", "message": "not so"}, errors.Forbidden, 403),
            ({"code": 422, "reason": "Invalid", "message": "not so"}, errors.Invalid, 422),
            ({"message": "not so"}, errors.Refused, 400),
        ],
    )
    async def test_its_no_is_final(
        self, server: Server, api: Caller, status: Document, kind: type[errors.ApiError], code: int
    ) -> None:
        await api.create(CONFIG_MAPS, config_map("b"))
        no = Recorder({"allowed": False, "status": status})
        async with server.webhook("Validating", no, rules=[CONFIG_MAP_WRITES]):
            with pytest.raises(kind, match="denied the request: not so") as caught:
                await api.create(CONFIG_MAPS, config_map("a"))
            with pytest.raises(kind):
                await api.patch(CONFIG_MAPS, "b", {"data": {"a": "2"}})
        assert caught.value.status == code
        assert not await api.exists(CONFIG_MAPS, "a")
        assert (await api.get(CONFIG_MAPS, "b"))["data"] == {"a": "1"}

    async def test_one_that_fails_stops_the_write(self, server: Server, api: Caller) -> None:
        async def fails(_: Document) -> Document:
            raise RuntimeError("broken")

        async with server.webhook("Validating", fails, rules=[CONFIG_MAP_WRITES]):
            with pytest.raises(errors.ServerTimeout, match="failed calling webhook") as caught:
                await api.create(CONFIG_MAPS, config_map("a"))
        assert caught.value.status == 500
        assert not await api.exists(CONFIG_MAPS, "a")

    async def test_one_that_may_fail_does_not(self, server: Server, api: Caller) -> None:
        async def fails(_: Document) -> Document:
            raise RuntimeError("broken")

        async with server.webhook("Validating", fails, rules=[CONFIG_MAP_WRITES], failurePolicy="Ignore"):
            await api.create(CONFIG_MAPS, config_map("a"))
        assert await api.exists(CONFIG_MAPS, "a")

    async def test_it_can_skip_a_user(self, server: Server, api: Caller) -> None:
        no = Recorder({"allowed": False})
        expression = f'request.userInfo.username != "{server.user}"'
        conditions = [{"name": "not-this-user", "expression": expression}]
        async with server.webhook("Validating", no, rules=[CONFIG_MAP_WRITES], matchConditions=conditions):
            await api.create(CONFIG_MAPS, config_map("a"))
        assert not no.requests

    @pytest.mark.parametrize("guarded", [False, True])
    async def test_the_object_changes_while_it_thinks(self, server: Server, api: Caller, guarded: bool) -> None:
        """A patch without a version is made anew of the newer state; one with a version has lost."""
        made = await api.create(LOCAL_QUEUES, local_queue("a"))
        asked, answer = asyncio.Event(), asyncio.Event()

        async def thinks(_: Document) -> Document:
            asked.set()
            await answer.wait()
            return {"allowed": True}

        patch: Document = {"status": {"pendingWorkloads": 1}}
        if guarded:
            patch["metadata"] = {"resourceVersion": made["metadata"]["resourceVersion"]}
        async with server.webhook("Validating", thinks, rules=[CONFIG_MAP_WRITES, QUEUE_STATUS], timeoutSeconds=10):
            asked.clear()
            write = asyncio.create_task(api.patch(LOCAL_QUEUES, "a", patch, subresource="status"))
            async with asyncio.timeout(WITHIN_S):
                await asked.wait()
            await api.patch(LOCAL_QUEUES, "a", {"metadata": {"labels": {"x": "y"}}})
            answer.set()
            if guarded:
                with pytest.raises(errors.Conflict):
                    await write
            else:
                written = await write
                assert written["status"] == {"pendingWorkloads": 1}
                assert written["metadata"]["labels"] == {"x": "y"}
