"""The log of what spends or frees quota: one batch a message, appended behind the last entry its author had folded (R4).

A decision is the command: the gateway patches from here, in log order. Its identity is (epoch, sequence of the batch in the stream, index in the
batch). What is not admitted is not here.
"""

from __future__ import annotations

import msgspec

from shared.events.codec import Codec
from shared.events.objects import PodSetAssignment


class Positions(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """How far its author had read: stream sequences, within one epoch."""

    epoch: int = 0
    objects: int = 0
    decisions: int = 0
    outcomes: int = 0


class DecisionId(msgspec.Struct, frozen=True, gc=False, array_like=True, order=True):
    """Where a decision stands: epoch, stream sequence of its batch, index in the batch."""

    epoch: int
    sequence: int
    index: int

    def __str__(self) -> str:
        return f"{self.epoch}/{self.sequence}/{self.index}"


class _Decision(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True, tag_field="t"):
    key: str
    """`namespace/name` of the workload."""
    uid: str
    incarnation: str
    """The gateway applies the decision only to this state of the workload (R2)."""
    domain: str = ""
    """The root of the cohort tree whose quota is meant (the ClusterQueue's own name without a cohort)."""
    trace: str = ""
    """W3C traceparent of the span that decided."""


class Admit(_Decision, frozen=True, gc=False, kw_only=True, omit_defaults=True, tag="decisions.Admit/1"):
    """Reserve quota; with no check left to pass, admit too."""

    cluster_queue: str
    pod_sets: tuple[PodSetAssignment, ...] = ()
    required_checks: tuple[str, ...] = ()
    """Admission checks that apply to the assigned flavors, sorted."""
    queued_since: int = 0
    """Seconds since the epoch; for the wait time in the event."""
    considered: str = ""
    """Flavors looked at, for the event."""
    replaces: str = ""
    """`namespace/name` of the older slice of an elastic job that is finished once this is written, and its uid."""
    replaced_uid: str = ""


class Preempt(_Decision, frozen=True, gc=False, kw_only=True, omit_defaults=True, tag="decisions.Preempt/1"):
    """Evict this workload for another one. An empty incarnation means whatever state its own Admit, which stands before it in the log, leaves."""

    reason: str
    """InClusterQueue, InCohortReclamation, InCohortFairSharing or InCohortReclaimWhileBorrowing; FlavorMigration for an eviction of that reason."""
    message: str
    preemptor: str
    """`namespace/name` of the workload that needs the quota."""
    preemptor_uid: str
    cluster_queue: str = ""
    preemptor_cluster_queue: str = ""
    priority: int = 0
    preemptor_priority: int = 0
    eviction: str = "Preempted"
    """Reason of the Evicted condition: Preempted, or FlavorMigration, which sets no Preempted condition."""


class SecondPass(_Decision, frozen=True, gc=False, kw_only=True, omit_defaults=True, tag="decisions.SecondPass/1"):
    """Complete the placement of a workload that already holds quota."""

    cluster_queue: str
    pod_sets: tuple[PodSetAssignment, ...] = ()


Decision = Admit | Preempt | SecondPass


class Batch(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True, tag_field="t", tag="decisions.Batch/1"
):
    """One or more exact single-head cycles, all-or-nothing in the log."""

    author: str
    positions: Positions
    decided_ns: int
    decisions: tuple[Decision, ...] = ()


class EpochOpened(
    msgspec.Struct,
    frozen=True,
    gc=False,
    kw_only=True,
    omit_defaults=True,
    tag_field="t",
    tag="decisions.EpochOpened/1",
):
    """First message of an epoch: all earlier decisions without an outcome are void. Nobody decides before these positions."""

    epoch: int
    shard: str
    positions: Positions
    opened_ns: int
    why: str = ""


Entry = Batch | EpochOpened
codec: Codec[Entry] = Codec("decisions", Entry)
