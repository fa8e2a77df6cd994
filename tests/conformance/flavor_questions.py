"""Cases about steps next to the search for flavors: who needs a placement, and what an assignment is charged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from shared.api.names import ELASTIC_JOB
from shared.api.quantity import request_units
from shared.decide.assignment import FlavorChoice, GranularMode, Mode, PodSetError, PodSetResult
from shared.decide.partial import scaled
from shared.decide.requests import workload_info
from shared.decide.topology_handoff import needed_placements, net_usage
from shared.model.workload import WorkloadInfo
from tests.conformance import objects
from tests.conformance.scenario import Case, demand_equal
from tests.conformance.topology_room import assignment_domains

Json = dict[str, Any]
_MODES = {"Fit": GranularMode.FIT, "Preempt": GranularMode.PREEMPT, "NoFit": GranularMode.NO_FIT}


def _workload(case: Case) -> tuple[Json, WorkloadInfo]:
    raw = next(one for one in case.raw["objects"] if one["kind"] == "Workload")
    return raw, workload_info(objects.workload(raw))


def _results(case: Case) -> list[PodSetResult]:
    return [
        PodSetResult(
            one["name"],
            one["count"],
            {},
            {
                resource: FlavorChoice(choice["flavor"], _MODES[choice["mode"]], 0, choice["triedFlavorIndex"], 0)
                for resource, choice in one["flavors"].items()
            },
        )
        for one in case.raw["request"]["assignment"]
    ]


def topology_requests(case: Case) -> None:
    request, expect = case.raw["request"], case.raw["expect"]
    raw, info = _workload(case)
    gates = case.raw["gates"]
    annotated = (raw["metadata"].get("annotations") or {}).get(ELASTIC_JOB) == "true"
    elastic = gates.get("ElasticJobsViaWorkloadSlicesWithTAS", False) and (
        annotated or "replacedSliceHasTopologyAssignment" in request
    )
    results = _results(case)
    needed = needed_placements(info.pod_sets, tuple(results), request["topologyFlavorsOfClusterQueue"], elastic=elastic)
    error = needed.errors.get(info.pod_sets[0].name)
    demand_equal("error", error_of(error), expect.get("error"))
    if "topologyRequests" in expect:
        demand_equal("topologyRequests", [one.pod_set.name for one in needed.requests], expect["topologyRequests"])
    if "mode" in expect:
        mode = Mode.NO_FIT if needed.errors else min(result.mode for result in results)
        demand_equal("mode", {Mode.FIT: "Fit", Mode.NO_FIT: "NoFit"}.get(mode, "Preempt"), expect["mode"])


def error_of(error: PodSetError | None) -> Json | None:
    """An error as the format writes it."""
    if error is None:
        return None
    return {"code": error.code, **({"flavors": list(error.flavors)} if error.flavors else {})}


def total_requests(case: Case) -> None:
    _, info = _workload(case)
    replaced = {one["name"]: one for one in (case.raw["request"].get("replacedSlice") or {}).get("podSets") or ()}
    total: Counter[tuple[str, str]] = Counter()
    for pod_set, result in zip(info.pod_sets, _results(case), strict=True):
        before = replaced.get(pod_set.name)
        count = result.count if before is None else pod_set.count - before["count"]
        for resource, amount in scaled(pod_set, count).items():
            if resource in result.flavors:
                total[(result.flavors[resource].flavor, resource)] += amount
    demand_equal(
        "usage", {pair: amount for pair, amount in total.items() if amount}, _usage(case.raw["expect"]["usage"])
    )


def _usage(raw: list[Json]) -> dict[tuple[str, str], int]:
    return {(one["flavor"], one["resource"]): request_units(one["resource"], one["quantity"]) for one in raw}


def topology_net_usage(case: Case) -> None:
    _, info = _workload(case)
    found = sorted(_net(case, info), key=repr)
    wanted = sorted(
        (
            (
                one["flavor"],
                tuple(one["values"]),
                one["count"],
                {name: request_units(name, raw) for name, raw in one["perPodRequests"].items()},
            )
            for one in case.raw["expect"]["topologyUsage"]
        ),
        key=repr,
    )
    demand_equal("topologyUsage", found, wanted)


def _net(case: Case, info: WorkloadInfo) -> Iterator[tuple[str, tuple[str, ...], int, dict[str, int]]]:
    request = case.raw["request"]
    previous = (request.get("previousAdmission") or {}).get("podSetAssignments") or ()
    before = {one["name"]: assignment_domains(one.get("topologyAssignment")) for one in previous}
    flavors = request["topologyFlavorsOfClusterQueue"]
    for pod_set, raw in zip(info.pod_sets, request["assignment"], strict=True):
        flavor = next(choice["flavor"] for choice in raw["flavors"].values() if choice["flavor"] in flavors)
        domains = assignment_domains(raw.get("topologyAssignment"))
        for values, count in net_usage(domains, before.get(pod_set.name, {})).items():
            yield flavor, values, count, dict(pod_set.pod)
