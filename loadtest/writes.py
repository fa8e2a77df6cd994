"""API writes of a run, from the API server's audit log: by user, verb and resource, per item, and when each step of an item was written.

The path of an item are the writes of the controller under test on the Job or Workload itself until the client saw it start (or, without a job, admitted).
Kubernetes Events are counted apart: nothing waits for them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime

import msgspec

from devcluster.audit import AuditEvent, Write
from loadtest.timeline import Timeline

EVENTS = "events"


class WriteCount(msgspec.Struct, frozen=True):
    """One kind of write; `failed` of the `count` were answered with an error (a conflict, mostly)."""

    user: str
    verb: str
    resource: str
    count: int
    failed: int
    per_item: float


class Stamps(msgspec.Struct):
    """When the API server received what moved one item on; 0: it was not seen."""

    created: float = 0.0
    workload_created: float = 0.0
    admitted: float = 0.0
    """The last write of the Workload's status before `started`."""
    started: float = 0.0
    """The controller's last write of the Job that was received before the client saw it started."""


def received(event: AuditEvent) -> float:
    """Wall clock seconds at which the request came in; 0 if the event does not say."""
    stamp = event.request_received_timestamp
    return datetime.fromisoformat(stamp).timestamp() if stamp else 0.0


def resource_of(event: AuditEvent) -> str:
    """`jobs`, or with a subresource `workloads/status`."""
    reference = event.object_ref
    return f"{reference.resource}/{reference.subresource}" if reference.subresource else reference.resource


def count_writes(events: Iterable[AuditEvent], items: int) -> tuple[WriteCount, ...]:
    """By user, most writes first. `items` divides; it must not be 0."""
    counts: Counter[Write] = Counter()
    failed: Counter[Write] = Counter()
    for event in events:
        write = Write(event.user.username, event.verb, resource_of(event))
        counts[write] += 1
        failed[write] += event.response_status.code >= 400
    return tuple(
        WriteCount(w.user, w.verb, w.resource, n, failed[w], n / items)
        for w, n in sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    )


def own_writes(counts: Iterable[WriteCount], users: Iterable[str]) -> tuple[int, int]:
    """(all writes of these users but Events, Events)."""
    mine = set(users)
    plain = sum(c.count for c in counts if c.user in mine and c.resource != EVENTS)
    return plain, sum(c.count for c in counts if c.user in mine and c.resource == EVENTS)


class PathWrites(msgspec.Struct, frozen=True):
    """`by_type`: `verb resource` -> writes of all items on their paths; `per_item`: writes of each item that got through; `events`: Kubernetes
    Events about the items or their Workloads meanwhile."""

    by_type: Mapping[str, int]
    per_item: tuple[int, ...]
    events: int


def path_writes(events: Iterable[AuditEvent], timelines: Iterable[Timeline], users: Iterable[str]) -> PathWrites:
    """The writes on the admission path, refused ones included."""
    mine = set(users)
    ends, keys = _ends(timelines)
    by_type: Counter[str] = Counter()
    per_item: dict[str, int] = dict.fromkeys(ends, 0)
    informing = 0
    regarding = {key: item for (_, key), item in keys.items()}
    for event in events:
        if event.user.username not in mine:
            continue
        resource, key = _object(event)
        if resource == EVENTS:
            # An Event is called after what it is about, with a suffix.
            item = regarding.get(key.rpartition(".")[0])
            informing += item is not None and received(event) <= ends[item]
            continue
        item = keys.get((resource, key))
        if item is not None and received(event) <= ends[item]:
            by_type[f"{event.verb} {resource_of(event)}"] += 1
            per_item[item] += 1
    return PathWrites(dict(by_type.most_common()), tuple(per_item.values()), informing)


def stamps(events: Iterable[AuditEvent], timelines: Iterable[Timeline], users: Iterable[str]) -> dict[str, Stamps]:
    """Of each item that got through, by key."""
    mine = set(users)
    ends, keys = _ends(timelines)
    found: dict[str, Stamps] = defaultdict(Stamps)
    for event in events:
        item = keys.get(_object(event))
        at = received(event)
        if item is None or event.response_status.code >= 400 or at > ends[item]:
            continue
        resource, stamp = resource_of(event), found[item]
        if event.verb == "create" and event.user.username not in mine:
            stamp.created = at
        elif event.user.username not in mine:
            continue
        elif event.verb == "create" and resource == "workloads":
            stamp.workload_created = at
        elif resource == "workloads/status":
            stamp.admitted = at
        elif resource == "jobs":
            stamp.started = at
    return dict(found)


def _object(event: AuditEvent) -> tuple[str, str]:
    reference = event.object_ref
    return reference.resource, f"{reference.namespace}/{reference.name}"


def _ends(timelines: Iterable[Timeline]) -> tuple[dict[str, float], dict[tuple[str, str], str]]:
    """(end of the path by item, item by resource and key) of the items that got through."""
    ends: dict[str, float] = {}
    keys: dict[tuple[str, str], str] = {}
    for timeline in timelines:
        end = timeline.started or timeline.admitted
        if not end:
            continue
        item = timeline.item.key
        ends[item] = end
        if timeline.workload:
            keys["workloads", timeline.workload] = item
        if timeline.started:
            keys["jobs", item] = item
    return ends, keys
