"""Admission by webhook: which webhooks a write goes through, the review they get, and what their answer does to the object.

Mutating webhooks first, in order, then the validating ones, as the API server does. A webhook is any async function from the bytes of a review to the
bytes of an answer, so the simulation calls the very handlers that ship.
"""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path

import msgspec

from shared.api.selectors import LabelSelector, matches
from shared.jobs.manifest import JsonObject, items, section, text, texts
from shared.kube.errors import ApiError, Invalid, ServerTimeout, error_of
from shared.kube.resources import NAMESPACES, Resource
from shared.kube.transport import Request
from shared.testing.simulated_api.json_patch import apply_json_patch
from shared.testing.simulated_api.match_conditions import MatchCondition, condition_of
from shared.testing.simulated_api.storage import Storage

Review = Callable[[bytes], Awaitable[bytes]]
Respond = Callable[[str, bytes], Awaitable[bytes]]
"""(URL path, review) -> answer."""

SHIPPED = Path(__file__).parents[3] / "k8s" / "webhooks"
_NOT_USER = re.compile(r'request\.userInfo\.username != "([^"]+)"')
_DEFAULT_TIMEOUT_S = 10.0


class Webhook(msgspec.Struct, frozen=True, kw_only=True):
    """One webhook. `resources` holds plurals, or `plural/subresource`; a failing `review` refuses the write unless `failure_policy` is Ignore."""

    name: str
    review: Review
    resources: frozenset[str]
    operations: frozenset[str]
    mutating: bool = False
    failure_policy: str = "Fail"
    skipped_users: frozenset[str] = frozenset()
    conditions: tuple[MatchCondition, ...] = ()
    namespaces: LabelSelector = LabelSelector()
    timeout_s: float = _DEFAULT_TIMEOUT_S


class _Status(msgspec.Struct):
    code: int = 0
    message: str = ""
    reason: str = ""


class _Response(msgspec.Struct, rename="camel"):
    allowed: bool = False
    status: _Status = msgspec.field(default_factory=_Status)
    patch: str = ""


class _Answer(msgspec.Struct):
    response: _Response


_answers = msgspec.json.Decoder(_Answer)


def webhooks_of(configuration: JsonObject, respond: Respond) -> list[Webhook]:
    """The webhooks of a Mutating- or ValidatingWebhookConfiguration. Raises ValueError for what is not simulated."""
    found: list[Webhook] = []
    for entry in items(configuration, "webhooks"):
        path = text(entry, "clientConfig", "service", "path")
        rules = items(entry, "rules")
        skipped, conditions = _conditions(items(entry, "matchConditions"))
        found.append(
            Webhook(
                name=text(entry, "name"),
                review=_at(path, respond),
                resources=frozenset(str(one) for rule in rules for one in _list(rule, "resources")),
                operations=frozenset(str(one) for rule in rules for one in _list(rule, "operations")),
                mutating=configuration.get("kind") == "MutatingWebhookConfiguration",
                failure_policy=text(entry, "failurePolicy") or "Fail",
                skipped_users=skipped,
                conditions=conditions,
                namespaces=msgspec.convert(section(entry, "namespaceSelector"), LabelSelector),
                timeout_s=float(str(entry.get("timeoutSeconds") or _DEFAULT_TIMEOUT_S)),
            )
        )
    return found


def shipped_webhooks(respond: Respond, folder: Path = SHIPPED) -> list[Webhook]:
    """The webhooks as the product is deployed with them."""
    documents = [msgspec.yaml.decode((folder / name).read_bytes()) for name in ("mutating.yaml", "validating.yaml")]
    return [webhook for document in documents for webhook in webhooks_of(document, respond)]


def matching(
    webhooks: Iterable[Webhook], storage: Storage, request: Request, operation: str, user: str
) -> list[Webhook]:
    """Those that a write has to pass, in the order in which they are asked."""
    what = request.resource.plural + (f"/{request.subresource}" if request.subresource else "")
    found = [
        webhook
        for webhook in webhooks
        if what in webhook.resources and operation in webhook.operations and user not in webhook.skipped_users
    ]
    if found and request.namespace:
        state = storage.find(NAMESPACES, ("", request.namespace))
        labels = {} if state is None else texts(state.document, "metadata", "labels")
        found = [webhook for webhook in found if matches(webhook.namespaces, labels)]
    return sorted(found, key=lambda webhook: not webhook.mutating)


async def admitted(
    webhooks: Sequence[Webhook],
    request: Request,
    old: JsonObject | None,
    new: JsonObject,
    *,
    operation: str,
    user: str,
    groups: Sequence[str],
    uid: str,
) -> JsonObject:
    """The object as the webhooks leave it. Raises the ApiError of a refusal or of a webhook that fails."""
    for webhook in webhooks:
        if not all(asks(operation, old, new) for asks in webhook.conditions):
            continue
        body = _review(request, old, new, operation=operation, user=user, groups=groups, uid=uid)
        try:
            async with asyncio.timeout(webhook.timeout_s):
                response = _answers.decode(await webhook.review(body)).response
        except Exception as error:
            if webhook.failure_policy == "Ignore":
                continue
            why = f'failed calling webhook "{webhook.name}": {error or type(error).__name__}'
            raise ServerTimeout(500, "InternalError", f"Internal error occurred: {why}") from error
        if not response.allowed:
            raise _denial(webhook, response.status)
        if webhook.mutating and response.patch:
            try:
                new = apply_json_patch(new, msgspec.json.decode(base64.b64decode(response.patch)))
            except ValueError as error:
                raise Invalid(422, "Invalid", f"patch of webhook {webhook.name}: {error}") from error
    return new


def _review(
    request: Request,
    old: JsonObject | None,
    new: JsonObject,
    *,
    operation: str,
    user: str,
    groups: Sequence[str],
    uid: str,
) -> bytes:
    resource: Resource = request.resource
    asked = {
        "uid": uid,
        "kind": {"group": resource.group, "version": resource.version, "kind": resource.kind},
        "resource": {"group": resource.group, "version": resource.version, "resource": resource.plural},
        "subResource": request.subresource,
        "name": section(new, "metadata").get("name", ""),
        "namespace": request.namespace,
        "operation": operation,
        "userInfo": {"username": user, "groups": list(groups)},
        "object": new,
        "oldObject": old,
        "dryRun": False,
    }
    return msgspec.json.encode({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": asked})


def _denial(webhook: Webhook, status: _Status) -> ApiError:
    code = status.code if status.code >= 400 else 400
    message = f'admission webhook "{webhook.name}" denied the request: {status.message or "without explanation"}'
    return error_of(code, msgspec.json.encode({"reason": status.reason, "message": message}))


def _at(path: str, respond: Respond) -> Review:
    async def review(body: bytes) -> bytes:
        return await respond(path, body)

    return review


def _conditions(entries: Iterable[JsonObject]) -> tuple[frozenset[str], tuple[MatchCondition, ...]]:
    """Users that are not asked about, and the questions that are simulated by name."""
    users: set[str] = set()
    conditions: list[MatchCondition] = []
    for entry in entries:
        expression = text(entry, "expression")
        user = _NOT_USER.fullmatch(expression)
        if user is not None:
            users.add(user[1])
        else:
            conditions.append(condition_of(expression))
    return frozenset(users), tuple(conditions)


def _list(rule: JsonObject, key: str) -> list[object]:
    found = rule.get(key)
    return found if isinstance(found, list) else []
