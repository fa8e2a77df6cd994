"""Cases about effective requests: what a workload counts against quota, and the arithmetic of amounts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from shared.api.quantity import format_amount, request_units
from shared.decide.requests import (
    NO_DEVICES,
    LogicalDevices,
    RequestRules,
    Transformation,
    pod_requests,
    resource_requests_differ,
    transformed,
    workload_info,
)
from shared.decide.requests_adjust import adjusted
from shared.events.objects import LimitItem
from shared.model.flavor_resources import FlavorResources
from shared.model.limit_range import PodRules, pod_rules
from shared.model.resource_fit import how_many_fit, larger
from shared.model.workload import Admission, PodSetAssignment, WorkloadInfo
from tests.conformance import objects
from tests.conformance.scenario import Case, NotCovered, demand_equal

Json = dict[str, Any]


def run(case: Case) -> None:
    """Run one case of the area."""
    op = case.raw["request"]["op"]
    if op not in _OPS:
        raise NotCovered(f"request {op}")
    _OPS[op](case)


def _lenient(raw: Json) -> Json:
    """Objects of this area may lack metadata."""
    return {**raw, "metadata": {"name": "", **(raw.get("metadata") or {})}}


def rules_of(config: Json, gates: Mapping[str, bool]) -> RequestRules:
    """The settings of a case's `config.resources` and gates."""
    resources = config.get("resources") or {}
    return RequestRules(
        exclude_prefixes=tuple(resources.get("excludeResourcePrefixes") or ()),
        transformations=tuple(
            Transformation(
                input=one["input"],
                replace=one.get("strategy") == "Replace",
                multiply_by=one.get("multiplyBy", ""),
                outputs=tuple((name, str(raw)) for name, raw in (one.get("outputs") or {}).items()),
            )
            for one in resources.get("transformations") or ()
        ),
        reclaimable_pods=gates.get("ReclaimablePods", True),
    )


def _devices(raw: Json | None) -> LogicalDevices:
    raw = raw or {}
    return LogicalDevices(
        per_pod={name: dict(one) for name, one in (raw.get("perPodResources") or {}).items()},
        replaced={name: tuple(one) for name, one in (raw.get("replacedExtendedResources") or {}).items()},
    )


def rules_of_pods(raws: list[Json]) -> PodRules:
    """LimitRanges and RuntimeClasses of a case."""
    items = [
        LimitItem(
            type=item["type"],
            max=item.get("max") or {},
            min=item.get("min") or {},
            default=item.get("default") or {},
            default_request=item.get("defaultRequest") or {},
        )
        for raw in raws
        if raw["kind"] == "LimitRange"
        for item in raw["spec"].get("limits") or ()
    ]
    overheads = {
        raw["metadata"]["name"]: raw["overhead"]["podFixed"]
        for raw in raws
        if raw["kind"] == "RuntimeClass" and (raw.get("overhead") or {}).get("podFixed")
    }
    return pod_rules(items, overheads)


def _the_workload(case: Case) -> Json:
    return next(_lenient(raw) for raw in case.raw["objects"] if raw["kind"] == "Workload")


def _units(raw: Mapping[str, Any]) -> dict[str, int]:
    return {name: request_units(name, value) for name, value in raw.items()}


def _totals(case: Case) -> None:
    rules = rules_of(case.raw.get("config") or {}, case.raw["gates"])
    raw = _the_workload(case)
    source = objects.workload(raw)
    info = workload_info(source, rules, rules_of_pods(case.raw["objects"]), _devices(case.raw["request"].get("dra")))
    _compare_totals(raw, info, case.raw["expect"])


def _compare_totals(raw: Json, info: WorkloadInfo, expect: Json) -> None:
    held = info.admission
    if "clusterQueue" in expect:
        demand_equal("clusterQueue", held.cluster_queue if held is not None else "", expect["clusterQueue"])
    found = [
        (one.name, one.count, dict(one.usage), dict(one.flavors)) for one in (held.pod_sets if held is not None else ())
    ] or [(one.name, one.count, dict(one.requests), {}) for one in info.pod_sets]
    demand_equal("pod sets", [one[0] for one in found], [one["name"] for one in expect["podSets"]])
    for (name, count, requests, flavors), wanted in zip(found, expect["podSets"], strict=True):
        demand_equal(f"{name}: count", count, wanted["count"])
        demand_equal(f"{name}: requests", requests, _units(wanted["requests"]))
        if "flavors" in wanted:
            demand_equal(f"{name}: flavors", flavors, wanted["flavors"] or {})
        if "topology" in wanted:
            _compare_topology(raw, name, wanted["topology"])


