"""Reviews as bytes in and out: the patch, the refusal, and everything that is no review."""

from __future__ import annotations

import base64

import msgspec
import pytest

from services.webhook.admission_review import PatchOperation, Request, Verdict, pointer
from services.webhook.service import respond
from shared.api.field_errors import (
    duplicate,
    forbidden,
    invalid,
    joined,
    not_supported,
    required,
    too_long,
    too_many,
)


def review(**request: object) -> bytes:
    return msgspec.json.encode({"request": {"uid": "u", "operation": "CREATE", "object": {"a": 1}, **request}})


async def answer(body: bytes, verdict: Verdict | Exception) -> dict[str, object]:
    async def handler(_: Request) -> Verdict:
        if isinstance(verdict, Exception):
            raise verdict
        return verdict

    document = msgspec.json.decode(await respond(body, handler))
    assert document["kind"] == "AdmissionReview"
    response: dict[str, object] = document["response"]
    return response


async def test_allowed() -> None:
    assert await answer(review(), Verdict()) == {"uid": "u", "allowed": True}


async def test_a_patch_is_base64_json() -> None:
    response = await answer(review(), Verdict(patch=(PatchOperation("add", pointer("a/b", "c~d"), True),)))
    assert response["patchType"] == "JSONPatch"
    patch = msgspec.json.decode(base64.b64decode(str(response["patch"])))
    assert patch == [{"op": "add", "path": "/a~1b/c~0d", "value": True}]


async def test_a_refusal_says_all_faults_once() -> None:
    errors = (invalid("spec.a", 1, "is bad"), duplicate("spec.b", "x"), duplicate("spec.b", "x"))
    response = await answer(review(), Verdict(errors=errors, warnings=("careful",)))
    assert response["allowed"] is False
    assert response["warnings"] == ["careful"]
    assert response["status"] == {
        "status": "Failure",
        "message": '[spec.a: Invalid value: 1: is bad, spec.b: Duplicate value: "x"]',
        "reason": "Forbidden",
        "code": 403,
    }


@pytest.mark.parametrize(
    ("failure", "code"),
    [(msgspec.ValidationError("Expected `int`"), 422), (ValueError("no quantity"), 422), (RuntimeError("defect"), 500)],
)
async def test_a_handler_that_fails_still_answers(failure: Exception, code: int) -> None:
    response = await answer(review(kind={"kind": "Job"}, namespace="n", name="j"), failure)
    assert response["allowed"] is False
    status = response["status"]
    assert isinstance(status, dict)
    assert status["code"] == code
    assert str(status["message"]).startswith("Job n/j: ")


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b'{"request": {}}', b"\xff"])
async def test_what_is_no_review_is_refused(body: bytes) -> None:
    response = await answer(body, Verdict())
    assert response["allowed"] is False
    assert isinstance(response["status"], dict)
    assert response["status"]["code"] == 400


def test_texts_of_errors() -> None:
    assert str(required("a", "must be there")) == "a: Required value: must be there"
    assert str(forbidden("a", "no")) == "a: Forbidden: no"
    assert str(too_many("a", 9, 8)) == "a: Too many: 9: must have at most 8 items"
    assert str(too_long("a", 63)) == "a: Too long: may not be more than 63 bytes"
    assert str(not_supported("a", "x", ["y", "z"])) == 'a: Unsupported value: "x": supported values: "y", "z"'
    assert joined([forbidden("a", "no")]) == "a: Forbidden: no"
