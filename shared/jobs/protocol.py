"""What an integration tells about one kind of job: the one Protocol behind which every kind stands.

All methods are pure functions of the job as the API server sent it. They return values or merge patches; reading, writing and the order of steps
are the gateway's. To add a kind: one file with one class, one line in `registry`. What most kinds have in common they inherit: `KindDefaults`, and
`templated_kind.TemplatedKind` for those whose pod templates stand in the object.
"""

from collections.abc import Iterator
from typing import Protocol

import msgspec

from shared.api import names
from shared.api.field_errors import FieldError
from shared.jobs.manifest import JsonObject, number, text
from shared.jobs.podset_info import PermanentError, PodSetInfo


class JobPodSet(msgspec.Struct, frozen=True, kw_only=True):
    """Pods of a job that are alike, with their complete template."""

    name: str
    count: int
    min_count: int | None = None
    template: JsonObject
    topology_request: JsonObject | None = None

    def manifest(self) -> JsonObject:
        """As an entry of a Workload's `spec.podSets`."""
        result: JsonObject = {"name": self.name, "count": self.count, "template": self.template}
        if self.min_count is not None:
            result["minCount"] = self.min_count
        if self.topology_request is not None:
            result["topologyRequest"] = self.topology_request
        return result


class Finished(msgspec.Struct, frozen=True):
    """How a job ended."""

    success: bool
    message: str


class StopStep(msgspec.Struct, frozen=True, kw_only=True):
    """The next write of a stop: a merge patch of the job, or of its status subresource. Doing it twice is harmless."""

    patch: JsonObject
    status: bool = False
    stopped_now: bool = False
    """This is the write that stops the job; it is the one to tell people of."""


class Reference(msgspec.Struct, frozen=True):
    """An object that a job depends on, in the job's namespace if its kind has any."""

    group: str
    version: str
    kind: str
    plural: str
    name: str
    namespaced: bool = True


class ManagedBy(msgspec.Struct, frozen=True):
    """The field with the controller that runs the job, and the value that stands for the kind's own one."""

    path: tuple[str, ...]
    own: str


class Gates(Protocol):
    """The feature gates by name."""

    def __getitem__(self, name: str, /) -> bool: ...


class Circumstances(msgspec.Struct, frozen=True, kw_only=True):
    """What the rules for an object depend on besides the object."""

    gates: Gates
    manage_all: bool = False
    """Jobs without a queue are managed too (`manageJobsWithoutQueueName`)."""
    managed: bool = True
    """The object would be held back if it were created now (specification 4.3)."""
    default_queue: bool = False
    """Its namespace has a LocalQueue named `default`."""
    unreleased: bool = False
    """A workload for its pods holds quota that it has not given back yet."""

    def manages(self, job: JsonObject) -> bool:
        """By the flag or by the job's queue, whatever its ancestors are."""
        return self.manage_all or bool(text(job, "metadata", "labels", names.QUEUE_NAME_LABEL))


class KindDefaults:
    """What a kind need not say when it is like most of them. See JobKind for what each part means."""

    managed_by: ManagedBy | None = None
    prebuilt = True
    may_be_elastic = False
    rechecked = True
    checked_if_queued = False

    def held(self, job: JsonObject) -> bool | None:
        return None

    def reclaimable(self, job: JsonObject) -> dict[str, int]:
        return {}

    def priority_class(self, job: JsonObject) -> str | None:
        return None

    def skip(self, job: JsonObject, gates: Gates) -> bool:
        return False

    def on_hold(self, job: JsonObject) -> bool:
        return False

    def refers_to(self, job: JsonObject) -> tuple[Reference, ...]:
        return ()

    def own_annotations(self, job: JsonObject) -> dict[str, str]:
        return {}

    def slice_part(self, job: JsonObject) -> str:
        return str(number(job, "metadata", "generation", default=0))

    def prepared(self, job: JsonObject, gates: Gates) -> JsonObject:
        return job

    def unchecked(self, job: JsonObject) -> bool:
        return False

    def errors(self, job: JsonObject, old: JsonObject | None, around: Circumstances) -> Iterator[FieldError]:
        return iter(())


