"""What we changed of the library's client, where no server is needed to see it."""

from __future__ import annotations

import asyncio

from shared.bus.client import DirectClient


async def test_what_was_not_sent_when_the_connection_broke_is_not_kept_for_the_next_one() -> None:
    client = DirectClient()
    told: list[object] = []
    client.notify(told.append, lambda: told.append("lost"), lambda: told.append("back"))
    await client._send_command(b"PUB $JS.API.STREAM.MSG.DELETE.COMMANDS 2\r\n{}\r\n")
    assert client._pending_data_size > 0
    await client._on_lost()
    assert (client._pending, client._pending_data_size, told) == ([], 0, ["lost"])


async def test_an_answer_that_nobody_waits_for_any_more_does_not_end_the_reading() -> None:
    client = DirectClient()
    given_up, waited_for = asyncio.Future[bool](), asyncio.Future[bool]()
    given_up.cancel()
    client._pongs = [given_up, waited_for]
    await client._process_pong()
    assert (client._pongs, waited_for.done()) == ([waited_for], False)
    await client._process_pong()
    assert waited_for.result() is True
    await client._process_pong()
    assert client._pongs == []
