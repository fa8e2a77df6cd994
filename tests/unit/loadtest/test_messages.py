"""Counting the messages of a NATS server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from loadtest.messages import Messages, read_messages


@asynccontextmanager
async def server(text: str, status: int = 200) -> AsyncIterator[str]:
    async def varz(_: web.Request) -> web.Response:
        return web.Response(text=text, status=status)

    app = web.Application()
    app.router.add_get("/varz", varz)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def test_what_clients_sent_and_what_they_were_sent() -> None:
    async with server('{"in_msgs": 12, "out_msgs": 30, "mem": 1}') as url:
        assert await read_messages(url) == Messages(12, 30)


async def test_where_nothing_can_be_read_nothing_is_counted() -> None:
    assert await read_messages("") is None
    assert await read_messages("http://127.0.0.1:1") is None
    async with server("not JSON") as url:
        assert await read_messages(url) is None


def test_what_passed_is_told_per_item() -> None:
    passed = Messages.between(Messages(100, 1000), Messages(150, 1200))
    assert passed.per_item(10) == {"messages_per_item.sent": 5.0, "messages_per_item.delivered": 20.0}


def test_without_both_looks_there_are_no_figures() -> None:
    assert Messages.between(None, Messages(1, 1)).per_item(10) == {}
    assert Messages.between(Messages(1, 1), None).per_item(10) == {}
