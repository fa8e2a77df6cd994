"""Numbers in the status of queues, folded from a case's objects as the services fold them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shared.api.quantity import request_units
from shared.bus.interface import ObjectChanged
from shared.events.objects import KINDS, Object, QueueUsage
from shared.events.subjects import ObjectName
from shared.state.queues import QueueStatus, QueueView
from tests.conformance import objects
from tests.conformance.engine import Engine
from tests.conformance.scenario import NotCovered, demand_equal

Json = dict[str, Any]

_READERS: dict[str, Callable[[Json], Object]] = {
    "ClusterQueue": objects.cluster_queue,
    "LocalQueue": objects.local_queue,
    "Cohort": objects.cohort,
    "ResourceFlavor": objects.resource_flavor,
    "AdmissionCheck": objects.admission_check,
    "Workload": objects.workload,
}


def _view(engine: Engine) -> QueueView:
    view = QueueView()
    kinds = {type_: kind for kind, type_ in KINDS.items()}
    for position, ((kind, _), raw) in enumerate(engine.raws.items()):
        if kind in _READERS:
            found = _READERS[kind](raw)
            name = ObjectName(kinds[type(found)], found.namespace, found.name)
            view.apply(ObjectChanged(name, found, position + 1), engine.now)
    return view


def _compare(where: str, status: QueueStatus, wanted: Json) -> None:
    for key, value in wanted.items():
        match key:
            case "flavorsReservation":
                demand_equal(f"{where}: {key}", _rows(status.reservation, value), _expected(value))
            case "flavorsUsage":
                demand_equal(f"{where}: {key}", _rows(status.usage, value), _expected(value))
            case "pendingWorkloads":
                demand_equal(f"{where}: {key}", status.pending, value)
            case "reservingWorkloads":
                demand_equal(f"{where}: {key}", status.reserving, value)
            case "admittedWorkloads":
                demand_equal(f"{where}: {key}", status.admitted, value)
            case _:
                raise NotCovered(f"status field {key}")


def _rows(usage: QueueUsage, wanted: list[Json]) -> list[tuple[str, str, int, int]]:
    """Rows of a status; a LocalQueue's say nothing of borrowing, so that is compared only where the case names it."""
    shows = any("borrowed" in one for flavor in wanted for one in flavor["resources"])
    return [(flavor, resource, total, borrowed if shows else 0) for flavor, resource, total, borrowed in usage.rows]


def _expected(raw: list[Json]) -> list[tuple[str, str, int, int]]:
    return [
        (
            flavor["name"],
            one["name"],
            request_units(one["name"], one.get("total", "0")),
            request_units(one["name"], one.get("borrowed", "0")),
        )
        for flavor in raw
        for one in flavor["resources"]
    ]


def check_cluster_queues(engine: Engine, wanted: Json) -> None:
    view = _view(engine)
    for name, expected in wanted.items():
        status = view.cluster_queue(name)
        assert status is not None
        _compare(name, status, expected)


def check_local_queues(engine: Engine, wanted: Json) -> None:
    view = _view(engine)
    for key, expected in wanted.items():
        status = view.local_queue(key)
        assert status is not None
        _compare(key, status, expected)
