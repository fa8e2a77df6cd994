"""Room on the nodes of a case: enough to answer whether pods could be placed at all, without choosing where.

Placement itself is not what these cases are about; leaders, slices and usage on nodes are not looked at.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from shared.api.quantity import request_units
from shared.decide.topology_handoff import PlacementRequest, requested_levels
from shared.model.resource_fit import how_many_fit

Json = dict[str, Any]


class Room:
    """The Placement of a case's Topology, ResourceFlavor and Node objects."""

    def __init__(self, raws: list[Json]) -> None:
        self._levels = {
            raw["metadata"]["name"]: tuple(level["nodeLabel"] for level in raw["spec"].get("levels") or ())
            for raw in raws
            if raw["kind"] == "Topology"
        }
        self._flavors = {
            raw["metadata"]["name"]: raw.get("spec") or {} for raw in raws if raw["kind"] == "ResourceFlavor"
        }
        self._nodes = [raw for raw in raws if raw["kind"] == "Node"]

    def levels(self, topology: str) -> tuple[str, ...] | None:
        return self._levels.get(topology)

    def failures(self, requests: tuple[PlacementRequest, ...], *, empty: bool) -> dict[str, str]:
        return {one.pod_set.name: "no room on the nodes" for one in requests if not self._has_room(one)}

    def _has_room(self, request: PlacementRequest) -> bool:
        flavor = self._flavors[request.flavor]
        levels = self._levels[flavor["topologyName"]]
        wanted = (flavor.get("nodeLabels") or {}).items()
        level = next(iter(requested_levels(request.pod_set)), None)
        domains: dict[tuple[str, ...], int] = defaultdict(int)
        for node in self._nodes:
            labels = node["metadata"].get("labels") or {}
            if not wanted <= labels.items() or not set(levels) <= set(labels):
                continue
            room = {
                name: request_units(name, value) for name, value in (node["status"].get("allocatable") or {}).items()
            }
            depth = levels.index(level) + 1 if level in levels else 0
            domain = tuple(labels[name] for name in levels[:depth])
            domains[domain] += how_many_fit({**request.pod_set.pod, "pods": 1}, room)[0]
        return max(domains.values(), default=0) >= request.count


def assignment_domains(raw: Json | None) -> dict[tuple[str, ...], int]:
    """Pods per domain of a placement in flat form, or in compact form with universal values only."""
    if not raw:
        return {}
    if "domains" in raw:
        return {tuple(one["values"]): one["count"] for one in raw["domains"]}
    return {
        tuple(level["universal"] for level in one["valuesPerLevel"]): one["podCounts"]["universal"]
        for one in raw["slices"]
    }
