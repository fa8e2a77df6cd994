"""The shape `webhook`: its reviews are such that the real handlers give the answers called right, and its times count from when a review was due."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator

import msgspec
import pytest_asyncio
from aiohttp import web
from aiohttp.typedefs import Handler
from prometheus_client import CollectorRegistry, Histogram

from loadtest.reviews import CONVERSION, LISTED, NAMESPACE, QUEUE, Review, reviews
from loadtest.webhook import THRESHOLDS, Timings, send
from services.webhook import conversion_review
from services.webhook.handlers import Handlers
from services.webhook.known_objects import KnownObjects
from services.webhook.service import application, respond
from services.webhook.settings import WebhookSettings
from shared.bus.interface import ObjectChanged
from shared.events.objects import LocalQueue
from shared.events.subjects import ObjectName
from shared.kube.errors import NotFound
from shared.kube.resources import Resource


class NothingThere:
    async def get(self, resource: Resource, namespace: str, name: str) -> bytes:
        raise NotFound(404, "NotFound", name)


def handlers() -> Handlers:
    known = KnownObjects(NothingThere())
    queue = LocalQueue(namespace=NAMESPACE, name=QUEUE, uid="u", version=1, cluster_queue="queue")
    known.apply(ObjectChanged(ObjectName("localqueue", NAMESPACE, QUEUE), queue, 1, ""))
    return Handlers(WebhookSettings(), known, NothingThere())  # type: ignore[arg-type]


def some(count: int) -> list[Review]:
    return list(itertools.islice(reviews(), count))


async def test_every_review_gets_the_answer_that_is_called_right() -> None:
    routes = handlers().routes()
    for review in some(200):
        if review.path == CONVERSION:
            answer = await conversion_review.respond(review.body)
        else:
            answer = await respond(review.body, routes[review.path])
        assert review.is_answered(answer), (review.path, answer[:400])


async def test_a_wrong_answer_is_noticed() -> None:
    async def wrong(review: Review) -> bytes:
        answer = {"response": {"allowed": not review.allowed, "result": {"status": "Failure"}}}
        return msgspec.json.encode(answer)

    for review in some(20):
        assert not review.is_answered(await wrong(review))


def test_the_mix() -> None:
    made = some(2000)
    by_what = Counter(review.what for review in made)
    assert by_what["convert_list"] == 10
    assert by_what["convert"] == 390
    assert by_what["mutate"] == 500
    assert [r.allowed for r in made[:20]].count(False) == 1
    listed = next(r for r in made if r.what == "convert_list")
    assert len(msgspec.json.decode(listed.body)["request"]["objects"]) == LISTED


def test_durations_are_milliseconds_by_group() -> None:
    timings = Timings()
    for what, seconds in (("mutate", 0.001), ("convert", 0.003), ("convert_list", 0.5)):
        timings.seconds[what].append(seconds)
    durations = timings.durations()
    assert durations["answer_ms"].count == 2
    assert durations["answer_ms"].max == 3.0
    assert durations["convert_list_ms"].p50 == 500.0


def test_what_was_promised() -> None:
    limits = {t.figure: t.max for t in THRESHOLDS}
    assert limits["answer_ms.p99"] == limits["convert_ms.p99"] == 20
    assert limits["wrong"] == 0


@pytest_asyncio.fixture
async def slow() -> AsyncIterator[str]:
    """A webhook over plain HTTP that keeps each answer back for 50 ms."""
    routes = handlers().routes()

    @web.middleware
    async def wait(request: web.Request, handler: Handler) -> web.StreamResponse:
        await asyncio.sleep(0.05)
        return await handler(request)

    seconds = Histogram("seconds", "Of reviews.", ("path", "allowed"), registry=CollectorRegistry())
    app = application(routes, seconds)
    app.middlewares.append(wait)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


async def test_answers_are_timed_and_checked(slow: str) -> None:
    timings = await send(slow, 40, 200)
    assert timings.problems == []
    durations = timings.durations()
    assert sum(len(found) for found in timings.seconds.values()) == 40
    assert durations["answer_ms"].p50 >= 50


async def test_a_webhook_that_is_away_is_a_problem_each_time() -> None:
    timings = await send("http://127.0.0.1:9", 5, 1000)
    assert len(timings.problems) == 5
    assert timings.durations()["answer_ms"].count == 0
