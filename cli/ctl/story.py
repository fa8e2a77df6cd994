"""`story WORKLOAD`: all that is known to have happened to a workload and its job, in order.

Put together of what the Kubernetes API keeps: when things were made, transitions of conditions, states of admission checks, and Events. A condition
remembers its last transition only; Events live for an hour in most clusters. For what happens from now on there is `watch`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated

import msgspec
import typer

from cli.ctl import completing
from cli.ctl.cluster import Cluster, CommandError, Json, Session
from cli.ctl.flags import on_cluster
from cli.ctl.printing import table
from shared.kube.errors import ApiError
from shared.kube.resources import CORE_EVENTS, WORKLOADS


class Chapter(msgspec.Struct, frozen=True, order=True):
    """One thing that happened."""

    at: str
    """RFC 3339."""
    subject: str
    what: str
    detail: str = ""


@on_cluster
def tell_story(
    cluster: Cluster,
    name: Annotated[
        str,
        typer.Argument(
            metavar="WORKLOAD", help="Name of the Workload, or of its job.", autocompletion=completing.workloads
        ),
    ],
    output: Annotated[str, typer.Option("--output", "-o", help="json; else a table.")] = "",
) -> None:
    """Tell what happened to a workload, in order."""
    if output not in ("", "json"):
        raise CommandError(f"-o {output}: json or nothing")

    async def read(session: Session) -> list[Chapter]:
        workload = await _find(session, name)
        about = {workload["metadata"]["uid"], *(o["uid"] for o in workload["metadata"].get("ownerReferences") or ())}
        try:
            events = await session.all(CORE_EVENTS)
        except ApiError as error:
            typer.echo(f"Events cannot be read, the story does without: {error.message}", err=True)
            events = []
        return story(workload, [one for one in events if (one.get("involvedObject") or {}).get("uid") in about])

    chapters = cluster.run(read)
    if output:
        typer.echo(msgspec.json.format(msgspec.json.encode(chapters), indent=2))
        return
    table(("TIME", "SUBJECT", "WHAT", "DETAIL"), [(c.at, c.subject, c.what, c.detail) for c in chapters])


async def _find(session: Session, name: str) -> Json:
    for one in await session.all(WORKLOADS):
        if one["metadata"]["name"] == name or name in {
            owner["name"] for owner in one["metadata"].get("ownerReferences") or ()
        }:
            return one
    raise CommandError(f'workloads.kueue.x-k8s.io "{name}" not found in namespace {session.namespace}')


def story(workload: Json, events: Iterable[Json]) -> list[Chapter]:
    """Oldest first."""
    chapters = [*_of_workload(workload), *map(_of_event, events)]
    # What happened within one second stays in the order in which the object tells it.
    return sorted(chapters, key=lambda chapter: chapter.at)


def _of_workload(workload: Json) -> Iterator[Chapter]:
    metadata, status = workload["metadata"], workload.get("status") or {}
    queue = (workload.get("spec") or {}).get("queueName", "")
    yield Chapter(metadata["creationTimestamp"], "workload", "created", f"in queue {queue}" if queue else "")
    for one in status.get("conditions") or ():
        said = f"{one.get('reason', '')}: {one.get('message', '')}".strip(": ")
        yield Chapter(one["lastTransitionTime"], "workload", f"{one['type']}={one['status']}", said)
    for check in status.get("admissionChecks") or ():
        yield Chapter(
            check["lastTransitionTime"], "check", f"{check['name']}={check['state']}", check.get("message", "")
        )
    requeue = status.get("requeueState") or {}
    if requeue.get("requeueAt"):
        yield Chapter(requeue["requeueAt"], "workload", "may queue again", f"after {requeue.get('count', 0)} backoffs")
    if metadata.get("deletionTimestamp"):
        yield Chapter(metadata["deletionTimestamp"], "workload", "is being deleted")


def _of_event(event: Json) -> Chapter:
    series = event.get("series") or {}
    at = event.get("eventTime") or event.get("lastTimestamp") or event["metadata"]["creationTimestamp"]
    count = series.get("count") or event.get("count") or 1
    times = f" (x{count})" if count > 1 else ""
    subject = f"{event['involvedObject'].get('kind', '').lower()} event"
    # Events have microseconds or none; a story needs seconds.
    return Chapter(
        f"{at[:19]}Z", subject, event.get("reason", "") + times, str(event.get("message") or event.get("note") or "")
    )
