"""Who may read metrics over HTTPS, and what becomes of the answers of several instances."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import cast

import aiohttp
import pytest
from aiohttp import web

from services.webhook.metrics_front import Reviews, application, fetcher, together
from shared.kube.client import KubeClient
from shared.kube.errors import Unreachable
from shared.kube.resources import SUBJECT_ACCESS_REVIEWS, TOKEN_REVIEWS, Resource

ONE = """# HELP kueue_admitted_workloads_total Workloads.
# TYPE kueue_admitted_workloads_total counter
kueue_admitted_workloads_total{cluster_queue="a b",replica_role="leader"} 3.0
# HELP process_open_fds Number of them.
# TYPE process_open_fds gauge
process_open_fds 9.0
"""
TWO = """# HELP kueue_admitted_workloads_total Workloads.
# TYPE kueue_admitted_workloads_total counter
kueue_admitted_workloads_total{cluster_queue="a b",replica_role="leader"} 1.0
kueue_admitted_workloads_total{cluster_queue="c",replica_role="leader"} 5.0
# HELP kueue_w_seconds Waits.
# TYPE kueue_w_seconds histogram
kueue_w_seconds_bucket{le="1.0"} 2.0
kueue_w_seconds_count 2.0
"""


class ApiServer:
    """Knows the tokens `reader` and `stranger`; only the first may read."""

    def __init__(self, *, up: bool = True) -> None:
        self.up = up
        self.asked: list[dict[str, object]] = []

    async def create(self, resource: Resource, namespace: str, body: bytes) -> bytes:
        if not self.up:
            raise Unreachable(0, "Unreachable", "no answer")
        spec = json.loads(body)["spec"]
        if resource is TOKEN_REVIEWS:
            known = spec["token"] in ("reader", "stranger")
            user = {"username": spec["token"], "uid": "u", "groups": ["g"], "extra": {"k": ["v"]}}
            return json.dumps({"status": {"authenticated": known, **({"user": user} if known else {})}}).encode()
        assert resource is SUBJECT_ACCESS_REVIEWS
        self.asked.append(spec)
        return json.dumps({"status": {"allowed": spec["user"] == "reader"}}).encode()


@asynccontextmanager
async def serving(app: web.Application) -> AsyncIterator[str]:
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def front(api: ApiServer, texts: Callable[[str], list[str]]) -> web.Application:
    async def fetch(source: str) -> list[str]:
        return texts(source)

    return application(Reviews(cast(KubeClient, api)), ("s1", "s2"), fetch)


async def get(app: web.Application, authorization: str = "") -> tuple[int, str]:
    headers = {"Authorization": authorization} if authorization else {}
    async with (
        serving(app) as url,
        aiohttp.ClientSession() as session,
        session.get(f"{url}/metrics", headers=headers) as answer,
    ):
        return answer.status, await answer.text()


@pytest.mark.parametrize(
    ("authorization", "status"),
    [("", 401), ("Basic reader", 401), ("Bearer ", 401), ("Bearer nobody", 401), ("Bearer stranger", 403)],
)
async def test_who_may_not_read(authorization: str, status: int) -> None:
    def nothing(_: str) -> list[str]:
        raise AssertionError("a source was asked for somebody who may not read")

    found, text = await get(front(ApiServer(), nothing), authorization)
    assert found == status
    assert "kueue_" not in text


async def test_who_may_read_is_asked_of_the_api_server_with_all_it_knows_of_the_user() -> None:
    api = ApiServer()
    status, text = await get(front(api, lambda source: [ONE] if source == "s1" else [TWO]), "Bearer reader")
    assert status == 200
    assert 'kueue_admitted_workloads_total{cluster_queue="c",replica_role="leader"} 5.0' in text
    [spec] = api.asked
    assert spec["nonResourceAttributes"] == {"path": "/metrics", "verb": "get"}
    assert (spec["user"], spec["uid"], spec["groups"], spec["extra"]) == ("reader", "u", ["g"], {"k": ["v"]})


async def test_without_an_api_server_or_a_source_there_is_nothing() -> None:
    assert (await get(front(ApiServer(up=False), lambda _: [ONE]), "Bearer reader"))[0] == 500
    assert (await get(front(ApiServer(), lambda _: []), "Bearer reader"))[0] == 502


def test_families_come_once_and_series_too() -> None:
    assert together([ONE, TWO]).splitlines() == [
        "# TYPE sluice_metrics_sources gauge",
        "sluice_metrics_sources 2",
        "# HELP kueue_admitted_workloads_total Workloads.",
        "# TYPE kueue_admitted_workloads_total counter",
        'kueue_admitted_workloads_total{cluster_queue="a b",replica_role="leader"} 3.0',
        'kueue_admitted_workloads_total{cluster_queue="c",replica_role="leader"} 5.0',
        "# HELP kueue_w_seconds Waits.",
        "# TYPE kueue_w_seconds histogram",
        'kueue_w_seconds_bucket{le="1.0"} 2.0',
        "kueue_w_seconds_count 2.0",
    ]


async def test_sources_are_asked_over_http_and_those_that_fail_are_left_out() -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(text=ONE) if request.path == "/metrics" else web.Response(status=503)

    app = web.Application()
    app.router.add_get("/{name}", answer)
    async with serving(app) as url, aiohttp.ClientSession() as session:
        fetch = fetcher(session)
        good, bad, unknown = await asyncio.gather(
            fetch(f"{url}/metrics"), fetch(f"{url}/broken"), fetch("http://no-such-host.invalid:1/metrics")
        )
    assert (good, bad, unknown) == ([ONE], [], [])
