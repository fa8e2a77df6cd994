"""Whether a ClusterQueue or LocalQueue may admit, and why not, in the order its Active condition reports.

Why it exists: the scheduler takes no head from an inactive queue and the queue's status says why; both must agree. A cycle of
cohorts is not a cause here: it stops scheduling without touching the condition.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from shared.api import names
from shared.model.cluster_queue import ClusterQueue, ResourceFlavor


class Check(msgspec.Struct, frozen=True, gc=False):
    """An AdmissionCheck object: who serves it and whether it is active."""

    name: str
    controller: str
    active: bool


class Activity(msgspec.Struct, frozen=True, gc=False):
    """The answer: `reason` and `message` are those of the Active condition."""

    active: bool
    reason: str
    message: str


READY = Activity(True, "Ready", "Can admit new workloads")
NOT_FOUND = Activity(False, "NotFound", "The ClusterQueue is not known")


def cluster_queue_activity(
    queue: ClusterQueue,
    flavors: Mapping[str, ResourceFlavor],
    checks: Mapping[str, Check],
    topologies: Collection[str],
) -> Activity:
    """Active condition of a ClusterQueue: the first cause gives the reason, the message names all of them."""
    if queue.deleting:
        return Activity(False, "Terminating", "Can't admit new workloads: the ClusterQueue is being deleted")
    causes = _causes(queue, flavors, checks, topologies)
    if not causes:
        return READY
    return Activity(False, causes[0][0], f"Can't admit new workloads: {', '.join(text for _, text in causes)}.")


def _causes(
    queue: ClusterQueue,
    flavors: Mapping[str, ResourceFlavor],
    checks: Mapping[str, Check],
    topologies: Collection[str],
) -> list[tuple[str, str]]:
    causes: list[tuple[str, str]] = []
    if queue.stop_policy != "None":
        causes.append(("Stopped", "is stopped"))
    wanted_flavors = queue.flavor_names()
    if missing := [name for name in wanted_flavors if name not in flavors]:
        causes.append(("FlavorNotFound", f"references missing ResourceFlavor(s): {','.join(missing)}"))
    rules = {rule.name: rule for rule in queue.checks}
    if missing := sorted(name for name in rules if name not in checks):
        causes.append(("AdmissionCheckNotFound", f"references missing AdmissionCheck(s): {','.join(missing)}"))
    if idle := sorted(name for name in rules if name in checks and not checks[name].active):
        causes.append(("AdmissionCheckInactive", f"references inactive AdmissionCheck(s): {','.join(idle)}"))
    remote = sorted(name for name in rules if name in checks and checks[name].controller == names.MULTIKUEUE_CONTROLLER)
    if len(remote) > 1:
        causes.append(("MultipleMultiKueueAdmissionChecks", f"has several MultiKueue checks: {','.join(remote)}"))
    every = frozenset(wanted_flavors)
    if partial := [name for name in remote if rules[name].on_flavors and not rules[name].on_flavors >= every]:
        text = f"a MultiKueue check must apply to all flavors: {','.join(partial)}"
        causes.append(("MultiKueueAdmissionCheckAppliedPerFlavor", text))
    provisioning = [
        name for name in rules if name in checks and checks[name].controller == names.PROVISIONING_REQUEST_CONTROLLER
    ]
    if remote and provisioning:
        causes.append(
            ("MultiKueueWithProvisioningRequest", "MultiKueue and ProvisioningRequest checks exclude each other")
        )
    if not remote:
        wanted = {flavors[name].topology for name in wanted_flavors if name in flavors and flavors[name].topology}
        if unknown := sorted(wanted - set(topologies)):
            causes.append(("TopologyNotFound", f"references missing Topology: {','.join(unknown)}"))
    return causes


def local_queue_activity(stopped: bool, cluster_queue: Activity | None) -> Activity:
    """Active condition of a LocalQueue; `cluster_queue` is None when the object is missing."""
    if stopped:
        return Activity(False, "Stopped", "LocalQueue is stopped")
    if cluster_queue is None:
        return Activity(
            False, "ClusterQueueDoesNotExist", "Can't submit new workloads to its ClusterQueue: it is missing"
        )
    if not cluster_queue.active:
        return Activity(
            False, "ClusterQueueIsInactive", "Can't submit new workloads to its ClusterQueue: it is inactive"
        )
    return Activity(True, "Ready", "Can submit new workloads to its ClusterQueue")
