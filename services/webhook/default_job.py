"""Defaulting of a job on creation, whatever its kind (integration specification 5): queue, priority class, suspension, manager."""

from __future__ import annotations

import msgspec

from services.webhook.admission_review import PatchOperation, pointer
from shared.api import names
from shared.api.meta import ObjectMeta
from shared.jobs.capabilities import managed_by
from shared.jobs.manifest import JsonObject, section, text, texts
from shared.jobs.protocol import JobKind
from shared.jobs.queue_membership import should_suspend

DEFAULT_NAME = "default"


class Surroundings(msgspec.Struct, frozen=True):
    """What the decision needs to know besides the Job."""

    default_queue: bool
    """The namespace has a LocalQueue named `default`."""
    default_priority_class: bool
    """There is a WorkloadPriorityClass named `default`."""
    owner_managed: bool
    """Its direct controller is of a kind that is integrated: what that one says holds for this Job too."""
    ancestor: bool
    """A managed ancestor decides about it."""
    manage_all: bool
    namespace_matches: bool
    dispatched: bool = False
    """Jobs of the queue it will have are sent to other clusters."""

    def queue(self, labels: dict[str, str]) -> str:
        """The LocalQueue that a Job with these labels will have; empty: none."""
        defaulted = self.default_queue and not self.owner_managed and self.namespace_matches
        return labels.get(names.QUEUE_NAME_LABEL, DEFAULT_NAME if defaulted else "")


def defaults(kind: JobKind, job: JsonObject, meta: ObjectMeta, around: Surroundings) -> tuple[PatchOperation, ...]:
    """The changes, none for a Job that is left alone."""
    labels = texts(job, "metadata", "labels")
    added: dict[str, str] = {}
    if names.QUEUE_NAME_LABEL not in labels and (queue := around.queue(labels)):
        added[names.QUEUE_NAME_LABEL] = queue
    if around.default_priority_class and names.PRIORITY_CLASS_LABEL not in labels and not around.owner_managed:
        added[names.PRIORITY_CLASS_LABEL] = DEFAULT_NAME
    operations: list[PatchOperation] = []
    if added and not section(job, "metadata", "labels"):
        operations.append(PatchOperation("add", pointer("metadata", "labels"), added))
    else:
        operations += [PatchOperation("add", pointer("metadata", "labels", k), v) for k, v in added.items()]
    suspend = meta.deletion_timestamp is None and should_suspend(
        labels | added,
        ancestor=around.ancestor,
        manage_all=around.manage_all,
        namespace_matches=around.namespace_matches,
    )
    if suspend and not kind.suspended(job):
        operations += _operations(job, kind.suspend(job))
    manager = managed_by(kind)
    if around.dispatched and manager is not None and text(job, *manager[0]) in ("", manager[1]):
        *above, field = manager[0]
        patch: JsonObject = {field: names.MULTIKUEUE_CONTROLLER}
        for key in reversed(above):
            patch = {key: patch}
        operations += _operations(job, patch)
    return tuple(operations)


def _operations(present: JsonObject, patch: JsonObject, *at: str) -> list[PatchOperation]:
    """A merge patch as the steps of a JSON patch of `present`, which is at path `at`."""
    operations: list[PatchOperation] = []
    for key, value in patch.items():
        inner = present.get(key)
        if value is None:
            if key in present:
                operations.append(PatchOperation("remove", pointer(*at, key), None))
        elif isinstance(value, dict) and isinstance(inner, dict):
            operations += _operations(inner, value, *at, key)
        else:
            operations.append(PatchOperation("add", pointer(*at, key), value))
    return operations
