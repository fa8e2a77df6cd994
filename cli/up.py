"""`sluice up`: a whole Sluice on this machine with Jobs flowing, and a live table of what happens."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import signal
from collections import deque
from collections.abc import Callable

import nats
from nats.aio.msg import Msg
from rich.console import Console
from rich.live import Live

from cli import live_table, run_records, sample_jobs
from cli.local_run import LocalRun
from cli.observe import Observer, observing
from devcluster.options import ClusterOptions
from shared.events import cloudevents
from shared.events.codec import MalformedMessage

PAUSE_S = 1.2
"""Between two sample Jobs: a little more than the sample queues can take, so that some wait."""
REFRESH_S = 0.5


async def up(*, jobs: bool, existing_cluster: bool) -> None:
    """Run until Ctrl-C, SIGTERM or the end of the terminal, whatever has started until then."""
    console = Console()
    work = asyncio.ensure_future(_run(console, jobs, existing_cluster))
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, work.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await work


async def _run(console: Console, jobs: bool, existing_cluster: bool) -> None:
    running = LocalRun(ClusterOptions(existing=existing_cluster), console)
    with run_records.recorded(running.folder):
        async with running:
            await running.cluster.kubectl("apply", "--server-side", "-f", str(sample_jobs.EXAMPLES / "queues.yaml"))
            print_addresses(running, console)
            try:
                await _show(running, console, jobs)
            finally:
                console.print("stopping")


def down() -> None:
    """End every `sluice up` of this user, and remove what a killed one left behind."""
    console = Console()
    ended = run_records.end_all()
    for line in ended:
        console.print(line)
    if not ended:
        console.print("nothing is running")


def print_addresses(running: LocalRun, console: Console) -> None:
    """What to use from another terminal."""
    console.print("\nFrom another terminal:")
    console.print(f"  export KUBECONFIG={running.cluster.kubeconfig}", soft_wrap=True)
    if shutil.which("kubectl") is None:
        console.print(f"  export PATH=$PATH:{running.cluster.kubectl_program.parent}", soft_wrap=True)
    console.print("  kubectl get cq,lq,workloads -A")
    console.print(f"  .venv/bin/python examples/print_events.py {running.reader_url}", soft_wrap=True)
    console.print(f"  logs of the services: {running.logs}\n", soft_wrap=True)


async def _show(running: LocalRun, console: Console, jobs: bool) -> None:
    events: deque[str] = deque(maxlen=live_table.EVENT_ROWS)

    def print_line(line: str) -> None:
        console.print(line, highlight=False, soft_wrap=True)

    async with observing(running.cluster.kubeconfig) as (client, seen), asyncio.TaskGroup() as group:
        if jobs:
            group.create_task(sample_jobs.keep_flowing(client, PAUSE_S))
        if console.is_terminal:
            group.create_task(follow_events(running.reader_url, events.append))
            group.create_task(_draw(seen, events, console))
        else:
            group.create_task(follow_events(running.reader_url, print_line))


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
