"""Cases of the area `validation`: what the webhooks refuse, and what keeps a workload from being scheduled."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from services.webhook.validate_queues import cluster_queue_errors, cohort_errors, resource_flavor_errors
from services.webhook.validate_workload import workload_errors
from shared.api.cluster_queue import ClusterQueue
from shared.api.cohort import Cohort
from shared.api.decoding import convert
from shared.api.field_errors import FieldError, invalid
from shared.api.raw_workload import RawWorkload
from shared.api.resource_flavor import ResourceFlavor
from shared.config.feature_gates import FeatureGates, resolve
from shared.decide.requests import pod_requests
from shared.decide.requests_adjust import Fault, limit_faults, range_faults
from tests.conformance import objects
from tests.conformance.effective_requests import rules_of_pods
from tests.conformance.scenario import Case, NotCovered, demand_equal

Json = dict[str, Any]

KINDS = {
    "Invalid": "Invalid value",
    "NotSupported": "Unsupported value",
    "Forbidden": "Forbidden",
    "Required": "Required value",
    "NotFound": "Not found",
    "Duplicate": "Duplicate value",
    "TooLong": "Too long",
    "TooMany": "Too many",
}


def run(case: Case) -> None:
    """Run one case; raises Mismatch or NotCovered."""
    request = case.raw["request"]
    handler = _OPS.get(request["op"])
    if handler is None:
        raise NotCovered(f"request {request['op']}")
    _compare(handler(case, request), case.raw["expect"])


def _compare(found: Sequence[FieldError], expect: Json) -> None:
    if "rejected" in expect:
        demand_equal("rejected", bool(found), expect["rejected"])
    if "errors" in expect:
        wanted = expect["errors"]
        demand_equal(
            "errors",
            [(error.kind, error.path) for error in found],
            [(KINDS.get(one["kind"], one["kind"]), one["field"]) for one in wanted],
        )
        for error, one in zip(found, wanted, strict=True):
            if "origin" in one:
                demand_equal(f"{error.path}: origin", error.origin, one["origin"])
            if "badValue" in one:
                value = msgspec.json.decode(error.value)
                # Numbers are pinned as texts.
                shown = str(value) if isinstance(one["badValue"], str) else value
                demand_equal(f"{error.path}: badValue", shown, one["badValue"])
    # None of the webhooks that the cases ask warns.
    demand_equal("warnings", 0, expect.get("warnings", 0))


def _gates(case: Case) -> FeatureGates:
    return resolve(case.raw.get("gates") or {})


def _admit(case: Case, request: Json) -> list[FieldError]:
    kind, old, gates = request["object"]["kind"], request.get("old"), _gates(case)
    errors: Iterable[FieldError]
    match kind:
        case "ClusterQueue":
            before = convert(ClusterQueue, old) if old else None
            errors = cluster_queue_errors(convert(ClusterQueue, request["object"]), before, gates)
        case "Cohort":
            errors = cohort_errors(convert(Cohort, request["object"]))
        case "ResourceFlavor":
            errors = resource_flavor_errors(convert(ResourceFlavor, request["object"]))
        case "Workload":
            was = convert(RawWorkload, old) if old else None
            errors = workload_errors(convert(RawWorkload, request["object"]), was, gates)
        case _:
            raise NotCovered(f"kind {kind}")
    return list(dict.fromkeys(errors))


def _limits(case: Case, request: Json) -> list[FieldError]:
    pod_sets = objects.workload(_named(request)).pod_sets
    return [_fault(place, fault) for place, one in enumerate(pod_sets) for fault in limit_faults(one)]


def _ranges(case: Case, request: Json) -> list[FieldError]:
    rules = rules_of_pods(case.raw["objects"])
    pod_sets = objects.workload(_named(request)).pod_sets
    return [
        _fault(place, fault)
        for place, one in enumerate(pod_sets)
        for fault in range_faults(one, pod_requests(one), rules)
    ]


def _named(request: Json) -> Json:
    return {**request["object"], "metadata": {"name": "", **request["object"]["metadata"]}}


def _fault(place: int, fault: Fault) -> FieldError:
    where, resources = fault
    return invalid(f"spec.podSets[{place}].template.spec{where}", list(resources), "")


_OPS: dict[str, Callable[[Case, Json], list[FieldError]]] = {
    "create": _admit,
    "update": _admit,
    "resources_before_scheduling": _limits,
    "limit_range_before_scheduling": _ranges,
}
