"""Conversion of Workloads (core specification 1.8): the priority class, topology assignments, gates, one misspelling. Pure.

Both functions change the object in place; see `convert_queues` for what they are given and return.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from services.webhook.convert_fields import fits, renamed
from shared.api import names
from shared.api.topology_assignment import TopologyAssignment
from shared.api.topology_encoding import Domain, decode, encode
from shared.api.v1beta1.workload import TopologyAssignment as DomainList
from shared.api.workload import PreemptionGate, PriorityClassRef, SliceTopologyConstraint
from shared.api.workload_status import PreemptionGateState
from shared.jobs.manifest import JsonObject, items, section, text

NAME, SOURCE, REF = "priorityClassName", "priorityClassSource", "priorityClassRef"
GATES, TOPOLOGY = "preemptionGates", "topologyAssignment"
CONSTRAINTS = "podsetSliceRequiredTopologyConstraints"
PAST_SECONDS, PAST_SECONDS_V1BETA1 = "accumulatedPastExecutionTimeSeconds", "accumulatedPastExexcutionTimeSeconds"
CLASSES = {
    "kueue.x-k8s.io/workloadpriorityclass": (names.GROUP, names.WORKLOAD_PRIORITY_CLASS),
    "scheduling.k8s.io/priorityclass": (names.SCHEDULING_GROUP, names.PRIORITY_CLASS),
}
"""Group and kind of a class per source of v1beta1."""
SOURCES = {pair: source for source, pair in CLASSES.items()}


def to_v1beta2(workload: JsonObject, kept: JsonObject) -> JsonObject:
    """One reference to the class, topology in slices; gates and nested slices come back."""
    rest: JsonObject = {}
    spec, status = section(workload, "spec"), section(workload, "status")
    source, name = spec.pop(SOURCE, ""), spec.pop(NAME, "")
    if name and isinstance(source, str) and source in CLASSES:
        group, kind = CLASSES[source]
        spec[REF] = {"group": group, "kind": kind, "name": name}
    else:
        rest.update({key: value for key, value in ((NAME, name), (SOURCE, source)) if value})
        if "spec" in workload and not rest and fits(kept.get(REF), PriorityClassRef):
            spec[REF] = kept[REF]
    constraints = section(kept, CONSTRAINTS)
    for pod_set in items(spec, "podSets"):
        request, value = pod_set.get("topologyRequest"), constraints.get(text(pod_set, "name"))
        if isinstance(request, dict) and fits(value, tuple[SliceTopologyConstraint, ...]):
            request[CONSTRAINTS] = value
    if "spec" in workload and fits(kept.get(GATES), tuple[PreemptionGate, ...]):
        spec[GATES] = kept[GATES]
    if "status" in workload and fits(kept.get("statusGates"), tuple[PreemptionGateState, ...]):
        status[GATES] = kept["statusGates"]
    renamed(status, PAST_SECONDS_V1BETA1, PAST_SECONDS)
    return rest | _topology(status, kept, _in_slices, TopologyAssignment)


def to_v1beta1(workload: JsonObject, kept: JsonObject) -> JsonObject:
    """The class in two strings, topology domain by domain, no gates."""
    rest: JsonObject = {}
    spec, status = section(workload, "spec"), section(workload, "status")
    ref = section(spec, REF)
    source = SOURCES.get((text(ref, "group"), text(ref, "kind")), "")
    if source:
        spec.pop(REF)
        spec[NAME] = ref.get("name")
    elif ref:
        rest[REF] = spec.pop(REF)
    else:
        source = text(kept, SOURCE)
        if text(kept, NAME):
            spec[NAME] = kept[NAME]
    # The schema's default: whoever reads this version has always seen the field.
    spec[SOURCE] = source
    constraints = {
        text(pod_set, "name"): section(pod_set, "topologyRequest").pop(CONSTRAINTS)
        for pod_set in items(spec, "podSets")
        if CONSTRAINTS in section(pod_set, "topologyRequest")
    }
    if constraints:
        rest[CONSTRAINTS] = constraints
    if GATES in spec:
        rest[GATES] = spec.pop(GATES)
    if GATES in status:
        rest["statusGates"] = status.pop(GATES)
    renamed(status, PAST_SECONDS, PAST_SECONDS_V1BETA1)
    return rest | _topology(status, kept, _by_domain, DomainList)


def _topology(
    status: JsonObject, kept: JsonObject, change: Callable[[JsonObject], JsonObject], type_: object
) -> JsonObject:
    """Change each topology assignment; one that does not add up is only kept, by the name of its pod set."""
    rest: JsonObject = {}
    for assignment in items(status, "admission", "podSetAssignments"):
        name, found = text(assignment, "name"), assignment.get(TOPOLOGY)
        if isinstance(found, dict):
            try:
                assignment[TOPOLOGY] = change(found)
            except ValueError:
                rest[name] = assignment.pop(TOPOLOGY)
        elif fits(value := section(kept, TOPOLOGY).get(name), type_):
            assignment[TOPOLOGY] = value
    return {TOPOLOGY: rest} if rest else {}


def _in_slices(assignment: JsonObject) -> JsonObject:
    given = msgspec.convert(assignment, DomainList)
    encoded = encode(given.levels, [Domain(domain.values, domain.count) for domain in given.domains])
    rest = {key: value for key, value in assignment.items() if key != "domains"}
    return {**rest, "slices": msgspec.to_builtins(encoded.slices)}


def _by_domain(assignment: JsonObject) -> JsonObject:
    domains = decode(msgspec.convert(assignment, TopologyAssignment))
    rest = {key: value for key, value in assignment.items() if key != "slices"}
    return {**rest, "domains": [{"values": list(domain.values), "count": domain.count} for domain in domains]}
