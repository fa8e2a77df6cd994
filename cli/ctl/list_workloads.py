"""`list workload`: what each is, where it stands, and how long it runs."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from cli.ctl import completing
from cli.ctl.cluster import Cluster, CommandError, Json, Session
from cli.ctl.discovery import resource_of
from cli.ctl.flags import on_cluster
from cli.ctl.job_reference import find_job
from cli.ctl.listing import ClusterQueueName, Everywhere, FieldSelector, Listing, Selector, run
from cli.ctl.printing import Style, age, duration, singular
from shared.api.meta import parse_time
from shared.api.names import JOB_UID_LABEL
from shared.kube.errors import ApiError
from shared.kube.resources import LOCAL_QUEUES, WORKLOADS

STATUSES = ("all", "pending", "quotareserved", "admitted", "finished")
WIDTH = 20
"""Longest job type that is printed whole."""
HEAD = (
    "NAME",
    "JOB TYPE",
    "JOB NAME",
    "LOCALQUEUE",
    "CLUSTERQUEUE",
    "STATUS",
    "POSITION IN QUEUE",
    "EXEC TIME",
    "AGE",
)

WIDE = ("PRIORITY", "PODS", "FLAVORS", "REASON")


@on_cluster
def workloads(
    cluster: Cluster,
    style: Style,
    clusterqueue: ClusterQueueName = "",
    localqueue: Annotated[
        str, typer.Option("--localqueue", "-q", help="Only of this LocalQueue.", autocompletion=completing.local_queues)
    ] = "",
    status: Annotated[list[str] | None, typer.Option(help=f"{', '.join(STATUSES)}; repeatable.")] = None,
    for_: Annotated[str, typer.Option("--for", metavar="TYPE[.GROUP]/NAME", help="Only of this job.")] = "",
    selector: Selector = "",
    field_selector: FieldSelector = "",
    all_namespaces: Everywhere = False,
) -> None:
    """List workloads."""
    wanted = _statuses(status or ())
    job = cluster.run(lambda session: find_job(session, for_))[1] if for_ else None
    uid = job["metadata"]["uid"] if job is not None else ""
    by_label = uid and cluster.run(lambda session: _any(session, f"{JOB_UID_LABEL}={uid}", all_namespaces))

    def keep(one: Json) -> bool:
        return (
            (not clusterqueue or _admission(one).get("clusterQueue") == clusterqueue)
            and (not localqueue or one["spec"].get("queueName") == localqueue)
            and (not wanted or standing(one) in wanted)
            and (not uid or bool(by_label) or uid in _owner_uids(one))
        )

    asked = f"{JOB_UID_LABEL}={uid}" if by_label else ""
    listing = Listing(
        resource=WORKLOADS,
        head=HEAD,
        rows=_Rows().rows,
        wide=WIDE,
        wide_cells=_more,
        keep=keep,
        everywhere=all_namespaces,
        selector=",".join(filter(None, (asked, selector))),
        field_selector=field_selector,
    )
    run(cluster, style, listing)


async def _any(session: Session, selector: str, everywhere: bool) -> bool:
    return bool(await session.all(WORKLOADS, everywhere=everywhere, query={"labelSelector": selector, "limit": "1"}))


def _statuses(given: list[str] | tuple[str, ...]) -> set[str]:
    """Empty: all. Raises CommandError."""
    found = {word.lower() for text in given for word in text.split(",") if word}
    for word in found:
        if word not in STATUSES:
            raise CommandError(f'invalid status value ({word}). Must be "all", "pending", "admitted" or "finished"')
    return set() if "all" in found else found


def standing(workload: Json) -> str:
    """pending, quotareserved, admitted or finished."""
    true = {one["type"] for one in _conditions(workload) if one["status"] == "True"}
    for condition, word in (("Finished", "finished"), ("Admitted", "admitted"), ("QuotaReserved", "quotareserved")):
        if condition in true:
            return word
    return "pending"


class _Rows:
    """Rows of the table; asks once for each thing that several workloads share."""

    def __init__(self) -> None:
        self._queues: dict[tuple[str, str], str] = {}
        self._types: dict[tuple[str, str], str] = {}
        self._positions: dict[tuple[str, str], dict[str, str]] = {}

    async def rows(self, session: Session, objects: list[Json]) -> list[tuple[str, ...]]:
        now = datetime.now(UTC)
        return [await self._row(session, one, now) for one in objects]

    async def _row(self, session: Session, one: Json, now: datetime) -> tuple[str, ...]:
        metadata = one["metadata"]
        place = (metadata["namespace"], one["spec"].get("queueName", ""))
        stands = standing(one)
        owners = [o for o in metadata.get("ownerReferences") or () if o.get("controller")]
        owner = owners[0] if owners else None
        return (
            metadata["name"],
            await self._type(session, owner["apiVersion"], owner["kind"]) if owner else "",
            owner["name"] if owner else "",
            place[1],
            _admission(one).get("clusterQueue") or await self._cluster_queue(session, place),
            stands.upper(),
            (await self._pending(session, place)).get(metadata["name"], "") if stands == "pending" else "",
            _execution(one, now),
            age(metadata.get("creationTimestamp"), now),
        )

    async def _type(self, session: Session, api_version: str, kind: str) -> str:
        if (api_version, kind) not in self._types:
            try:
                text = singular(await resource_of(session, api_version, kind))
            except (ApiError, CommandError):
                text = ".".join(filter(None, (kind.lower(), api_version.rpartition("/")[0])))
            self._types[api_version, kind] = text if len(text) <= WIDTH else text[: WIDTH - 3] + "..."
        return self._types[api_version, kind]

    async def _cluster_queue(self, session: Session, place: tuple[str, str]) -> str:
        if place not in self._queues:
            self._queues[place] = ""
            if place[1]:
                try:
                    queue = await session.get(LOCAL_QUEUES, place[1], place[0])
                    self._queues[place] = queue["spec"].get("clusterQueue", "")
                except ApiError:
                    # The list is worth more than a queue that is gone, or may not be read.
                    pass
        return self._queues[place]

    async def _pending(self, session: Session, place: tuple[str, str]) -> dict[str, str]:
        """Workload -> place in its LocalQueue, of the visibility API; empty where that is not served."""
        if place not in self._positions:
            path = (
                f"/apis/visibility.kueue.x-k8s.io/v1beta2/namespaces/{place[0]}/localqueues/{place[1]}/pendingworkloads"
            )
            try:
                found = await session.discover(path) if place[1] else {}
            except ApiError:
                found = {}
            self._positions[place] = {
                one["metadata"]["name"]: str(one.get("positionInLocalQueue", "")) for one in found.get("items") or ()
            }
        return self._positions[place]


def _more(workload: Json) -> tuple[str, ...]:
    """The columns of `-o wide`: priority, pods, the flavors it was given, and why it waits or was stopped."""
    spec = workload["spec"]
    assignments = _admission(workload).get("podSetAssignments") or ()
    flavors = dict.fromkeys(flavor for one in assignments for flavor in (one.get("flavors") or {}).values())
    return (
        str(spec.get("priority", 0)),
        str(sum(one.get("count", 1) for one in spec.get("podSets") or ())),
        ",".join(flavors),
        _reason(workload),
    )


def _reason(workload: Json) -> str:
    by_type = {one["type"]: one for one in _conditions(workload)}
    for type_, status in (("Finished", "True"), ("Evicted", "True"), ("QuotaReserved", "False"), ("Admitted", "False")):
        if by_type.get(type_, {}).get("status") == status:
            return str(by_type[type_].get("reason", ""))
    return ""


def _execution(workload: Json, now: datetime) -> str:
    times = {one["type"]: one["lastTransitionTime"] for one in _conditions(workload) if one["status"] == "True"}
    if "Admitted" not in times:
        return ""
    end = parse_time(times["Finished"]) if "Finished" in times else now
    return duration((end - parse_time(times["Admitted"])).total_seconds())


def _conditions(workload: Json) -> list[Json]:
    return (workload.get("status") or {}).get("conditions") or []


def _admission(workload: Json) -> Json:
    return (workload.get("status") or {}).get("admission") or {}


def _owner_uids(workload: Json) -> set[str]:
    return {one["uid"] for one in workload["metadata"].get("ownerReferences") or ()}
