"""Kueue's metrics over HTTPS, for whoever may read them: `metrics.bindAddress` of the configuration.

Here, since the services that count hold no credentials of Kubernetes (R2), and the webhook has those and a certificate. For each scrape:

1. The bearer token is reviewed by the API server (TokenReview): 401 if it is nobody's.
2. Its user has to be allowed to get the URL `/metrics` (SubjectAccessReview): else 403.
3. Every instance behind the sources is asked, over plain HTTP inside the cluster, and what is Kueue's of their answers is put together. A series that two
   instances have alike is given once. `sluice_metrics_sources` says how many answered; 502 if none did.
"""

from __future__ import annotations

import asyncio
import logging
import re
import socket
from collections.abc import Awaitable, Callable, Sequence
from urllib.parse import urlsplit, urlunsplit

import aiohttp
import msgspec
from aiohttp import web

from shared.kube.client import KubeClient
from shared.kube.errors import ApiError
from shared.kube.resources import SUBJECT_ACCESS_REVIEWS, TOKEN_REVIEWS
from shared.runtime.overview import merged
from shared.telemetry.metrics import PREFIX

log = logging.getLogger("sluice.webhook.metrics")
PATH = "/metrics"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SCRAPE_S = 5.0
"""For so long an instance may take to answer."""

_OURS = re.compile(rf"(# \w+ )?{PREFIX}")

Fetch = Callable[[str], Awaitable[list[str]]]
"""The texts of all instances behind a source."""


class User(msgspec.Struct, frozen=True):
    """userInfo of a TokenReview."""

    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = {}


class _TokenStatus(msgspec.Struct, frozen=True):
    authenticated: bool = False
    user: User = User()


class _TokenReview(msgspec.Struct):
    status: _TokenStatus = _TokenStatus()


class _AccessStatus(msgspec.Struct, frozen=True):
    allowed: bool = False


class _AccessReview(msgspec.Struct):
    status: _AccessStatus = _AccessStatus()


class Reviews:
    """Asks the API server who somebody is, and what they may."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client

    async def user_of(self, token: str) -> User | None:
        """None for a token of nobody. Raises ApiError."""
        body = {"apiVersion": TOKEN_REVIEWS.api_version, "kind": TOKEN_REVIEWS.kind, "spec": {"token": token}}
        answer = await self._client.create(TOKEN_REVIEWS, "", msgspec.json.encode(body))
        status = msgspec.json.decode(answer, type=_TokenReview).status
        return status.user if status.authenticated else None

    async def may_read(self, user: User) -> bool:
        """Whether the user may get the URL of metrics. Raises ApiError."""
        spec = {
            "user": user.username,
            "uid": user.uid,
            "groups": user.groups,
            "extra": user.extra,
            "nonResourceAttributes": {"path": PATH, "verb": "get"},
        }
        body = {"apiVersion": SUBJECT_ACCESS_REVIEWS.api_version, "kind": SUBJECT_ACCESS_REVIEWS.kind, "spec": spec}
        answer = await self._client.create(SUBJECT_ACCESS_REVIEWS, "", msgspec.json.encode(body))
        return msgspec.json.decode(answer, type=_AccessReview).status.allowed


def application(reviews: Reviews, sources: tuple[str, ...], fetch: Fetch) -> web.Application:
    """GET /metrics, and nothing else."""

    async def metrics(request: web.Request) -> web.Response:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            return web.Response(status=401, text="a bearer token is needed\n")
        try:
            user = await reviews.user_of(token.strip())
            if user is None:
                return web.Response(status=401, text="the token is not valid\n")
            if not await reviews.may_read(user):
                return web.Response(status=403, text=f"{user.username} may not get {PATH}\n")
        except (ApiError, msgspec.DecodeError) as error:
            log.warning("cannot ask who may read metrics: %s", error)
            return web.Response(status=500, text="the API server did not say who you are\n")
        texts = [text for found in await asyncio.gather(*(fetch(source) for source in sources)) for text in found]
        if not texts:
            return web.Response(status=502, text="no source of metrics answers\n")
        return web.Response(body=together(texts).encode(), headers={"Content-Type": CONTENT_TYPE})

    app = web.Application()
    app.router.add_get(PATH, metrics)
    return app


def together(texts: Sequence[str]) -> str:
    """One text of Kueue's families in several; each series once, that of the first text that has it."""
    page = merged({str(number): text for number, text in enumerate(texts)})
    kept = [line for line in page.splitlines() if _OURS.match(line)]
    head = "# TYPE sluice_metrics_sources gauge"
    return "\n".join([head, f"sluice_metrics_sources {len(texts)}", *kept]) + "\n"


def fetcher(session: aiohttp.ClientSession) -> Fetch:
    """Over HTTP, from each address that the host of a source has now."""

    async def one(url: str) -> str | None:
        try:
            async with session.get(url, timeout=aiohttp.ClientTimeout(total=SCRAPE_S)) as answer:
                answer.raise_for_status()
                return await answer.text()
        except (aiohttp.ClientError, TimeoutError) as error:
            log.warning("%s gives no metrics: %s", url, error or type(error).__name__)
            return None

    async def fetch(source: str) -> list[str]:
        parts = urlsplit(source)
        host, port = parts.hostname or "", parts.port or 80
        try:
            found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as error:
            log.warning("%s is not found: %s", host, error)
            return []
        addresses = sorted({str(address[0]) for *_, address in found})
        hosts = [f"[{address}]:{port}" if ":" in address else f"{address}:{port}" for address in addresses]
        urls = [urlunsplit(("http", at, parts.path or PATH, "", "")) for at in hosts]
        return [text for text in await asyncio.gather(*(one(url) for url in urls)) if text is not None]

    return fetch
