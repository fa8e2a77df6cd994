"""What the kinds share whose objects hold the templates of their pods and one field that holds them back.

A kind says where its templates are (`roles`); starting merges into each of them, stopping puts each back as it was, in one write. Infos and pod sets are
matched with the roles by position.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator

import msgspec

from shared.api.field_errors import FieldError
from shared.jobs import merge_patch
from shared.jobs.manifest import JsonObject, section
from shared.jobs.places import Place, at, nested, put
from shared.jobs.podset_info import PermanentError, PodSetInfo, merged_template, restored_template
from shared.jobs.protocol import Circumstances, JobPodSet, KindDefaults, StopStep
from shared.jobs.topology_request import topology_request
from shared.jobs.topology_rules import TopologyAsked, pod_set_errors


class Role(msgspec.Struct, frozen=True, kw_only=True):
    """Pods of a job that are alike."""

    name: str
    count: int
    place: Place
    """Where their template stands."""
    field: str
    """The same place as people write it."""
    template: JsonObject | None = None
    """What they will really be like, where that is not what stands there."""
    index_label: str = ""
    subgroup_label: str = ""
    subgroup_count: int | None = None

    def pod_set(self, job: JsonObject) -> JobPodSet:
        """As a pod set. Raises PermanentError on topology annotations that cannot be read."""
        template = self.template if self.template is not None else at(job, self.place)
        return JobPodSet(
            name=self.name.lower(),
            count=self.count,
            template=template,
            topology_request=topology_request(
                template,
                index_label=self.index_label,
                subgroup_label=self.subgroup_label,
                subgroup_count=self.subgroup_count,
            ),
        )

    def topology_asked(self, job: JsonObject) -> TopologyAsked:
        """What its annotations ask for."""
        return TopologyAsked.of(at(job, self.place), self.count, f"{self.field}.metadata.annotations")


class TemplatedKind(KindDefaults, ABC):
    """See shared.jobs.protocol.JobKind."""

    kind: str
    suspend_path: tuple[str, ...] = ("spec", "suspend")
    grouped = False
    """Two pod sets may have to be near each other (`podset-group-name`)."""

    @abstractmethod
    def roles(self, job: JsonObject) -> tuple[Role, ...]:
        """Its pods by role, in the order of its pod sets. Raises PermanentError when they cannot be told."""

    def suspended(self, job: JsonObject) -> bool:
        return section(job, *self.suspend_path[:-1]).get(self.suspend_path[-1]) is True

    def suspend(self, job: JsonObject) -> JsonObject:
        return {} if self.suspended(job) else nested(self.suspend_path, True)

    def pod_sets(self, job: JsonObject) -> tuple[JobPodSet, ...]:
        return tuple(role.pod_set(job) for role in self.roles(job))

    def start(self, job: JsonObject, infos: tuple[PodSetInfo, ...]) -> JsonObject:
        roles = self.roles(job)
        if len(infos) != len(roles):
            raise PermanentError(
                f"invalid pod set infos: the {self.kind} has {len(roles)} pod sets, the workload {len(infos)}"
            )
        started = self.filled(job)
        for role, info in zip(roles, infos, strict=True):
            started = put(started, role.place, merged_template(at(started, role.place), info))
        return merge_patch.diff(job, put(started, self.suspend_path, False))

    def stop(self, job: JsonObject, restore: tuple[JobPodSet, ...]) -> StopStep | None:
        if self.suspended(job):
            return None
        stopped = put(job, self.suspend_path, True)
        roles = self.roles(job)
        if len(restore) == len(roles):
            for role, pod_set in zip(roles, restore, strict=True):
                stopped = put(stopped, role.place, restored_template(at(stopped, role.place), pod_set.template))
            stopped = self.emptied(stopped)
        return StopStep(patch=merge_patch.diff(job, stopped), stopped_now=True)

    def filled(self, job: JsonObject) -> JsonObject:
        """The job with the templates in it that its controller would make up itself."""
        return job

    def emptied(self, job: JsonObject) -> JsonObject:
        """The opposite of `filled`, for a job whose templates are what they were."""
        return job

    def errors(self, job: JsonObject, old: JsonObject | None, around: Circumstances) -> Iterator[FieldError]:
        yield from self.topology_errors(job, around)

    def topology_errors(self, job: JsonObject, around: Circumstances) -> Iterator[FieldError]:
        """Faults of the topology annotations of its templates."""
        try:
            roles = self.roles(job)
        except PermanentError:
            # Its pods cannot be told: the rule that this breaks has an error of its own.
            return
        asked = [role.topology_asked(job) for role in roles]
        yield from pod_set_errors(asked, around.gates, grouped=self.grouped)
