"""Short questions about a stored Workload that several parts of the gateway ask."""

import msgspec

from services.watcher.store import Store, Stored
from shared.api import conditions, names
from shared.api.conditions import Condition
from shared.api.workload import Workload
from shared.api.workload_status import WorkloadStatus


def workload_of(stored: Stored) -> Workload:
    """The Struct of a stored workload. Raises TypeError for another kind."""
    if not isinstance(stored.object, Workload):
        raise TypeError(f"{stored.kind} {stored.key} is no workload")
    return stored.object


def get_workload(store: Store, namespace: str, name: str) -> Workload | None:
    """The newest known state."""
    stored = store.get("workload", namespace, name)
    return None if stored is None else workload_of(stored)


def condition(workload: Workload, type_: str) -> Condition | None:
    """One condition, if it is there."""
    return conditions.find(workload.status.conditions, type_)


def with_condition(status: WorkloadStatus, wanted: Condition | None) -> WorkloadStatus:
    """The status with this condition in the place of the one of its type; as it is without any."""
    if wanted is None:
        return status
    return msgspec.structs.replace(status, conditions=conditions.set_condition(status.conditions, wanted))


def is_reserved(workload: Workload) -> bool:
    return conditions.is_true(workload.status.conditions, names.QUOTA_RESERVED)


def is_admitted(workload: Workload) -> bool:
    return conditions.is_true(workload.status.conditions, names.ADMITTED)


def is_evicted(workload: Workload) -> bool:
    return conditions.is_true(workload.status.conditions, names.EVICTED)


def is_finished(workload: Workload) -> bool:
    return conditions.is_true(workload.status.conditions, names.FINISHED)


def job_uid(workload: Workload) -> str:
    """UID of the job that the workload stands for; its own without one. It names the trace."""
    owner = workload.metadata.controller_owner()
    return owner.uid if owner is not None else workload.metadata.uid


def split_key(key: str) -> tuple[str, str]:
    """(namespace, name) of `namespace/name`; the namespace is empty in a bare name."""
    namespace, _, name = key.rpartition("/")
    return namespace, name
