"""KubeClient's way to a simulated API server: through a link instead of HTTPS.

A call passes `link.there` before the server looks at it and `link.back` after it was carried out, so an answer can be lost. A watch passes `there` once
and `back` for each batch of events.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

from shared.kube.errors import Unreachable
from shared.kube.transport import Answer, Request
from shared.testing.link import Broken, Link

if TYPE_CHECKING:
    from shared.testing.simulated_api.server import SimulatedApi


class SimulatedTransport:
    """One user at one simulated server. Implements shared.kube.transport.Transport; link None: everything passes at once."""

    def __init__(self, api: SimulatedApi, link: Link | None, user: str, groups: tuple[str, ...]) -> None:
        self._api = api
        self._link = link
        self._user = user
        self._groups = groups
        self._closed = False

    async def call(self, request: Request) -> Answer:
        what = _text(request)
        await self._there(what)
        boot = self._api.boot
        answer = await self._api.answer(request, self._user, self._groups)
        await self._back(what)
        if boot != self._api.boot:
            raise Unreachable(0, "Unreachable", "the server went away")
        return answer

    async def stream(self, request: Request, *, connect_s: float, idle_s: float) -> AsyncGenerator[list[bytes], None]:
        what = _text(request)
        link, api, loop = self._link, self._api, asyncio.get_running_loop()
        await self._there(what)
        try:
            async with asyncio.timeout(connect_s + idle_s):
                watch = await api.open_watch(request, self._user)
        except TimeoutError as error:
            raise Unreachable(0, "Unreachable", f"{what}: no answer in time") from error
        if link is not None:
            link.on_break(watch.break_)
        try:
            await self._back(what)
            yield []
            heard = loop.time()
            while True:
                due = heard + idle_s
                if not watch.silent:
                    due = min(due, watch.ends_at, watch.bookmark_at or watch.ends_at)
                await watch.wait(due)
                now = loop.time()
                if watch.broken:
                    if link is not None and link.dead:
                        await self._there(what)
                    raise Unreachable(0, "Unreachable", f"{what}: connection reset")
                if not watch.silent:
                    if watch.bookmark_at is not None and now >= watch.bookmark_at:
                        api.bookmark(watch, now)
                    watch.over = watch.over or now >= watch.ends_at
                if watch.lines:
                    lines, watch.lines = watch.lines, []
                    over = watch.over
                    await self._back(what)
                    yield lines
                    heard = loop.time()
                    if over:
                        return
                elif watch.over:
                    return
                elif now >= heard + idle_s:
                    raise Unreachable(0, "Unreachable", f"{what}: nothing came for {idle_s} s")
        finally:
            api.close_watch(watch)

    async def renew(self) -> None:
        """There are no credentials."""

    async def close(self) -> None:
        self._closed = True

    async def _there(self, what: str) -> None:
        if self._closed:
            raise Unreachable(0, "Unreachable", "the client is closed")
        if self._link is not None:
            try:
                await self._link.there(what)
            except Broken as error:
                raise Unreachable(0, "Unreachable", f"{what}: no connection") from error
        if self._api.down:
            raise Unreachable(0, "Unreachable", f"{what}: connection refused")

    async def _back(self, what: str) -> None:
        if self._link is not None:
            try:
                await self._link.back(what)
            except Broken as error:
                raise Unreachable(0, "Unreachable", f"{what}: connection reset") from error


def _text(request: Request) -> str:
    plural = f"{request.resource.plural}/{request.subresource}" if request.subresource else request.resource.plural
    key = f"{request.namespace}/{request.name}" if request.namespace else request.name
    return f"{request.verb} {plural} {key}" if key else f"{request.verb} {plural}"
