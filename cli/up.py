"""`sluice up`: a whole Sluice on this machine with Jobs flowing, and a live table of what happens."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
from collections import deque
from collections.abc import Callable

import msgspec
import nats
from nats.aio.msg import Msg
from rich.console import Console
from rich.live import Live

from cli import live_table, sample_jobs
from cli.observe import Observer, observing
from devcluster.options import ClusterOptions
from devcluster.stack import Stack
from devcluster.state import RunningProcess, find, identify, state_directory
from shared.events import cloudevents
from shared.events.codec import MalformedMessage

PAUSE_S = 1.2
"""Between two sample Jobs: a little more than the sample queues can take, so that some wait."""
REFRESH_S = 0.5
STATE_FILE = state_directory().parent / "up.json"
"""Which process runs, for `sluice down`."""


async def up(*, jobs: bool, existing_cluster: bool) -> None:
    """Run until Ctrl-C or SIGTERM."""
    console = Console()
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    STATE_FILE.parent.mkdir(parents=True, exist_ok=True)
    STATE_FILE.write_bytes(msgspec.json.encode(identify("sluice up", os.getpid())))
    try:
        async with Stack(ClusterOptions(existing=existing_cluster), console=console) as stack:
            await stack.cluster.kubectl("apply", "--server-side", "-f", str(sample_jobs.EXAMPLES / "queues.yaml"))
            print_addresses(stack, console)
            async with asyncio.TaskGroup() as group:
                shown = group.create_task(_show(stack, console, jobs))
                await stop.wait()
                shown.cancel()
            console.print("stopping")
    finally:
        STATE_FILE.unlink(missing_ok=True)


def down() -> None:
    """Ask a running `sluice up` to end. Its own processes end with it, even if it was killed."""
    console = Console()
    try:
        process = find(msgspec.json.decode(STATE_FILE.read_bytes(), type=RunningProcess))
    except (FileNotFoundError, msgspec.DecodeError):
        process = None
    if process is None:
        STATE_FILE.unlink(missing_ok=True)
        console.print("nothing is running")
        return
    process.terminate()
    process.wait(timeout=30)
    console.print("stopped")


def print_addresses(stack: Stack, console: Console) -> None:
    """What to use from another terminal."""
    console.print("\nFrom another terminal:")
    console.print(f"  export KUBECONFIG={stack.cluster.kubeconfig}", soft_wrap=True)
    if shutil.which("kubectl") is None:
        console.print(f"  export PATH=$PATH:{stack.cluster.kubectl_program.parent}", soft_wrap=True)
    console.print("  kubectl get cq,lq,workloads -A")
    console.print(f"  .venv/bin/python examples/print_events.py {stack.reader_url}", soft_wrap=True)
    console.print(f"  logs of the services: {stack.folder / 'logs'}\n", soft_wrap=True)


async def _show(stack: Stack, console: Console, jobs: bool) -> None:
    events: deque[str] = deque(maxlen=live_table.EVENT_ROWS)

    def print_line(line: str) -> None:
        console.print(line, highlight=False, soft_wrap=True)

    async with observing(stack.cluster.kubeconfig) as (client, seen), asyncio.TaskGroup() as group:
        if jobs:
            group.create_task(sample_jobs.keep_flowing(client, PAUSE_S))
        if console.is_terminal:
            group.create_task(follow_events(stack.reader_url, events.append))
            group.create_task(_draw(seen, events, console))
        else:
            group.create_task(follow_events(stack.reader_url, print_line))


async def _draw(seen: Observer, events: deque[str], console: Console) -> None:
    with Live(console=console, auto_refresh=False, screen=False) as live:
        while True:
            live.update(live_table.render(seen.cluster_queues, seen.workloads, events), refresh=True)
            await asyncio.sleep(REFRESH_S)


async def follow_events(url: str, show: Callable[[str], None]) -> None:
    """Call `show` with a line per public event, as any external tool could, until cancelled."""
    connection = await nats.connect(url, inbox_prefix="_INBOX_events_reader", max_reconnect_attempts=-1)

    async def received(message: Msg) -> None:
        with contextlib.suppress(MalformedMessage):
            event = cloudevents.decode(message.data)
            reason = getattr(event.data, "reason", "")
            show(f"{event.time}  {cloudevents.event_name(event.data):<9} {event.subject}  {reason}")

    await connection.subscribe("sluice.events.>", cb=received)
    try:
        await asyncio.Event().wait()
    finally:
        await connection.close()
