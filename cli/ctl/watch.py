"""`watch`: what Sluice decides, as it happens: the public events of the bus, a line each, or CloudEvents as JSON.

Where the bus is: the flag or SLUICE_EVENTS_URL; else that of an all-in-one of this user that runs here for the same API server; else the Secret of the
reader of public events, in the cluster.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ssl
from typing import Annotated
from urllib.parse import quote

import nats
import nats.errors
import typer
from nats.aio.client import Client
from nats.aio.msg import Msg

from cli import local_events
from cli.ctl.cluster import Cluster, CommandError, Session
from cli.ctl.flags import on_cluster
from shared.events import cloudevents, subjects
from shared.events.codec import MalformedMessage
from shared.events.streams import READER
from shared.kube.errors import ApiError
from shared.kube.resources import SECRETS

NAMESPACE = "kueue-system"
SECRET = "sluice-nats-events-reader"
CONNECT_S = 5


@on_cluster
def watch_events(
    cluster: Cluster,
    events_url: Annotated[
        str, typer.Option(envvar="SLUICE_EVENTS_URL", help="nats://USER:PASSWORD@HOST:PORT of a reader of events.")
    ] = "",
    ca_file: Annotated[str, typer.Option("--events-ca-file", help="Authority of the bus's certificate.")] = "",
    all_namespaces: Annotated[bool, typer.Option("--all-namespaces", "-A", help="Of all namespaces.")] = False,
    workload: Annotated[str, typer.Option(help="Only of this Workload.")] = "",
    output: Annotated[str, typer.Option("--output", "-o", help="json: CloudEvents, one a line.")] = "",
) -> None:
    """Print what happens to workloads, live, until Ctrl-C."""
    if output not in ("", "json"):
        raise CommandError(f"-o {output}: json or nothing")

    async def follow(session: Session) -> None:
        url = events_url or local_events.url_for(session.server) or await _from_secret(session)
        namespace = "*" if all_namespaces else subjects.escape(session.namespace)
        await _follow(url, f"sluice.events.{namespace}.>", ca_file, workload, is_json=output == "json")

    with contextlib.suppress(KeyboardInterrupt):
        cluster.run(follow)


async def _from_secret(session: Session) -> str:
    try:
        found = await session.get(SECRETS, SECRET, NAMESPACE)
    except ApiError as error:
        raise CommandError(
            f"where are the events? No all-in-one runs here for {session.server}, and Secret {NAMESPACE}/{SECRET}: "
            f"{error.message}. Give --events-url or SLUICE_EVENTS_URL"
        ) from error
    text = {name: base64.b64decode(value).decode() for name, value in (found.get("data") or {}).items()}
    scheme, _, address = text.get("url", "").partition("://")
    return f"{scheme}://{quote(text.get('user', READER))}:{quote(text.get('password', ''), safe='')}@{address}"


async def _follow(url: str, subject: str, ca_file: str, workload: str, *, is_json: bool) -> None:
    connection = await _connect(url, ca_file)

    async def received(message: Msg) -> None:
        with contextlib.suppress(MalformedMessage):
            event = cloudevents.decode(message.data)
            if workload and event.data.workload != workload:
                return
            if is_json:
                typer.echo(message.data)
                return
            reason = getattr(event.data, "reason", "")
            typer.echo(f"{event.time}  {cloudevents.event_name(event.data):<9} {event.subject}  {reason}".rstrip())

    await connection.subscribe(subject, cb=received)
    try:
        await asyncio.Event().wait()
    finally:
        await connection.close()


async def _connect(url: str, ca_file: str) -> Client:
    """Raises CommandError. Once connected it comes back by itself."""
    last = "no answer"

    async def note(error: Exception) -> None:
        nonlocal last
        last = str(error) or type(error).__name__

    try:
        tls = ssl.create_default_context(cafile=ca_file) if ca_file else None
        async with asyncio.timeout(CONNECT_S):
            return await nats.connect(
                url, tls=tls, inbox_prefix=f"_INBOX_{READER}", max_reconnect_attempts=-1, error_cb=note
            )
    except TimeoutError as error:
        raise CommandError(f"cannot reach the events: {last}") from error
    except (nats.errors.Error, OSError, ValueError) as error:
        raise CommandError(f"cannot reach the events: {error or type(error).__name__}") from error
