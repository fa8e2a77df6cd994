"""`sluice hand-back`: makes what Sluice wrote into Workloads Kueue's own, so that a Kueue that takes over can clear it.

Kueue writes the status of a Workload by server-side apply and clears a field by leaving it out. That removes what the same field manager *applied*
before; Sluice wrote the same fields under the same names of managers, but by patches, which counts as somebody else's. So the records of who owns
what are rewritten, from updated to applied, and nothing but these records. (What client-go calls an upgrade of managed fields does the same for its
own clients.) Done once, after the watcher has stopped; doing it again changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from services.watcher.standing import HOLDER
from shared.api import names
from shared.api.meta import parse_time
from shared.config.configuration import LeaderElection
from shared.kube.client import KubeClient, connect
from shared.kube.errors import ApiError, Conflict, NotFound
from shared.kube.resources import LEASES, WORKLOADS

MANAGERS = (names.ADMISSION_MANAGER, names.RECLAIMABLE_PODS_MANAGER, names.PODS_READY_MANAGER)
"""Names under which Kueue applies statuses of Workloads, and Sluice patches them."""
PAGE = 500
IN_FLIGHT = 16
Entry = dict[str, Any]


class HandBackError(Exception):
    """Why nothing, or not everything, was handed back; for people."""


class HandedBack(msgspec.Struct, frozen=True):
    """How many unfinished Workloads there are, and of how many the records were rewritten."""

    workloads: int
    changed: int


def as_applied(entries: Sequence[Entry]) -> list[Entry] | None:
    """`metadata.managedFields` with what Kueue's managers updated in the status counted as applied by them; None where nothing is to be changed.

    A manager that has applied before has one record of it; what it updated is added to that.
    """
    kept = [entry for entry in entries if not _updated(entry)]
    if len(kept) == len(entries):
        return None
    for entry in filter(_updated, entries):
        before = next((k for k in kept if _applied_by(k, entry["manager"])), None)
        fields = entry.get("fieldsV1") or {}
        if before is not None:
            kept.remove(before)
            fields = union(before.get("fieldsV1") or {}, fields)
        kept.append({**entry, "operation": "Apply", "fieldsV1": fields})
    return kept


def _updated(entry: Entry) -> bool:
    return (
        entry.get("operation") == "Update" and entry.get("subresource") == "status" and entry.get("manager") in MANAGERS
    )


def _applied_by(entry: Entry, manager: str) -> bool:
    return (
        entry.get("operation") == "Apply" and entry.get("subresource") == "status" and entry.get("manager") == manager
    )


def union(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Of two sets of fields in the form of `fieldsV1`: a field is a key, what is owned below it its value."""
    return {key: union(one.get(key) or {}, other.get(key) or {}) for key in sorted(one.keys() | other.keys())}


async def hand_back(kubeconfig: str, namespace: str) -> HandedBack:
    """All unfinished Workloads of the cluster. Raises HandBackError, CredentialsError."""
    async with await connect(kubeconfig, user_agent="sluice-hand-back", timeout_s=20.0) as client:
        try:
            await _refuse_while_active(client, namespace)
            return await _all(client)
        except ApiError as error:
            raise HandBackError(str(error)) from None
        except BaseExceptionGroup as group:
            # Not `except*`: what is raised in one may come out in a group of its own, by version of Python.
            first = _first(group)
            if not isinstance(first, ApiError):
                raise
            raise HandBackError(str(first)) from None


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    first: BaseException = group
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    return first


async def _refuse_while_active(client: KubeClient, namespace: str) -> None:
    """Whatever an active watcher writes next would be its own again."""
    try:
        lease = msgspec.json.decode(await client.get(LEASES, namespace, LeaderElection().resource_name))["spec"]
    except NotFound:
        return
    if lease.get("holderIdentity") != HOLDER or not lease.get("renewTime"):
        return
    ends = parse_time(lease["renewTime"]) + timedelta(seconds=lease.get("leaseDurationSeconds") or 0)
    if ends > datetime.now(UTC):
        raise HandBackError(
            f"the watcher is active, or was {(lease.get('leaseDurationSeconds') or 0):.0f} s ago: stop it first "
            f"(kubectl -n {namespace} scale deploy sluice-watcher --replicas=0) and wait until its Lease has run out"
        )


async def _all(client: KubeClient) -> HandedBack:
    gate = asyncio.Semaphore(IN_FLIGHT)
    seen, tasks = 0, []
    async with asyncio.TaskGroup() as group:
        async for body in client.pages(WORKLOADS, limit=PAGE):
            for workload in msgspec.json.decode(body)["items"]:
                if not _finished(workload):
                    seen += 1
                    tasks.append(group.create_task(_one(client, gate, workload)))
    return HandedBack(seen, sum(task.result() for task in tasks))


async def _one(client: KubeClient, gate: asyncio.Semaphore, workload: dict[str, Any]) -> bool:
    """Whether its records were rewritten."""
    async with gate:
        while True:
            metadata = workload["metadata"]
            entries = as_applied(metadata.get("managedFields") or ())
            if entries is None:
                return False
            change = {"metadata": {"managedFields": entries, "resourceVersion": metadata["resourceVersion"]}}
            try:
                await client.patch(WORKLOADS, metadata["namespace"], metadata["name"], msgspec.json.encode(change))
            except NotFound:
                return False
            except Conflict:
                try:
                    read = await client.get(WORKLOADS, metadata["namespace"], metadata["name"])
                except NotFound:
                    return False
                workload = msgspec.json.decode(read)
            else:
                return True


def _finished(workload: dict[str, Any]) -> bool:
    conditions = (workload.get("status") or {}).get("conditions") or ()
    return any(c["type"] == names.FINISHED and c["status"] == "True" for c in conditions)
