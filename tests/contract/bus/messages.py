"""Messages in few words, and what a reader got of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from shared.bus.interface import FeedItem, ObjectChanged, ObjectWrite
from shared.events import objects
from shared.events.decisions import Batch, DecisionId, Positions
from shared.events.outcomes import DecisionOutcome
from shared.events.subjects import ObjectName


def workload(name: str, version: int, *, namespace: str = "team-a", uid: str = "", **fields: object) -> ObjectWrite:
    """A workload's projection."""
    found = objects.Workload(namespace=namespace, name=name, uid=uid or f"uid-{name}", version=version, **fields)  # type: ignore[arg-type]
    return ObjectWrite(ObjectName("workload", namespace, name), found)


def tombstone(name: str, version: int, *, namespace: str = "team-a") -> ObjectWrite:
    """The end of that workload."""
    gone = objects.Tombstone(namespace=namespace, name=name, uid=f"uid-{name}", version=version)
    return ObjectWrite(ObjectName("workload", namespace, name), gone)


def batch(after: int, author: str = "s", epoch: int = 1) -> Batch:
    """An empty batch behind entry `after`."""
    return Batch(author=author, positions=Positions(epoch=epoch, decisions=after), decided_ns=1)


def rejected(sequence: int, epoch: int = 1) -> DecisionOutcome:
    """The outcome of the first decision of an entry."""
    return DecisionOutcome(
        decision=DecisionId(epoch, sequence, 0), key="team-a/x", uid="u", status="rejected", why="test"
    )


def names(items: Sequence[FeedItem]) -> list[str]:
    """Of the objects among these items."""
    return [i.name.name for i in items if isinstance(i, ObjectChanged)]


def has(name: str) -> Callable[[Sequence[FeedItem]], bool]:
    """Is that object among them?"""
    return lambda items: name in names(items)
