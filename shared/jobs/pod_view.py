"""Pods as the rules of plain pods and pod groups look at them (job specification 14.1): a lean view, and the short questions about one pod.

What a pod's template holds beside this stays in its bytes.
"""

from datetime import datetime

from shared.api import names
from shared.api.meta import ObjectMeta
from shared.api.pods import SchedulingGate
from shared.api.schema_hints import ApiStruct, Time
from shared.api.validation import int32

TERMINATION_TARGET = "TerminationTarget"


class PodCondition(ApiStruct, frozen=True, kw_only=True):
    type: str
    status: str
    reason: str = ""
    last_transition_time: Time | None = None


class PodSpecView(ApiStruct, frozen=True, kw_only=True):
    node_name: str = ""
    scheduling_gates: tuple[SchedulingGate, ...] = ()


class PodStatusView(ApiStruct, frozen=True, kw_only=True):
    phase: str = ""
    message: str = ""
    conditions: tuple[PodCondition, ...] = ()


class PodMeta(ObjectMeta, frozen=True, kw_only=True):
    deletion_grace_period_seconds: int | None = None


class Pod(ApiStruct, frozen=True, kw_only=True):
    """v1 Pod."""

    metadata: PodMeta
    spec: PodSpecView = PodSpecView()
    status: PodStatusView = PodStatusView()


def group_name(metadata: ObjectMeta) -> str:
    """The group that a pod belongs to; empty for one that stands alone."""
    return metadata.annotations.get(names.POD_GROUP_NAME) or metadata.labels.get(names.POD_GROUP_NAME, "")


def total_count(metadata: ObjectMeta) -> int | None:
    """How many pods the group of the pod has; None if it does not say so, or no number of at least 1."""
    count = int32(metadata.annotations.get(names.POD_GROUP_TOTAL_COUNT, ""))
    return count if count is not None and count > 0 else None


def role(pod: Pod) -> str:
    """Pods of one role are alike; frozen when the pod was created."""
    return pod.metadata.annotations.get(names.ROLE_HASH, "")


def is_gated(pod: Pod) -> bool:
    """Held back by us."""
    return any(gate.name == names.ADMISSION_SCHEDULING_GATE for gate in pod.spec.scheduling_gates)


def is_terminated(pod: Pod) -> bool:
    """It runs no more, whatever its end."""
    return pod.status.phase in ("Succeeded", "Failed")


def is_deleting(pod: Pod) -> bool:
    """Somebody has asked for its deletion."""
    return pod.metadata.deletion_timestamp is not None


def is_forced(pod: Pod) -> bool:
    """Somebody else than us deletes it, and nobody is to wait for its end (any more)."""
    no_wait = is_deleting(pod) and pod.metadata.deletion_grace_period_seconds == 0
    return no_wait and condition(pod, TERMINATION_TARGET) is None


def is_active(pod: Pod) -> bool:
    """Counts as a member: it has not failed, and was not deleted before it had a node, or by force. One that succeeded counts."""
    return pod.status.phase != "Failed" and not (is_deleting(pod) and not pod.spec.node_name) and not is_forced(pod)


def has_finalizer(pod: Pod) -> bool:
    """It cannot go before we let it."""
    return names.POD_FINALIZER in pod.metadata.finalizers


def condition(pod: Pod, type_: str) -> PodCondition | None:
    """One condition, if it is there."""
    return next((c for c in pod.status.conditions if c.type == type_), None)


def is_ready(pod: Pod) -> bool:
    """Its own condition says so."""
    found = condition(pod, "Ready")
    return found is not None and found.status == "True"


def is_retriable(pod: Pod) -> bool:
    """A group whose pods have all ended may go on with a replacement of this one."""
    return pod.metadata.annotations.get(names.RETRIABLE_IN_GROUP) != "false"


def occupies_node(pod: Pod, now: datetime) -> bool:
    """It runs, and if it is being deleted its grace period is not over (the deletion time is that of its end)."""
    deleted = pod.metadata.deletion_timestamp
    return pod.status.phase == "Running" and (deleted is None or now < deleted)
