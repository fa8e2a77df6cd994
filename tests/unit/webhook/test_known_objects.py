"""What the webhook knows: folded from the feed, through replays, with a live read on a miss."""

from __future__ import annotations

import pytest

from services.webhook.known_objects import KnownObjects
from shared.bus.interface import CaughtUp, FeedItem, ObjectChanged, Reset
from shared.events.decisions import Positions
from shared.events.objects import AdmissionCheck, CheckRule, ClusterQueue, LocalQueue, Tombstone
from shared.events.subjects import ObjectName
from shared.kube.errors import NotFound, Unreachable
from shared.kube.resources import LOCAL_QUEUES, WORKLOAD_PRIORITY_CLASSES, Resource


class Api:
    """Counts live reads; has what it is told."""

    def __init__(self, *there: tuple[Resource, str, str], down: bool = False) -> None:
        self.there = set(there)
        self.down = down
        self.reads: list[tuple[Resource, str, str]] = []

    async def get(self, resource: Resource, namespace: str, name: str) -> bytes:
        self.reads.append((resource, namespace, name))
        if self.down:
            raise Unreachable(0, "Unreachable", "no answer in time")
        if (resource, namespace, name) not in self.there:
            raise NotFound(404, "NotFound", "no such object")
        return b"{}"


def made(name: str) -> ObjectChanged:
    queue = LocalQueue(namespace="ns", name=name, version=1)
    return ObjectChanged(ObjectName("localqueue", "ns", name), queue, 1)


def gone(name: str) -> ObjectChanged:
    tombstone = Tombstone(namespace="ns", name=name, version=2)
    return ObjectChanged(ObjectName("localqueue", "ns", name), tombstone, 2)


RESET = Reset(1, "test")
CAUGHT_UP = CaughtUp(Positions())


async def known(*items: FeedItem) -> dict[str, bool]:
    """Which of the queues a, b, c it knows after these items, without an API server that has them."""
    objects = KnownObjects(Api())
    for item in items:
        objects.apply(item)
    return {name: await objects.exists("localqueue", "ns", name) for name in "abc"}


@pytest.mark.parametrize(
    ("items", "there"),
    [
        ((), ""),
        ((RESET, made("a")), "a"),
        ((RESET, made("a"), CAUGHT_UP, made("b")), "ab"),
        ((RESET, made("a"), CAUGHT_UP, gone("a")), ""),
        ((RESET, made("a"), gone("a"), CAUGHT_UP), ""),
        # Until the replay is complete, what was known is good enough; then it is forgotten.
        ((RESET, made("a"), CAUGHT_UP, RESET), "a"),
        ((RESET, made("a"), CAUGHT_UP, RESET, made("b")), "ab"),
        ((RESET, made("a"), CAUGHT_UP, RESET, made("b"), CAUGHT_UP), "b"),
        ((RESET, made("a"), CAUGHT_UP, RESET, made("b"), RESET, made("c"), CAUGHT_UP), "c"),
        ((RESET, made("a"), CAUGHT_UP, RESET, gone("a")), ""),
    ],
)
async def test_folding(items: tuple[FeedItem, ...], there: str) -> None:
    assert await known(*items) == {name: name in there for name in "abc"}


async def test_what_is_known_is_not_read() -> None:
    api = Api()
    objects = KnownObjects(api)
    objects.apply(made("a"))
    assert await objects.exists("localqueue", "ns", "a")
    assert api.reads == []


async def test_a_miss_is_read_once_from_the_api_server() -> None:
    api = Api((LOCAL_QUEUES, "ns", "default"), (WORKLOAD_PRIORITY_CLASSES, "", "default"))
    objects = KnownObjects(api)
    assert await objects.exists("localqueue", "ns", "default")
    assert await objects.exists("workloadpriorityclass", "", "default")
    assert not await objects.exists("localqueue", "other", "default")
    assert len(api.reads) == 3


async def test_an_api_server_that_is_away_counts_as_no() -> None:
    assert not await KnownObjects(Api(down=True)).exists("localqueue", "ns", "default")


def test_queues_whose_jobs_go_to_other_clusters() -> None:
    objects = KnownObjects(Api())
    local = LocalQueue(namespace="ns", name="lq", version=1, cluster_queue="cq")
    cluster = ClusterQueue(name="cq", version=1, checks=(CheckRule("other"), CheckRule("far")))
    checks = [
        AdmissionCheck(name="other", version=1, controller="example.com/other"),
        AdmissionCheck(name="far", version=1, controller="kueue.x-k8s.io/multikueue"),
    ]
    assert not objects.dispatched("ns", "lq")
    objects.apply(ObjectChanged(ObjectName("localqueue", "ns", "lq"), local, 1))
    objects.apply(ObjectChanged(ObjectName("clusterqueue", "", "cq"), cluster, 2))
    objects.apply(ObjectChanged(ObjectName("admissioncheck", "", "other"), checks[0], 3))
    assert not objects.dispatched("ns", "lq")
    objects.apply(ObjectChanged(ObjectName("admissioncheck", "", "far"), checks[1], 4))
    assert objects.dispatched("ns", "lq")
    assert not objects.dispatched("elsewhere", "lq")
