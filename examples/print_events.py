"""Prints what Sluice does, as it does it. Needs nats-py only: `python examples/print_events.py nats://USER:PASSWORD@HOST:PORT`."""

import asyncio
import json
import sys

import nats
from nats.aio.msg import Msg


async def print_event(message: Msg) -> None:
    event = json.loads(message.data)
    print(
        event["time"],
        event["type"].split(".")[-2].ljust(9),
        event["subject"],
        event["data"].get("reason", ""),
        flush=True,
    )


async def main(url: str, namespace: str = "*") -> None:
    connection = await nats.connect(url, inbox_prefix="_INBOX_events_reader")
    await connection.subscribe(f"sluice.events.{namespace}.>", cb=print_event)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
