"""The priority of a job's workload, from the classes that the job, its kind, its pods or the cluster name (job specification 7.4)."""

from collections.abc import Iterable

from services.watcher.build_workload import Priority
from services.watcher.core_kinds import PriorityClass
from services.watcher.store import Store
from shared.api import names
from shared.api.workload_priority_class import WorkloadPriorityClass
from shared.jobs.manifest import JsonObject, text
from shared.jobs.protocol import JobKind, JobPodSet, KindDefaults


class MissingPriorityClass(LookupError):
    """A class that is named does not exist. There is no fallback: the job would run with a priority nobody chose."""

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(f"{kind} {name!r} does not exist")
        self.kind = kind
        self.name = name


def resolve(store: Store, kind: JobKind | KindDefaults, job: JsonObject, pod_sets: Iterable[JobPodSet]) -> Priority:
    """The priority and where it comes from. Raises MissingPriorityClass."""
    label = text(job, "metadata", "labels", names.PRIORITY_CLASS_LABEL)
    if label:
        return workload_class(store, label)
    name = kind.priority_class(job)
    if name is None:
        classes = (text(pod_set.template, "spec", "priorityClassName") for pod_set in pod_sets)
        name = next((found for found in classes if found), "")
    if name:
        stored = store.get("priorityclass", "", name)
        if stored is None or not isinstance(stored.object, PriorityClass):
            raise MissingPriorityClass(names.PRIORITY_CLASS, name)
        return _core(stored.object)
    defaults = [
        stored.object
        for stored in store.of_kind("priorityclass")
        if isinstance(stored.object, PriorityClass) and stored.object.global_default
    ]
    if defaults:
        return _core(min(defaults, key=lambda found: (found.value, found.metadata.name)))
    return Priority()


def workload_class(store: Store, name: str) -> Priority:
    """The priority that a WorkloadPriorityClass stands for. Raises MissingPriorityClass."""
    stored = store.get("workloadpriorityclass", "", name)
    if stored is None or not isinstance(stored.object, WorkloadPriorityClass):
        raise MissingPriorityClass(names.WORKLOAD_PRIORITY_CLASS, name)
    return Priority(stored.object.value, names.GROUP, names.WORKLOAD_PRIORITY_CLASS, name)


def _core(found: PriorityClass) -> Priority:
    return Priority(found.value, names.SCHEDULING_GROUP, names.PRIORITY_CLASS, found.metadata.name)
