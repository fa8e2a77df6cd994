"""Items, timelines and audit events for the tests of this folder."""

from __future__ import annotations

from datetime import UTC, datetime

from devcluster.audit import AuditEvent, Reference, ResponseStatus, User
from loadtest.generator import Item
from loadtest.timeline import Timeline

WATCHER = "system:serviceaccount:kueue-system:sluice-watcher"
CLIENT = "client"


def item(name: str = "a", *, class_name: str = "small", queue_class: str = "cq", milli: int = 1000) -> Item:
    return Item(
        due_s=0.0,
        namespace="ns",
        name=name,
        class_name=class_name,
        queue_class=queue_class,
        runtime_s=1.0,
        milli=milli,
        body=b"{}",
    )


def started(name: str, *, asked: float = 100.0, at: float = 100.5) -> Timeline:
    """A Job that got through, its Workload called `job-<name>`."""
    return Timeline(item(name), asked=asked, answered=asked, started=at, held=True, workload=f"ns/job-{name}")


def event(
    at: float, verb: str, resource: str, name: str, *, user: str = WATCHER, code: int = 200, namespace: str = "ns"
) -> AuditEvent:
    """`resource` may have a subresource: `workloads/status`."""
    plural, _, sub = resource.partition("/")
    stamp = datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return AuditEvent(
        verb=verb,
        user=User(user),
        object_ref=Reference(plural, sub, namespace, name),
        response_status=ResponseStatus(code),
        request_received_timestamp=stamp,
    )
