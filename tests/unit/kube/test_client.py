"""Calls, their errors, their time-outs, and what is counted."""

import asyncio
import json
from pathlib import Path

import pytest
from aiohttp import web

from shared.kube import errors, resources
from shared.kube.client import connect
from shared.kube.credentials import CredentialsError
from tests.unit.kube.api_server import ApiServer, client_of, kubeconfig, serve, status

JOB = {"metadata": {"namespace": "team", "name": "a"}, "spec": {"suspend": True}}


async def test_create_get_patch_delete_return_the_object_as_bytes() -> None:
    api = ApiServer()
    async with client_of(api) as client:
        made = json.loads(await client.create(resources.JOBS, "team", json.dumps(JOB).encode(), field_manager="me"))
        assert json.loads(await client.get(resources.JOBS, "team", "a")) == made
        patch = {"metadata": {"resourceVersion": made["metadata"]["resourceVersion"]}, "spec": {"suspend": False}}
        patched = json.loads(
            await client.patch(resources.JOBS, "team", "a", json.dumps(patch).encode(), subresource="status")
        )
        assert patched["spec"] == {"suspend": False}
        await client.delete(
            resources.JOBS, "team", "a", uid="uid-a", version=int(patched["metadata"]["resourceVersion"])
        )
        with pytest.raises(errors.NotFound):
            await client.get(resources.JOBS, "team", "a")
    methods = [(method, path) for method, path, _, _ in api.requests]
    assert methods[0] == ("POST", "/apis/batch/v1/namespaces/team/jobs")
    assert methods[2] == ("PATCH", "/apis/batch/v1/namespaces/team/jobs/a/status")
    assert api.requests[0][2] == {"fieldManager": "me"}
    sent = api.requests[2][3]
    assert sent["Content-Type"] == "application/merge-patch+json"
    assert sent["User-Agent"] == "sluice-test"
    assert sent["Authorization"] == "Bearer secret"


async def test_apply_takes_over_the_fields_of_others() -> None:
    api = ApiServer()
    async with client_of(api) as client:
        await api.put(resources.JOBS, JOB)
        applied = json.loads(
            await client.apply(resources.JOBS, "team", "a", json.dumps(JOB).encode(), field_manager="me")
        )
    assert applied["spec"] == {"suspend": True}
    method, path, query, headers = api.requests[-1]
    assert (method, path) == ("PATCH", "/apis/batch/v1/namespaces/team/jobs/a")
    assert query == {"fieldManager": "me", "force": "true"}
    assert headers["Content-Type"] == "application/apply-patch+yaml"


async def test_a_whole_list_page_by_page() -> None:
    api = ApiServer()
    query = {"labelSelector": "a=b"}
    async with client_of(api) as client:
        for name in "abcde":
            await api.put(resources.JOBS, {**JOB, "metadata": {"namespace": "team", "name": name}})
        pages = [json.loads(body) async for body in client.pages(resources.JOBS, "team", query=query, limit=2)]
        assert [[job["metadata"]["name"] for job in page["items"]] for page in pages] == [["a", "b"], ["c", "d"], ["e"]]
    asked = [query for method, _, query, _ in api.requests if method == "GET"]
    assert [query.get("limit") for query in asked] == ["2", "2", "2"]
    assert all(query["labelSelector"] == "a=b" for query in asked)


async def test_acting_as_somebody_else(tmp_path: Path) -> None:
    api = ApiServer()
    async with serve(api) as url:
        file = str(kubeconfig(tmp_path, url))
        for user, group in (("system:serviceaccount:a:b", "g"), ("", "")):
            async with await connect(file, impersonate_user=user, impersonate_groups=(group,)) as client:
                await client.list_page(resources.JOBS)
    first, second = (headers for _, _, _, headers in api.requests)
    assert (first["Impersonate-User"], first["Impersonate-Group"]) == ("system:serviceaccount:a:b", "g")
    assert first["Authorization"] == second["Authorization"]
    assert not {"Impersonate-User", "Impersonate-Group"} & set(second)


async def test_a_stale_version_is_a_conflict_and_changes_nothing() -> None:
    api = ApiServer()
    async with client_of(api) as client:
        first = await api.put(resources.JOBS, JOB)
        await api.put(resources.JOBS, JOB)
        patch = {"metadata": {"resourceVersion": str(first)}, "spec": {"suspend": False}}
        with pytest.raises(errors.Conflict) as caught:
            await client.patch(resources.JOBS, "team", "a", json.dumps(patch).encode())
        with pytest.raises(errors.Conflict):
            await client.delete(resources.JOBS, "team", "a", version=first)
        with pytest.raises(errors.Conflict):
            await client.delete(resources.JOBS, "team", "a", uid="another")
    assert not isinstance(caught.value, errors.AlreadyExists)
    assert api.objects["jobs"][("team", "a")]["spec"] == {"suspend": True}


async def test_what_may_not_be_written_now_is_not_sent() -> None:
    api = ApiServer()
    async with client_of(api) as client:
        await client.create(resources.JOBS, "team", json.dumps(JOB).encode())
        client.may_write = lambda: False
        sent = len(api.requests)
        for writing in (
            client.create(resources.JOBS, "team", json.dumps(JOB).encode()),
            client.patch(resources.JOBS, "team", "a", b"{}"),
            client.put(resources.JOBS, "team", "a", json.dumps(JOB).encode()),
            client.delete(resources.JOBS, "team", "a"),
        ):
            with pytest.raises(errors.WritesHeld):
                await writing
        assert len(api.requests) == sent
        # What decides whether we may goes through, and so does reading.
        await client.get(resources.JOBS, "team", "a")
        lease = {"metadata": {"namespace": "team", "name": "a"}, "spec": {}}
        await client.create(resources.LEASES, "team", json.dumps(lease).encode())
        client.may_write = lambda: True
        await client.delete(resources.JOBS, "team", "a")


