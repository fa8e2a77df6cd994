"""Conversion reviews as bytes in and out."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from services.webhook import conversion_review
from services.webhook.conversion_review import IN_A_ROW, respond
from shared.api import names

V1, V2 = names.V1BETA1_GROUP_VERSION, names.GROUP_VERSION


def queue(name: str, **more: object) -> dict[str, object]:
    spec = {"cohort": "c"}
    return {"apiVersion": V1, "kind": "ClusterQueue", "metadata": {"name": name}, "spec": spec, **more}


async def ask(*objects: object, wanted: str = V2) -> dict[str, Any]:
    request = {"uid": "u", "desiredAPIVersion": wanted, "objects": objects}
    body = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "request": request}
    review = msgspec.json.decode(await respond(msgspec.json.encode(body)))
    assert review["apiVersion"] == "apiextensions.k8s.io/v1"
    assert review["kind"] == "ConversionReview"
    response: dict[str, Any] = review["response"]
    return response


async def test_as_many_come_back_in_their_order() -> None:
    answer = await ask(*(queue(f"q{i}") for i in range(20)))
    assert answer["uid"] == "u"
    assert answer["result"] == {"status": "Success"}
    assert [o["metadata"]["name"] for o in answer["convertedObjects"]] == [f"q{i}" for i in range(20)]
    assert {o["spec"]["cohortName"] for o in answer["convertedObjects"]} == {"c"}


async def test_none_is_as_good() -> None:
    assert await ask() == {"uid": "u", "result": {"status": "Success"}, "convertedObjects": []}


async def test_one_bad_object_gives_one_clear_error() -> None:
    answer = await ask(queue("good"), queue("bad", kind="Job"), queue("worse", kind="Pod"))
    wanted = "objects[1]: Job bad: there is no conversion of Job from kueue.x-k8s.io/v1beta1 to kueue.x-k8s.io/v1beta2"
    assert answer == {"uid": "u", "result": {"status": "Failure", "message": wanted}, "convertedObjects": []}


async def test_a_defect_is_answered_too(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def broken(*_: object) -> object:
        raise KeyError("x")

    monkeypatch.setattr(conversion_review, "converted", broken)
    assert (await ask(queue("q")))["result"] == {
        "status": "Failure",
        "message": "objects[0]: internal error, see the log of the webhook",
    }
    assert "conversion failed" in caplog.text


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b'{"request": {"uid": "u"}}', b"\xff", b'{"request": {"uid": 1}}'])
async def test_what_is_no_review_is_refused(body: bytes) -> None:
    answer = msgspec.json.decode(await respond(body))["response"]
    assert answer["result"]["status"] == "Failure"
    assert answer["result"]["message"].startswith("not a ConversionReview: ")


async def test_others_have_their_turn_between_the_objects_of_a_list() -> None:
    turns: list[int] = []

    async def other() -> None:
        while True:
            turns.append(len(turns))
            await asyncio.sleep(0)

    running = asyncio.create_task(other())
    answer = await ask(*(queue(f"q{i}") for i in range(10 * IN_A_ROW)))
    running.cancel()
    assert len(answer["convertedObjects"]) == 10 * IN_A_ROW
    assert len(turns) >= 9
