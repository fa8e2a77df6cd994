"""Versions, for any history of writes: a watch from any of them, a list at any of them and a restore to any of them show the same objects."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from shared.jobs.manifest import JsonObject
from shared.kube.errors import ApiError
from shared.kube.resources import LOCAL_QUEUES, NAMESPACES, Resource
from shared.testing.simulated_api import SimulatedApi

Picture = dict[str, dict[str, Any]]
Step = tuple[str, str, int]

KINDS = (LOCAL_QUEUES, NAMESPACES)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(("create", "label", "status", "delete", "hold", "release")),
        st.sampled_from("abc"),
        st.integers(0, 2),
    ),
    max_size=30,
)


def carry_out(api: SimulatedApi, step: Step) -> None:
    """One write, which may be refused."""
    what, name, number = step
    metadata: JsonObject = {"name": name, "namespace": "default", "labels": {"n": str(number)}}
    try:
        match what:
            case "create":
                api.create(LOCAL_QUEUES, {"metadata": metadata, "spec": {}})
            case "label":
                api.write(LOCAL_QUEUES, "default", name, {"metadata": {"labels": {"n": str(number)}}})
            case "status":
                status: JsonObject = {"status": {"pendingWorkloads": number}}
                api.write(LOCAL_QUEUES, "default", name, status, subresource="status")
            case "hold":
                api.write(LOCAL_QUEUES, "default", name, {"metadata": {"finalizers": ["a.b/c"]}})
            case "release":
                api.write(LOCAL_QUEUES, "default", name, {"metadata": {"finalizers": None}})
            case _:
                api.delete(LOCAL_QUEUES, "default", name)
    except ApiError:
        return


def picture(api: SimulatedApi, resource: Resource) -> Picture:
    return {str(one["metadata"]["name"]): one for one in api.objects(resource)}


def run(steps: Sequence[Step]) -> tuple[SimulatedApi, dict[int, Picture]]:
    """The server after the steps, and what it held at each version."""
    api = SimulatedApi(lambda: 1e9, random.Random(1))
    pictures = {api.version: picture(api, LOCAL_QUEUES)}
    for step in steps:
        carry_out(api, step)
        pictures[api.version] = picture(api, LOCAL_QUEUES)
    return api, pictures


async def watched(api: SimulatedApi, since: int, start: Picture, selector: str = "") -> dict[str, Any]:
    """What a reader holds that had `start` at the version `since` and watched from there until now."""
    held: dict[str, Any] = dict(start)
    watch = api.client().watch(
        LOCAL_QUEUES, "", query={"resourceVersion": str(since), "labelSelector": selector}, idle_s=1
    )
    assert await anext(watch) == []
    if (marker := await _marker(api, selector)) in held:
        raise AssertionError("the marker is new")
    seen = since
    while marker not in held:
        for line in await anext(watch):
            event = msgspec.json.decode(line)
            document = event["object"]
            assert int(document["metadata"]["resourceVersion"]) > seen
            seen = int(document["metadata"]["resourceVersion"])
            name = document["metadata"]["name"]
            if event["type"] == "DELETED":
                del held[name]
            else:
                assert (event["type"] == "ADDED") is (name not in held)
                held[name] = document
    del held[marker]
    await watch.aclose()
    return held


async def _marker(api: SimulatedApi, selector: str) -> str:
    key, _, value = selector.partition("=")
    labels = {key: value} if key else {}
    api.create(LOCAL_QUEUES, {"metadata": {"name": "marker", "namespace": "default", "labels": labels}, "spec": {}})
    return "marker"


@given(STEPS, st.data())
def test_a_watch_from_any_version_leads_to_now(steps: Sequence[Step], data: st.DataObject) -> None:
    api, pictures = run(steps)
    since = data.draw(st.sampled_from(sorted(pictures)))
    now = dict(picture(api, LOCAL_QUEUES))
    assert asyncio.run(watched(api, since, pictures[since])) == now


@given(STEPS, st.data())
def test_a_watch_with_a_selector_keeps_what_is_selected(steps: Sequence[Step], data: st.DataObject) -> None:
    api, pictures = run(steps)
    since = data.draw(st.sampled_from(sorted(pictures)))

    def selected(all_: Picture) -> dict[str, Any]:
        return {name: one for name, one in all_.items() if one["metadata"]["labels"] == {"n": "1"}}

    now = selected(picture(api, LOCAL_QUEUES))
    assert asyncio.run(watched(api, since, selected(pictures[since]), "n=1")) == now


@given(STEPS, STEPS, st.integers(1, 3))
def test_pages_show_the_version_of_the_first(before: Sequence[Step], between: Sequence[Step], limit: int) -> None:
    api, pictures = run(before)
    expected = pictures[api.version]
    rest = list(between)

    async def listed() -> list[Any]:
        client = api.client()
        query = {"limit": str(limit)}
        found: list[Any] = []
        while True:
            page = msgspec.json.decode(await client.list_page(LOCAL_QUEUES, "default", query=query))
            found += page["items"]
            query["continue"] = page["metadata"].get("continue", "")
            if not query["continue"]:
                return found
            while rest:
                carry_out(api, rest.pop())

    assert {one["metadata"]["name"]: one for one in asyncio.run(listed())} == expected


@given(STEPS, STEPS, st.data())
def test_a_restore_is_as_if_nothing_had_come_after(
    steps: Sequence[Step], more: Sequence[Step], data: st.DataObject
) -> None:
    api, pictures = run(steps)
    others = picture(api, NAMESPACES)
    version = data.draw(st.sampled_from(sorted(pictures)))
    api.restore_to(version)
    assert api.version == version
    assert picture(api, LOCAL_QUEUES) == pictures[version]
    assert picture(api, NAMESPACES) == others
    for step in more:
        carry_out(api, step)
    versions = [commit.version for commit in api.history]
    assert versions == sorted(set(versions))
    for one in picture(api, LOCAL_QUEUES).values():
        metadata: Any = one["metadata"]
        assert not ("deletionTimestamp" in metadata and not metadata.get("finalizers"))
        assert int(metadata["resourceVersion"]) <= api.version