class JobKind(Protocol):
    """One kind of job."""

    group: str
    version: str
    kind: str
    plural: str
    framework: str
    """Name in the configuration, e.g. `batch/job`."""
    prebuilt: bool
    """May name a Workload that somebody else made."""
    may_be_elastic: bool
    """May change its number of pods while it runs, by workload slices."""
    rechecked: bool
    """The rules of a creation hold for a change too (specification 11.2)."""
    checked_if_queued: bool
    """Changes of jobs that have, and had, no queue are not looked at, unless all jobs are managed."""

    @property
    def managed_by(self) -> ManagedBy | None:
        """Where a job says which cluster's controller runs it; None if it cannot."""
        ...

    def suspended(self, job: JsonObject) -> bool:
        """Held back, and not on its way to be: no step of a stop is left to do."""
        ...

    def suspend(self, job: JsonObject) -> JsonObject:
        """The patch that only holds the job back; templates stay as they are. Empty when it is held back already."""
        ...

    def pod_sets(self, job: JsonObject) -> tuple[JobPodSet, ...]:
        """The pods that it will have, names in lower case. Raises PermanentError when they cannot be told."""
        ...

    def start(self, job: JsonObject, infos: tuple[PodSetInfo, ...]) -> JsonObject:
        """The patch that injects `infos` and lets the job run. Raises PermanentError. A kind whose pods may not change in the write that lets them run
        takes two: after the first the job is still suspended, and what `start` says then is the second."""
        ...

    def stop(self, job: JsonObject, restore: tuple[JobPodSet, ...]) -> StopStep | None:
        """The next write of a stop, None when the job is stopped. `restore`: the pod sets to put back exactly; if their number is not that of
        the job's (or there are none), templates stay as they are."""
        ...

    def finished(self, job: JsonObject) -> Finished | None:
        """How it ended, None while it has not."""
        ...

    def active(self, job: JsonObject) -> bool:
        """Still has running pods: its quota is in use."""
        ...

    def held(self, job: JsonObject) -> bool | None:
        """Its own controller has noticed that it is held back; None if its status does not tell."""
        ...

    def pods_ready(self, job: JsonObject) -> bool:
        """Enough of its pods are ready or have succeeded."""
        ...

    def reclaimable(self, job: JsonObject) -> dict[str, int]:
        """Pods by pod set whose quota will not be needed again; empty if there are none."""
        ...

    def priority_class(self, job: JsonObject) -> str | None:
        """A PriorityClass that the kind itself names (an empty text counts), None if the pod templates decide."""
        ...

    def skip(self, job: JsonObject, gates: Gates) -> bool:
        """To be left alone altogether."""
        ...

    def on_hold(self, job: JsonObject) -> bool:
        """Cannot run as it is, and must hold no quota until it is mended."""
        ...

    def refers_to(self, job: JsonObject) -> tuple[Reference, ...]:
        """Objects without which its pods cannot be told. Whoever calls reads them and hands in the job `referred.with_referred` has made."""
        ...

    def own_annotations(self, job: JsonObject) -> dict[str, str]:
        """Annotations that have to be on the job before its slices are looked at."""
        ...

    def slice_part(self, job: JsonObject) -> str:
        """What tells the slices of an elastic job apart in the names of their Workloads."""
        ...

    def prepared(self, job: JsonObject, gates: Gates) -> JsonObject:
        """The job that is being created, with what the kind itself needs (the steps after the common ones of specification 5)."""
        ...

    def unchecked(self, job: JsonObject) -> bool:
        """Is none of our business, so that no rule holds for it."""
        ...

    def errors(self, job: JsonObject, old: JsonObject | None, around: Circumstances) -> Iterator[FieldError]:
        """Faults by the kind's own rules of a job that is created, or changed from `old`."""
        ...


__all__ = [
    "Circumstances",
    "Finished",
    "Gates",
    "JobKind",
    "JobPodSet",
    "JsonObject",
    "KindDefaults",
    "ManagedBy",
    "PermanentError",
    "PodSetInfo",
    "Reference",
    "StopStep",
]
