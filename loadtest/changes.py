"""What a write changed about a Workload, told from two states of it that followed each other.

An audit log says who wrote what how often, but not what for; a watch shows every state once and in order. Together they tell a controller's writes apart
by purpose, whichever controller it is. Pure.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from shared.api import names

Purpose = Literal["creation", "admission", "eviction", "release", "requeue", "finish", "pending", "other"]
"""`admission`: quota reserved or admitted; `release`: the reservation taken back; `requeue`: the Requeued condition; `pending`: why it waits."""


class SeenCondition(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """A condition as the API server sent it, complete, so that it can be written back."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: str = ""
    observed_generation: int = 0


class Flags(msgspec.Struct, frozen=True, gc=False):
    """The part of a Workload's state that purposes are told by; a condition is None where there is none."""

    reserved: bool | None = None
    admitted: bool | None = None
    evicted: bool | None = None
    requeued: bool | None = None
    finished: bool | None = None


_FIELDS = {
    names.QUOTA_RESERVED: "reserved",
    names.ADMITTED: "admitted",
    names.EVICTED: "evicted",
    names.REQUEUED: "requeued",
    names.FINISHED: "finished",
}


def flags_of(conditions: tuple[SeenCondition, ...]) -> Flags:
    """The flags of a state."""
    known = {_FIELDS[c.type]: c.status == "True" for c in conditions if c.type in _FIELDS}
    return Flags(**known)


def purpose_of(before: Flags | None, after: Flags) -> Purpose:
    """What the change from one state to the next was for; `before` is None when the object is new. What ends something goes before what begins it:
    an admission takes the marks of an eviction away in the same write."""
    if before is None:
        return "creation"
    if after.finished and not before.finished:
        return "finish"
    if after.evicted and not before.evicted:
        return "eviction"
    if (after.reserved and not before.reserved) or (after.admitted and not before.admitted):
        return "admission"
    if before.reserved and not after.reserved:
        return "release"
    if after.requeued is not before.requeued:
        return "requeue"
    return "other" if after.reserved else "pending"
