"""Kubernetes objects of a file, as `kubectl get -o yaml` or a manifest has them, into what the engine folds.

They are read, and Jobs that have no Workload yet are turned into one, by the functions that do so in a cluster. Nothing is contacted. What a file
leaves out and a cluster would add (uids, versions, the namespace `default`) is made up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import yaml

from services.watcher.build_workload import build_workload
from services.watcher.core_kinds import Job
from services.watcher.kinds import KINDS, MalformedObject, WatchedKind
from services.watcher.priorities import MissingPriorityClass, resolve
from services.watcher.projections import project
from services.watcher.store import Store
from shared.events.objects import Namespace, Object, Workload
from shared.jobs.podset_info import PermanentError
from shared.jobs.queue_membership import queue_name
from shared.jobs.registry import job_kind

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_BY_KIND = {kind.resource.kind: kind for kind in KINDS.values()}


class Dump(msgspec.Struct):
    """The objects of a file that the engine knows, and what could not be read."""

    objects: list[Object] = []
    problems: list[str] = []


def read_dump(text: str) -> Dump:
    """The objects of a YAML or JSON text: documents, lists, or both. Raises yaml.YAMLError.

    A later object of the same name replaces an earlier one. Namespaces that the text names but does not hold are taken to exist, without labels.
    """
    return _Reader().read(text)


class _Reader:
    def __init__(self) -> None:
        self.store = Store()
        self.problems: list[str] = []
        self._nameless = 0
        self._version = 0

    def read(self, text: str) -> Dump:
        for raw in _items(yaml.load_all(text, Loader=_LOADER)):
            self._keep(raw)
        for stored in self.store.of_kind("job"):
            if isinstance(stored.object, Job):
                self._job(stored.object, stored.raw)
        objects = list(self._projections())
        known = {one.name for one in objects if isinstance(one, Namespace)}
        named = {one.namespace for one in objects if isinstance(one, Workload)}
        objects.extend(Namespace(name=name, uid=name, version=1) for name in sorted(named - known))
        return Dump(objects, self.problems)

    def _keep(self, raw: dict[str, Any]) -> None:
        kind = _BY_KIND.get(str(raw.get("kind", "")))
        if kind is None or not self._is_ours(raw, kind):
            return
        metadata = raw["metadata"] = dict(raw.get("metadata") or {})
        if not metadata.get("name") and metadata.get("generateName"):
            self._nameless += 1
            metadata["name"] = f"{metadata['generateName']}{self._nameless}"
        if kind.resource.namespaced:
            metadata["namespace"] = metadata.get("namespace") or "default"
        name = _name(raw)
        metadata.setdefault("uid", name)
        # In the order of the file, so that what is appended to a dump replaces what the dump has.
        self._version += 1
        metadata["resourceVersion"] = str(self._version)
        metadata.setdefault("generation", 1)
        try:
            self.store.upsert(kind.token, msgspec.json.encode(raw))
        except (MalformedObject, TypeError) as error:
            self.problems.append(f"{name}: {error}")

    def _is_ours(self, raw: dict[str, Any], kind: WatchedKind) -> bool:
        version = str(raw.get("apiVersion", kind.resource.api_version))
        if version == kind.resource.api_version:
            return True
        if version.rpartition("/")[0] == kind.resource.group:
            self.problems.append(f"{_name(raw)}: {version} is not read, only {kind.resource.api_version}")
        return False

    def _job(self, job: Job, raw: bytes) -> None:
        """A Job that asks for a queue and has no Workload yet gets the one it would get."""
        kind = job_kind("batch/v1", "Job")
        metadata = job.metadata
        if (
            kind is None
            or job.is_finished
            or not queue_name(metadata.labels)
            or metadata.controller_owner() is not None
        ):
            return
        if self.store.owned_by("workload", metadata.uid):
            return
        manifest = msgspec.json.decode(raw, type=dict[str, object])
        try:
            priority = resolve(self.store, kind, manifest, kind.pod_sets(manifest))
            built: dict[str, Any] = build_workload(kind, manifest, priority)
        except (PermanentError, MissingPriorityClass, msgspec.ValidationError) as error:
            self.problems.append(f"Job {metadata.namespace}/{metadata.name}: {error}")
            return
        if metadata.creation_timestamp is not None:
            built["metadata"]["creationTimestamp"] = metadata.creation_timestamp
        self._keep(built)

    def _projections(self) -> Iterator[Object]:
        for token, kind in KINDS.items():
            if not kind.on_bus:
                continue
            for stored in self.store.of_kind(token):
                try:
                    found = project(stored)
                except ValueError as error:
                    self.problems.append(f"{kind.resource.kind} {stored.key}: {error}")
                    continue
                if found is not None:
                    yield found


def _name(raw: dict[str, Any]) -> str:
    metadata = raw.get("metadata") or {}
    parts = (metadata.get("namespace"), metadata.get("name"))
    return f"{raw.get('kind')} {'/'.join(str(part) for part in parts if part)}"


def _items(documents: Iterable[Any]) -> Iterator[dict[str, Any]]:
    for document in documents:
        if isinstance(document, list):
            yield from _items(document)
        elif isinstance(document, dict) and isinstance(document.get("items"), list):
            yield from _items(document["items"])
        elif isinstance(document, dict):
            yield document
