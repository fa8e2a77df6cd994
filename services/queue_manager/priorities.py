"""The value of a WorkloadPriorityClass follows into the workloads that name it (core spec 1.12). Pure."""

from __future__ import annotations

from shared.api import names
from shared.events.commands import SetPriority
from shared.events.objects import Workload, WorkloadPriorityClass


def priority_change(workload: Workload, class_: WorkloadPriorityClass | None) -> SetPriority | None:
    """The new priority, also of a running workload; None if it has it, or if the class is unknown."""
    if class_ is None or workload.finished or workload.deleting or class_.value == workload.priority:
        return None
    if names_class(workload) != class_.name:
        return None
    return SetPriority(
        id="",
        kind="workload",
        namespace=workload.namespace,
        name=workload.name,
        uid=workload.uid,
        version=workload.version,
        priority=class_.value,
    )


def names_class(workload: Workload) -> str:
    """The WorkloadPriorityClass that the workload takes its priority from; empty if none."""
    return workload.priority_class if workload.priority_class_source == names.WORKLOAD_PRIORITY_CLASS else ""
