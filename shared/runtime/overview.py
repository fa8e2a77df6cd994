"""One /readyz and one page of metrics over several services on this machine. Asks them anew for each request; keeps nothing.

/readyz is 200 when every service is ready, else 503 with a line for each that is not, and why. The page holds every service's series: Kueue's
(`kueue_*`) exactly as their service gives them, all others with a label `service`, because each process has its own `process_*` and `python_*`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping

import aiohttp
import msgspec
from aiohttp import web
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from shared.runtime.health import serve

TIMEOUT_S = 2.0
_UNCHANGED = "kueue_"
_SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(\{)?")


class Address(msgspec.Struct, frozen=True):
    """Where to listen; an empty host means all addresses."""

    host: str
    port: int


class Overview:
    """`parts`: service -> base URL of its health port."""

    def __init__(self, parts: Mapping[str, str], session: aiohttp.ClientSession) -> None:
        self._parts = parts
        self._session = session

    async def missing(self) -> dict[str, str]:
        """Service -> why it is not ready; empty when all are."""
        answers = await asyncio.gather(*(self._get(f"{url}/readyz") for url in self._parts.values()))
        return {name: text.strip() for name, (status, text) in zip(self._parts, answers, strict=True) if status != 200}

    async def page(self) -> str:
        """The metrics of all that answer."""
        answers = await asyncio.gather(*(self._get(f"{url}/metrics") for url in self._parts.values()))
        return merged({n: text for n, (status, text) in zip(self._parts, answers, strict=True) if status == 200})

    async def _get(self, url: str) -> tuple[int, str]:
        try:
            async with self._session.get(url) as response:
                return response.status, await response.text()
        except (aiohttp.ClientError, TimeoutError) as error:
            return 0, f"no answer: {error or type(error).__name__}"


def merged(pages: Mapping[str, str]) -> str:
    """Pages in Prometheus text, by service, as one: every family once, with the samples of all. Of series of Kueue that several have alike, such as
    those of two instances that stand by, the first counts: Prometheus refuses a page that has one twice."""
    heads: dict[str, list[str]] = {}
    samples: dict[str, dict[str, str]] = {}
    for service, page in pages.items():
        family = ""
        comments: list[str] = []
        for line in page.splitlines():
            if line.startswith("#"):
                words = line.split(" ", 3)
                if len(words) > 2 and words[1] in ("HELP", "TYPE"):
                    if words[2] != family:
                        family, comments = words[2], []
                    comments.append(line)
                    heads.setdefault(family, comments)
            elif line:
                series, _, value = _labelled(line, service).rpartition(" ")
                samples.setdefault(family, {}).setdefault(series, value)
    lines: list[str] = []
    for family, found in samples.items():
        lines += (*heads.get(family, ()), *(f"{series} {value}" for series, value in found.items()))
    return "\n".join(lines) + "\n" if lines else ""


def _labelled(sample: str, service: str) -> str:
    match = _SAMPLE.match(sample)
    if match is None or match[1].startswith(_UNCHANGED) or '{service="' in sample or ',service="' in sample:
        return sample
    rest = sample[match.end() :]
    separator = "" if match[2] is None or rest.startswith("}") else ","
    return f'{match[1]}{{service="{service}"{separator}{rest if match[2] else "}" + rest}'


async def run(parts: Mapping[str, str], health: Address | None, metrics: Address | None) -> None:
    """Listen on the addresses that are given (they may be the same) until cancelled. Raises OSError when one cannot be had."""
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT_S)) as session:
        overview = Overview(parts, session)
        routes: dict[Address, list[web.RouteDef]] = {}
        if health is not None:
            routes.setdefault(health, []).extend(_health_routes(overview))
        if metrics is not None:
            routes.setdefault(metrics, []).append(_metrics_route(overview))
        runners = []
        try:
            for address, found in routes.items():
                app = web.Application()
                app.add_routes(found)
                runners.append((await serve(app, address.host, address.port))[0])
            await asyncio.Event().wait()
        finally:
            for runner in runners:
                await runner.cleanup()


def _health_routes(overview: Overview) -> list[web.RouteDef]:
    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_: web.Request) -> web.Response:
        missing = await overview.missing()
        if not missing:
            return web.Response(text="ok\n")
        return web.Response(status=503, text="".join(f"{name}: {why}\n" for name, why in missing.items()))

    return [web.get("/healthz", healthz), web.get("/readyz", readyz)]


def _metrics_route(overview: Overview) -> web.RouteDef:
    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=(await overview.page()).encode(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    return web.get("/metrics", metrics)
