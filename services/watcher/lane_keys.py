"""Which lane an object belongs to: that of its job, so that a job and its Workloads are never written at the same time."""

from services.watcher.lanes import LaneKey
from services.watcher.store import Store
from shared.api import names
from shared.api.meta import ObjectMeta, OwnerReference
from shared.jobs.pod_view import group_name
from shared.jobs.registry import token_of

POD_GROUP = "podgroup"


def pod_lane(metadata: ObjectMeta) -> LaneKey:
    """The lane of a pod: its group's, or its own."""
    group = group_name(metadata)
    return LaneKey(POD_GROUP if group else "pod", metadata.namespace, group or metadata.name)


def owner_lane(owner: OwnerReference, namespace: str) -> LaneKey:
    """The lane of a job, as an owner reference names it, and its Workloads."""
    group, _, _ = owner.api_version.rpartition("/")
    return LaneKey(token_of(group, owner.kind), namespace, owner.name)


def workload_lane(metadata: ObjectMeta) -> LaneKey:
    """The lane of a workload: its job's, or its own if it has none. The workload of a group of pods has the group's name."""
    if metadata.annotations.get(names.IS_GROUP_WORKLOAD) == "true":
        return LaneKey(POD_GROUP, metadata.namespace, metadata.name)
    owner = metadata.controller_owner()
    if owner is None:
        return LaneKey("workload", metadata.namespace, metadata.name)
    return owner_lane(owner, metadata.namespace)


def lane_of(store: Store, kind: str, namespace: str, name: str) -> LaneKey:
    """The lane of the object of that name (kind: token of the store); one that is not known stands alone."""
    if kind in ("workload", "pod"):
        stored = store.get(kind, namespace, name)
        if stored is not None:
            metadata = stored.object.metadata
            return pod_lane(metadata) if kind == "pod" else workload_lane(metadata)
    return LaneKey(kind, namespace, name)
