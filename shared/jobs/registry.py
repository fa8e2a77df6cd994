"""Which kinds of jobs there are: those that are integrated, and those whose names an owner chain may go through.

A kind is *known* when Kueue's API knows it (integrated here or not): the search for an ancestor looks past it. It is *integrated* when we can manage it.
"""

from collections.abc import Iterable
from typing import NamedTuple

from shared.jobs import plugins
from shared.jobs.app_wrapper import AppWrapper
from shared.jobs.batch_job import BatchJob
from shared.jobs.deployment import Deployment
from shared.jobs.jobset import JobSet
from shared.jobs.leader_worker_set import LeaderWorkerSet
from shared.jobs.pod import PlainPod
from shared.jobs.protocol import JobKind
from shared.jobs.queueing_parent import GroupedParent, QueueingParent
from shared.jobs.ray_cluster import RayCluster
from shared.jobs.ray_job import RayJob, RayService
from shared.jobs.spark_application import SparkApplication
from shared.jobs.stateful_set import StatefulSet
from shared.jobs.train_job import TrainJob
from shared.jobs.training_job import JAX_JOB, MPI_JOB, PADDLE_JOB, PYTORCH_JOB, TF_JOB, XGBOOST_JOB


class OwnerKind(NamedTuple):
    """As owner references name a kind."""

    api_version: str
    kind: str


BUILT_IN: tuple[JobKind, ...] = (
    BatchJob(),
    JobSet(),
    TF_JOB,
    PYTORCH_JOB,
    XGBOOST_JOB,
    PADDLE_JOB,
    JAX_JOB,
    MPI_JOB,
    RayJob(),
    RayCluster(),
    RayService(),
    PlainPod(),
    TrainJob(),
    AppWrapper(),
    SparkApplication(),
)
INTEGRATED: tuple[JobKind, ...] = (*BUILT_IN, *plugins.found(BUILT_IN))
"""With the kinds that other packages bring."""

GROUPED: tuple[GroupedParent, ...] = (StatefulSet(), LeaderWorkerSet())
"""Of the kinds below, those whose pods queue in groups."""
PARENTS: tuple[QueueingParent, ...] = (Deployment(), *GROUPED)
"""Kinds that are not held back themselves: their pods queue."""

_ELSEWHERE: dict[OwnerKind, str] = {
    OwnerKind("apps/v1", "ReplicaSet"): "replicasets",
}


def external(frameworks: Iterable[str]) -> frozenset[OwnerKind]:
    """Kinds that other managers integrate, which a configuration names as `Kind.version.group`."""
    parts = (name.split(".", 2) for name in frameworks)
    return frozenset(OwnerKind(f"{group}/{version}", kind) for kind, version, group in parts)


def owner_kind(kind: JobKind | QueueingParent) -> OwnerKind:
    """How owner references name an integrated kind."""
    return OwnerKind(f"{kind.group}/{kind.version}" if kind.group else kind.version, kind.kind)


_ALL: tuple[JobKind | QueueingParent, ...] = (*INTEGRATED, *PARENTS)

KNOWN: dict[OwnerKind, str] = {owner_kind(kind): kind.plural for kind in _ALL} | _ELSEWHERE
"""Kinds an owner chain may go through, and the plural to read them by."""


def token_of(group: str, kind: str) -> str:
    """One lower-case word for a kind of job, whatever its version: `job` for one of Kubernetes' own, `jobset.jobset.x-k8s.io` for any other."""
    return f"{kind}.{group}".lower() if "." in group else kind.lower()


def review_path(kind: JobKind | QueueingParent, verb: str) -> str:
    """Where the API server sends admission reviews of a kind of job; `verb`: mutate or validate."""
    return f"/{verb}-{kind.group.replace('.', '-')}-{kind.version}-{kind.kind.lower()}"


def integrated(frameworks: Iterable[str]) -> dict[OwnerKind, JobKind]:
    """The integrations that a configuration enables. Raises KeyError naming a framework that is not there."""
    by_name = {kind.framework: kind for kind in INTEGRATED}
    chosen = [by_name[name] for name in frameworks]
    return {owner_kind(kind): kind for kind in chosen}


def grouped(frameworks: Iterable[str]) -> tuple[GroupedParent, ...]:
    """Of the kinds whose pods queue in groups those that a configuration enables."""
    chosen = frozenset(frameworks)
    return tuple(kind for kind in GROUPED if kind.framework in chosen)


def job_kind(api_version: str, kind: str) -> JobKind | None:
    """The integration of a kind, whether enabled or not."""
    return next((k for k in INTEGRATED if owner_kind(k) == (api_version, kind)), None)


def queueing_parent(api_version: str, kind: str) -> QueueingParent | None:
    """The integration of a kind whose pods queue, whether enabled or not."""
    return next((k for k in PARENTS if owner_kind(k) == (api_version, kind)), None)


def enabled_owners(frameworks: Iterable[str]) -> frozenset[OwnerKind]:
    """The kinds that a configuration lets manage what they own."""
    chosen = frozenset(frameworks)
    return frozenset(owner_kind(kind) for kind in _ALL if kind.framework in chosen)
