"""Defaulting of a job on creation, whatever its kind (integration specification 5): queue, priority class, suspension, manager."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from services.webhook.admission_review import PatchOperation, pointer
from shared.api import names
from shared.api.meta import ObjectMeta
from shared.jobs import merge_patch
from shared.jobs.manifest import JsonObject, text, texts
from shared.jobs.places import nested
from shared.jobs.protocol import Gates, JobKind
from shared.jobs.queue_membership import should_suspend
from shared.jobs.queueing_parent import QueueingParent

DEFAULT_NAME = "default"
NOTHING_ADDED: Mapping[str, str] = {}


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


def defaults(
    kind: JobKind, job: JsonObject, meta: ObjectMeta, around: Surroundings, gates: Gates
) -> tuple[PatchOperation, ...]:
    """The changes, none for a job that is left alone."""
    changed, suspend = _with_labels(job, meta, around)
    if suspend and not kind.suspended(changed):
        changed = merge_patch.apply(changed, kind.suspend(changed))
    manager = kind.managed_by
    if around.dispatched and manager is not None and text(changed, *manager.path) in ("", manager.own):
        changed = merge_patch.apply(changed, nested(manager.path, names.MULTIKUEUE_CONTROLLER))
    return operations(job, kind.prepared(changed, gates))


def parent_defaults(
    kind: QueueingParent, parent: JsonObject, meta: ObjectMeta, around: Surroundings, gates: Gates
) -> tuple[PatchOperation, ...]:
    """The changes of an object whose pods queue: a managed one is marked, none is held back."""
    changed, managed = _with_labels(parent, meta, around)
    return operations(parent, kind.marked(changed, gates) if managed and not kind.foreign(parent) else changed)


def _with_labels(job: JsonObject, meta: ObjectMeta, around: Surroundings) -> tuple[JsonObject, bool]:
    """(with the default labels, whether it has to be held back)."""
    labels = texts(job, "metadata", "labels")
    added: dict[str, str] = {}
    if names.QUEUE_NAME_LABEL not in labels and (queue := around.queue(labels)):
        added[names.QUEUE_NAME_LABEL] = queue
    if around.default_priority_class and names.PRIORITY_CLASS_LABEL not in labels and not around.owner_managed:
        added[names.PRIORITY_CLASS_LABEL] = DEFAULT_NAME
    changed = merge_patch.apply(job, {"metadata": {"labels": dict(added)}}) if added else job
    return changed, must_queue(meta, around, added)


def must_queue(meta: ObjectMeta, around: Surroundings, added: Mapping[str, str] = NOTHING_ADDED) -> bool:
    """Whether an object is managed for itself (4.3). `added`: labels that it gets besides."""
    return meta.deletion_timestamp is None and should_suspend(
        {**meta.labels, **added},
        ancestor=around.ancestor,
        manage_all=around.manage_all,
        namespace_matches=around.namespace_matches,
    )


def operations(before: JsonObject, after: JsonObject) -> tuple[PatchOperation, ...]:
    """The steps of a JSON patch from one manifest to the other."""
    return tuple(_steps(before, merge_patch.diff(before, after)))


def _steps(present: JsonObject, patch: JsonObject, *at: str) -> Iterator[PatchOperation]:
    for key, value in patch.items():
        inner = present.get(key)
        if value is None:
            yield PatchOperation("remove", pointer(*at, key), None)
        elif isinstance(value, dict) and isinstance(inner, dict):
            yield from _steps(inner, value, *at, key)
        else:
            yield PatchOperation("add", pointer(*at, key), value)
