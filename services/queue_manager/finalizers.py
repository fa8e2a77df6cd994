"""The finalizer that keeps what is in use: on queues, flavors, checks and topologies (core spec 1.12). Pure."""

from __future__ import annotations

from collections.abc import Iterable

from shared.api import names
from shared.events.commands import SetFinalizer
from shared.events.objects import AdmissionCheck, ClusterQueue, ResourceFlavor, Topology

Guarded = ClusterQueue | ResourceFlavor | AdmissionCheck | Topology


def finalizer_change(kind: str, guarded: Guarded, *, in_use: bool) -> SetFinalizer | None:
    """Added while the object lives, removed once it is being deleted and nothing uses it; None if it is as it should be."""
    present = names.RESOURCE_IN_USE in guarded.finalizers
    if guarded.deleting:
        if not present or in_use:
            return None
    elif present:
        return None
    return SetFinalizer(
        id="",
        kind=kind,
        namespace=guarded.namespace,
        name=guarded.name,
        uid=guarded.uid,
        version=guarded.version,
        present=not guarded.deleting,
    )


def flavors_of(queue: ClusterQueue) -> set[str]:
    """Flavors that the queue's spec names."""
    return {flavor.name for group in queue.groups for flavor in group.flavors}


def checks_of(queue: ClusterQueue) -> set[str]:
    """Admission checks that the queue's spec names."""
    return {rule.name for rule in queue.checks}


def flavor_in_use(name: str, queues: Iterable[ClusterQueue]) -> bool:
    """Does any ClusterQueue have this flavor?"""
    return any(name in flavors_of(queue) for queue in queues)


def check_in_use(name: str, queues: Iterable[ClusterQueue]) -> bool:
    """Does any ClusterQueue name this check?"""
    return any(name in checks_of(queue) for queue in queues)


def topology_in_use(name: str, flavors: Iterable[ResourceFlavor]) -> bool:
    """Does any flavor name this topology?"""
    return any(flavor.topology == name for flavor in flavors)
