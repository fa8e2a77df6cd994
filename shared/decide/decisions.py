"""What cycles decide: admissions, preemptions, refusals, and batches of them (values only).

Why it exists: whoever appends decisions to the log, reports refusals, simulates or tests needs these without the cycle.
"""

from __future__ import annotations

import msgspec

from shared.decide import reasons
from shared.model.pending import RequeueReason, ScanProgress
from shared.model.pending_queue import Preemptor
from shared.model.refusal import Refusal
from shared.model.workload import Admission, WorkloadInfo


class Admit(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Reserve quota for a workload."""

    key: str
    uid: str
    incarnation: str
    cluster_queue: str
    domain: str
    """Root of the cohort tree, or the ClusterQueue itself."""
    admission: Admission
    required_checks: tuple[str, ...]
    """Checks that apply to the assigned flavors, sorted; empty = admitted at once."""
    queued_since: int
    considered: str
    replaces: str = ""
    """Key of the older slice of an elastic job that this workload replaces, and its uid."""
    replaced_uid: str = ""


class Preempt(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Evict a workload so that another one can have its quota."""

    key: str
    uid: str
    incarnation: str
    """Empty: the state that its own, not yet settled Admit leaves."""
    cluster_queue: str
    domain: str
    eviction: str = "Preempted"
    """Reason of the Evicted condition: Preempted, or FlavorMigration (concurrent admission)."""
    reason: str
    """Reason of the Preempted condition, or FlavorMigration."""
    message: str
    preemptor: str
    preemptor_uid: str
    preemptor_cluster_queue: str
    priority: int
    preemptor_priority: int
    preemptor_path: str
    preemptee_path: str
    already_evicted: bool = False
    """It is on its way out already: nothing to write."""


class NotAdmitted(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A head that was looked at and stays pending."""

    key: str
    uid: str
    incarnation: str
    version: int
    cluster_queue: str
    refusal: Refusal
    requeue: RequeueReason
    requests: dict[str, dict[str, int]]
    """status.resourceRequests: pod set -> resource -> total."""
    gated: bool = False
    """It would have to preempt but a gate is closed: BlockedOnPreemptionGates."""

    words: str = ""
    """Of one that was not looked at itself, instead of those of the refusal."""

    @property
    def message(self) -> str:
        """The refusal in words. Most refusals of a batch are replaced by later ones before anybody reads them."""
        return self.words or reasons.message(self.refusal)


Decision = Admit | Preempt


class Batch(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The outcome of a sequence of cycles."""

    decisions: tuple[Decision, ...] = ()
    """All that spends or frees quota, in the order it must stand in the log."""
    awaited: tuple[Preempt, ...] = ()
    """Chosen victims that are on their way out already."""
    refused: tuple[NotAdmitted, ...] = ()
    """The last refusal of each head that was looked at and not admitted later in the batch."""
    cycles: int = 0
    more: bool = False
    """It stopped on a limit: another batch has something to look at."""
    blocked: bool = False
    """Admissions wait until the pods of admitted workloads are ready."""
    skipped_preemptions: dict[str, int] = {}
    """ClusterQueue -> heads that could preempt but lost victims or quota to others of their cycle."""
    recomputations: dict[tuple[str, str], int] = {}
    """(ClusterQueue, new_targets | deferred_fit | skipped) -> searches repeated as victims overlapped."""
    progress_before: dict[str, ScanProgress | None] = {}
    """Scan progress of each head before the batch, for `rollback`."""
    preemptors_before: dict[str, Preemptor | None] = {}
    """Who waited for victims in each ClusterQueue before the batch, for `rollback`."""

    @property
    def admits(self) -> tuple[Admit, ...]:
        return tuple(decision for decision in self.decisions if isinstance(decision, Admit))

    @property
    def preempts(self) -> tuple[Preempt, ...]:
        return tuple(decision for decision in self.decisions if isinstance(decision, Preempt))


def queued_since(info: WorkloadInfo) -> int:
    """Since when the workload has been waiting: its last requeue, or its creation."""
    requeued = info.condition("Requeued")
    return requeued.changed if requeued is not None else info.created
