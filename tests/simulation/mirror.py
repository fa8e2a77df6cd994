"""Whether OBJECTS says what is there: every object as the API server holds it, and nothing that is gone (R5).

Asked at rest, when nothing is on its way any more. Versions do not count: a change of what nobody projects need not be told.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from shared.events import objects, subjects
from shared.events.objects import Object, Tombstone
from shared.events.subjects import ObjectName
from shared.kube.resources import ADMISSION_CHECKS, CLUSTER_QUEUES, COHORTS, LOCAL_QUEUES, RESOURCE_FLAVORS, WORKLOADS
from shared.testing.simulated_api import SimulatedApi
from shared.testing.simulated_bus import SimulatedBroker
from tests.simulation.invariants import projected
from tests.simulation.scenario import every

KINDS = {
    "workload": WORKLOADS,
    "clusterqueue": CLUSTER_QUEUES,
    "localqueue": LOCAL_QUEUES,
    "cohort": COHORTS,
    "resourceflavor": RESOURCE_FLAVORS,
    "admissioncheck": ADMISSION_CHECKS,
}


def stale(api: SimulatedApi, broker: SimulatedBroker) -> list[tuple[ObjectName, str]]:
    """Objects of which OBJECTS says something else than the API server, and what is wrong."""
    stream = broker.streams.get("OBJECTS")
    said: dict[ObjectName, Object] = {}
    for message in stream.messages.values() if stream is not None else ():
        name = subjects.parse_objects(message.subject)
        if name.kind in KINDS:
            said[name] = objects.codec.decode(message.payload)
    return list(_differ(_there(api), said))


def _there(api: SimulatedApi) -> dict[ObjectName, Object]:
    return {
        ObjectName(kind, manifest["metadata"].get("namespace", ""), manifest["metadata"]["name"]): projected(
            kind, manifest
        )
        for kind, resource in KINDS.items()
        for manifest in every(api, resource)
    }


def _differ(there: Mapping[ObjectName, Object], said: Mapping[ObjectName, Object]) -> Iterable[tuple[ObjectName, str]]:
    for name, found in there.items():
        known = said.get(name)
        if known is None or isinstance(known, Tombstone):
            yield name, "OBJECTS does not know it"
        elif _content(known) != _content(found):
            yield name, f"OBJECTS holds version {known.version}, which is not what version {found.version} says"
    for name, known in said.items():
        if name not in there and not isinstance(known, Tombstone):
            yield name, f"it is gone, and OBJECTS holds version {known.version}"


def _content(found: Object) -> Object:
    plain = msgspec.structs.replace(found, version=0)
    return msgspec.structs.replace(plain, generation=0) if hasattr(plain, "generation") else plain