def _compare_topology(raw: Json, name: str, wanted: Json) -> None:
    """What each pod of a placed pod set takes of its domain: raw requests, whatever quota counts."""
    source = objects.workload(raw)
    pod_set = next(one for one in source.pod_sets if one.name == name)
    one_pod = transformed(pod_requests(pod_set), RequestRules())
    demand_equal("topology requests", one_pod, _units(wanted["domains"][0]["perPodRequests"]))
    assigned = next(one for one in raw["status"]["admission"]["podSetAssignments"] if one["name"] == name)
    demand_equal("topology levels", assigned["topologyAssignment"]["levels"], wanted["levels"])


def _steps(case: Case) -> None:
    """Totals, then totals again of a newer state: settings and devices stay as they were when a step leaves them out."""
    rules, devices = rules_of({}, case.raw["gates"]), NO_DEVICES
    for step in case.raw["steps"]:
        if step["op"] not in ("pod_set_totals", "workload_updated"):
            raise NotCovered(f"step {step['op']}")
        if step.get("config"):
            rules = rules_of(step["config"], case.raw["gates"])
        if step.get("dra"):
            devices = _devices(step["dra"])
        raw = _lenient(step["workload"])
        info = workload_info(objects.workload(raw), rules, devices=devices)
    _compare_totals(raw, info, case.raw["expect"])


def _adjust(case: Case) -> None:
    before, wanted = _the_workload(case), _lenient(case.raw["expect"]["workload"])
    found = [adjusted(one, rules_of_pods(case.raw["objects"])) for one in objects.workload(before).pod_sets]
    demand_equal(
        "pod sets", [_template(one) for one in found], [_template(one) for one in objects.workload(wanted).pod_sets]
    )
    demand_equal("all the rest", _without_amounts(before), _without_amounts(wanted))


def _without_amounts(value: Any) -> Any:
    """What adjusting leaves alone: everything but resources and overhead."""
    if isinstance(value, dict):
        return {key: _without_amounts(one) for key, one in value.items() if key not in ("resources", "overhead")}
    return [_without_amounts(one) for one in value] if isinstance(value, list) else value


def _template(pod_set: Any) -> Json:
    return {
        "name": pod_set.name,
        "count": pod_set.count,
        "containers": [(_units(one.requests), _units(one.limits), one.sidecar) for one in pod_set.containers],
        "init": [(_units(one.requests), _units(one.limits), one.sidecar) for one in pod_set.init_containers],
        "pod": (_units(pod_set.pod_requests or {}), _units(pod_set.pod_limits or {})),
        "overhead": _units(pod_set.overhead),
        "runtimeClass": pod_set.runtime_class,
    }


def _usage(case: Case) -> None:
    admission = Admission(
        "",
        tuple(
            PodSetAssignment(name=str(place), count=1, flavors=raw.get("flavors") or {}, usage=_units(raw["requests"]))
            for place, raw in enumerate(case.raw["request"]["podSets"] or ())
        ),
    )
    interned = FlavorResources()
    expect = case.raw["expect"]
    wanted = {
        (one["flavor"], one["resource"]): request_units(one["resource"], one["quantity"]) for one in expect["usage"]
    }
    demand_equal("usage", dict(interned.by_name(admission.vector(interned))), wanted)
    demand_equal("withoutFlavor", admission.unassigned(), _units(expect["withoutFlavor"]))


def _refresh(case: Case) -> None:
    request = case.raw["request"]
    current = {one["name"]: {name: str(raw) for name, raw in one["resources"].items()} for one in request["current"]}
    totals = {one["name"]: _units(one["requests"]) for one in request["podSets"]}
    demand_equal("changed", resource_requests_differ(current, totals), case.raw["expect"]["changed"])


def _how_many(case: Case) -> None:
    request, expect = case.raw["request"], case.raw["expect"]
    count, limiting = how_many_fit(_units(request["requests"]), _units(request["capacity"]))
    demand_equal("count", count, expect["count"])
    if "limitingResource" in expect:
        demand_equal("limitingResource", limiting, expect["limitingResource"])


def _larger(case: Case) -> None:
    request = case.raw["request"]
    found = list(larger(_units(request["a"]), _units(request["b"])))
    demand_equal("resources", found, sorted(case.raw["expect"]["resources"]))


def _amount(case: Case) -> None:
    request = case.raw["request"]
    demand_equal("amount", str(request_units(request["resource"], request["quantity"])), case.raw["expect"]["amount"])


def _text(case: Case) -> None:
    request = case.raw["request"]
    found = format_amount(request["resource"], int(request["amount"]), tuple(request.get("binaryResources") or ()))
    demand_equal("text", found, case.raw["expect"]["text"])


_OPS: dict[str, Callable[[Case], None]] = {
    "pod_set_totals": _totals,
    "steps": _steps,
    "adjust_workload": _adjust,
    "usage": _usage,
    "refresh_resource_requests_status": _refresh,
    "how_many_fit": _how_many,
    "resources_greater_than": _larger,
    "amount_of": _amount,
    "quantity_text": _text,
}