async def test_a_taken_name_is_a_conflict_of_its_own() -> None:
    api = ApiServer()
    async with client_of(api) as client:
        await api.put(resources.JOBS, JOB)
        with pytest.raises(errors.AlreadyExists):
            await client.create(resources.JOBS, "team", json.dumps(JOB).encode())


@pytest.mark.parametrize(
    ("code", "reason", "kind"),
    [
        (400, "BadRequest", errors.Refused),
        (403, "Forbidden", errors.Forbidden),
        (410, "Expired", errors.Gone),
        (422, "Invalid", errors.Invalid),
        (500, "InternalError", errors.ServerTimeout),
        (504, "Timeout", errors.ServerTimeout),
    ],
)
async def test_errors_say_what_kind_they_are(code: int, reason: str, kind: type[errors.ApiError]) -> None:
    api = ApiServer()

    async def fault(_: web.Request) -> web.Response:
        return status(code, reason, "because")

    async with client_of(api) as client:
        api.faults.append(fault)
        with pytest.raises(kind) as caught:
            await client.get(resources.JOBS, "team", "a")
    assert (caught.value.status, caught.value.reason, caught.value.message) == (code, reason, "because")


async def test_too_many_requests_is_waited_out_when_it_fits_into_the_time_out() -> None:
    api = ApiServer()

    async def fault(_: web.Request) -> web.Response:
        return status(429, "TooManyRequests")

    async with client_of(api) as client:
        await api.put(resources.JOBS, JOB)
        api.faults += [fault, fault]
        assert json.loads(await client.get(resources.JOBS, "team", "a"))["metadata"]["name"] == "a"
    assert len(api.requests) == 3


@pytest.mark.parametrize("as_header", [True, False])
async def test_too_many_requests_beyond_the_time_out_is_raised_with_its_delay(as_header: bool) -> None:
    api = ApiServer()

    async def fault(_: web.Request) -> web.Response:
        return status(
            429, "TooManyRequests", seconds=0 if as_header else 7, headers={"Retry-After": "7"} if as_header else {}
        )

    async with client_of(api, timeout_s=0.5) as client:
        api.faults.append(fault)
        with pytest.raises(errors.TooManyRequests) as caught:
            await client.get(resources.JOBS, "team", "a")
    assert caught.value.retry_after == 7
    assert len(api.requests) == 1


async def test_no_answer_in_time_is_unreachable() -> None:
    api = ApiServer()
    never = asyncio.Event()

    async def fault(_: web.Request) -> None:
        await never.wait()

    async with client_of(api, timeout_s=0.05) as client:
        api.faults.append(fault)
        with pytest.raises(errors.Unreachable):
            await client.get(resources.JOBS, "team", "a")
        never.set()


async def test_no_server_is_unreachable_and_unavailable(tmp_path: Path) -> None:
    async with serve(ApiServer()) as url:
        pass
    async with await connect(str(kubeconfig(tmp_path, url))) as client:
        with pytest.raises(errors.Unavailable):
            await client.get(resources.JOBS, "team", "a")


async def test_a_rotated_token_is_taken_up_after_a_401(tmp_path: Path) -> None:
    api = ApiServer()

    async def fault(request: web.Request) -> web.Response | None:
        return None if request.headers["Authorization"] == "Bearer new" else status(401, "Unauthorized")

    async with serve(api) as url, await connect(str(kubeconfig(tmp_path, url, "old"))) as client:
        await api.put(resources.JOBS, JOB)
        kubeconfig(tmp_path, url, "new")
        api.faults += [fault, fault]
        await client.get(resources.JOBS, "team", "a")
        kubeconfig(tmp_path, url, "still wrong")
        api.faults += [lambda request: _unauthorized(request)] * 2
        with pytest.raises(errors.Unauthorized):
            await client.get(resources.JOBS, "team", "a")


async def _unauthorized(_: web.Request) -> web.Response:
    return status(401, "Unauthorized")


async def test_every_call_is_counted_with_its_outcome() -> None:
    api = ApiServer()
    calls: list[tuple[str, str, str, int]] = []
    async with client_of(api, on_call=lambda v, r, s, code, _: calls.append((v, r, s, code))) as client:
        await api.put(resources.JOBS, JOB)
        await client.patch(resources.JOBS, "team", "a", b"{}", subresource="status")
        with pytest.raises(errors.NotFound):
            await client.get(resources.JOBS, "team", "b")
    assert calls == [("patch", "jobs", "status", 200), ("get", "jobs", "", 404)]


async def test_a_missing_kubeconfig_is_named() -> None:
    with pytest.raises(CredentialsError, match="/no/such/file"):
        await connect("/no/such/file")


@pytest.mark.parametrize("text", ["current-context: nowhere", ": : {", "[]", "text", "contexts: 3", "\x00"])
async def test_a_broken_kubeconfig_is_named_in_one_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(text + "\n")
    with pytest.raises(CredentialsError, match=str(path)) as caught:
        await connect(str(path))
    assert "\n" not in str(caught.value)


async def test_nothing_to_connect_to_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(CredentialsError, match="no service account"):
        await connect()
