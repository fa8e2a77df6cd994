"""What an integration tells about one kind of job: the one Protocol behind which every kind stands.

All methods are pure functions of the job as the API server sent it. They return values or merge patches; reading, writing and the order of steps
are the gateway's. To add a kind: one file with one class, one line in `registry`.
"""

from typing import Protocol

import msgspec

from shared.jobs.manifest import JsonObject
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


class JobKind(Protocol):
    """One kind of job."""

    group: str
    version: str
    kind: str
    plural: str
    framework: str
    """Name in the configuration, e.g. `batch/job`."""

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
        """The one patch that injects `infos` and lets the job run. Raises PermanentError."""
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


__all__ = ["Finished", "JobKind", "JobPodSet", "JsonObject", "PermanentError", "PodSetInfo", "StopStep"]
