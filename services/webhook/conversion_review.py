"""ConversionReview v1: the objects that the API server wants in another version, and the answer. Source: apiextensions.k8s.io/v1.

A review has one result for all its objects: one that cannot be converted fails it, with a message that names it. A client that lists in the other
version has hundreds converted in one review: between them others are answered.
"""

from __future__ import annotations

import asyncio
import logging

import msgspec

from services.webhook.convert import ConversionError, converted

log = logging.getLogger("sluice.webhook")
API_VERSION, KIND = "apiextensions.k8s.io/v1", "ConversionReview"
PATH = "/convert"
IN_A_ROW = 10
"""Objects converted before others have their turn; under a millisecond."""


class _Request(msgspec.Struct, frozen=True, rename={"desired": "desiredAPIVersion"}):
    uid: str
    desired: str
    objects: tuple[object, ...] = ()


class _Review(msgspec.Struct, frozen=True):
    request: _Request


_decoder = msgspec.json.Decoder(_Review)


async def respond(body: bytes) -> bytes:
    """The answer to the bytes of a review, whatever they are."""
    try:
        request = _decoder.decode(body)
    except msgspec.DecodeError as error:
        return _answer("", f"not a ConversionReview: {error}")
    return await _converted(request.request)


async def _converted(request: _Request) -> bytes:
    done: list[object] = []
    for i, document in enumerate(request.objects):
        if i and i % IN_A_ROW == 0:
            await asyncio.sleep(0)
        try:
            done.append(converted(document, request.desired))
        except ConversionError as error:
            return _answer(request.uid, f"objects[{i}]: {error}")
        except Exception:
            # The API server and the user need an answer, and the next review must find us alive.
            log.exception("conversion failed", extra={"wanted": request.desired})
            return _answer(request.uid, f"objects[{i}]: internal error, see the log of the webhook")
    return _answer(request.uid, "", done)


def _answer(uid: str, failure: str, objects: list[object] | None = None) -> bytes:
    result = {"status": "Failure", "message": failure} if failure else {"status": "Success"}
    response = {"uid": uid, "result": result, "convertedObjects": objects or []}
    return msgspec.json.encode({"apiVersion": API_VERSION, "kind": KIND, "response": response})
