"""The proxy passes bytes on until it is told otherwise."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from tests.chaos.proxy import LOOPBACK, Proxy


class Echo:
    """A server that sends back what it gets."""

    def __init__(self) -> None:
        self.port = 0
        self.ended = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        except ConnectionResetError:
            pass
        finally:
            self.ended.set()
            writer.close()


@pytest.fixture
async def echo() -> AsyncIterator[Echo]:
    made = Echo()
    server = await asyncio.start_server(made.serve, LOOPBACK, 0)
    made.port = server.sockets[0].getsockname()[1]
    yield made
    server.close()


@pytest.fixture
async def proxy(echo: Echo) -> AsyncIterator[Proxy]:
    # Nobody listens on port 1: the next target gets the connection.
    made = Proxy(lambda: (1, echo.port))
    await made.start(0)
    yield made
    await made.stop()


async def test_bytes_go_there_and_back(proxy: Proxy) -> None:
    reader, writer = await asyncio.open_connection(LOOPBACK, proxy.port)
    sent = bytes(range(256)) * 4096
    writer.write(sent)
    async with asyncio.timeout(10):
        assert await reader.readexactly(len(sent)) == sent
    writer.close()


async def test_a_reset_is_one_on_both_sides_and_new_connections_work(proxy: Proxy, echo: Echo) -> None:
    reader, writer = await asyncio.open_connection(LOOPBACK, proxy.port)
    writer.write(b"x")
    async with asyncio.timeout(10):
        assert await reader.read(1) == b"x"
        assert proxy.reset() == 1
        with pytest.raises(ConnectionResetError):
            await reader.read(1)
        await echo.ended.wait()
    writer.close()
    await test_bytes_go_there_and_back(proxy)


async def test_a_limit_is_one_of_all_connections_together(proxy: Proxy) -> None:
    proxy.bytes_per_s = 50_000
    began = time.monotonic()

    async def once() -> None:
        reader, writer = await asyncio.open_connection(LOOPBACK, proxy.port)
        writer.write(bytes(5_000))
        assert len(await reader.readexactly(5_000)) == 5_000
        writer.close()

    async with asyncio.timeout(10):
        await asyncio.gather(once(), once())
    # 20,000 bytes in all, both ways.
    assert time.monotonic() - began >= 0.4


async def test_who_waited_for_a_turn_passes_once_the_limit_is_lifted(proxy: Proxy) -> None:
    proxy.bytes_per_s = 10_000.0
    ends = [await asyncio.open_connection(LOOPBACK, proxy.port) for _ in range(3)]
    for _, writer in ends:
        writer.write(bytes(5_000))
    async with asyncio.timeout(10):
        while not proxy._turn.locked():  # noqa: ASYNC110 - of the proxy, which tells nobody
            await asyncio.sleep(0)
        proxy.bytes_per_s = None
        for reader, writer in ends:
            assert len(await reader.readexactly(5_000)) == 5_000
            writer.close()


async def test_when_one_side_ends_so_does_the_other(proxy: Proxy, echo: Echo) -> None:
    _, writer = await asyncio.open_connection(LOOPBACK, proxy.port)
    writer.close()
    async with asyncio.timeout(10):
        await echo.ended.wait()


async def test_a_handler_that_the_end_of_the_loop_cancels_is_no_error(proxy: Proxy) -> None:
    told: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    reader, writer = await asyncio.open_connection(LOOPBACK, proxy.port)
    writer.write(b"x")
    async with asyncio.timeout(10):
        assert await reader.read(1) == b"x"
        (handler,) = proxy._tasks
        handler.cancel()
        await asyncio.wait([handler])
        # Its other side hears of it, after whatever asyncio has to say about the handler.
        assert await reader.read(1) == b""
    writer.close()
    assert told == []
