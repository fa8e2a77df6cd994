"""What is injected into a pod template when a job starts, and how a template becomes what it was when the job stops.

A pod set info comes from three sources: the assigned flavors (node labels and tolerations), fixed labels and annotations, and the updates of the
admission checks. Merging refuses to overwrite: a key that already has another value is a permanent error, since starting the job would put its pods
on the wrong nodes.
"""

from collections.abc import Container, Mapping, Sequence

import msgspec

from shared.api import names
from shared.api.pods import SchedulingGate, TemplateMeta, Toleration
from shared.api.schema_hints import ApiStruct
from shared.api.validation import dns_label_errors
from shared.jobs.manifest import JsonObject, replaced, section, texts, view

_POD_INDEX_LIMIT = 63
_INJECTED = {"metadata": ("labels", "annotations"), "spec": ("nodeSelector", "tolerations", "schedulingGates")}
"""What a start may change in a pod template."""


class PermanentError(ValueError):
    """The job can never start as it is; its workload ends with `FailedToStart` and this text."""


class MergeConflict(PermanentError):
    """A key is wanted with two values; the text names the map and the key."""


class MissingFlavor(LookupError):
    """An assigned ResourceFlavor is not known (yet); worth another try."""


class PodSetInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Injected into (or, at a stop, put back into) the template of one pod set."""

    name: str
    count: int = 0
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    node_selector: dict[str, str] = {}
    tolerations: tuple[Toleration, ...] = ()
    scheduling_gates: tuple[str, ...] = ()


class Assigned(msgspec.Struct, frozen=True, kw_only=True):
    """What a workload's admission says about one pod set."""

    name: str
    count: int
    flavors: tuple[str, ...]
    """Names of the distinct flavors, in the order of their resources."""
    has_topology: bool = False
    asks_topology: bool = False
    """The pod set requests a topology itself (required, preferred or unconstrained)."""


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """All that a start needs to know of the admitted workload."""

    workload: str
    queue: str
    cluster_queue: str
    assigned: tuple[Assigned, ...]
    updates: tuple[tuple[PodSetInfo, ...], ...] = ()
    """podSetUpdates, per admission check."""
    on_worker_cluster: bool = False


class FlavorNodes(msgspec.Struct, frozen=True):
    """The part of a ResourceFlavor that goes onto pods."""

    node_labels: dict[str, str] = {}
    tolerations: tuple[Toleration, ...] = ()


def infos_of(start: Start, flavors: Mapping[str, FlavorNodes]) -> tuple[PodSetInfo, ...]:
    """One info per assignment, in its order. Raises MissingFlavor, or MergeConflict between check updates."""
    return tuple(_info(start, assigned, flavors) for assigned in start.assigned)


def _info(start: Start, assigned: Assigned, flavors: Mapping[str, FlavorNodes]) -> PodSetInfo:
    selector: dict[str, str] = {}
    tolerations: tuple[Toleration, ...] = ()
    for name in assigned.flavors:
        if name not in flavors:
            raise MissingFlavor(f"ResourceFlavor {name!r} of pod set {assigned.name!r} does not exist")
        selector |= flavors[name].node_labels
        tolerations += flavors[name].tolerations
    annotations = {names.WORKLOAD_ANNOTATION: start.workload}
    if assigned.has_topology and not assigned.asks_topology:
        annotations[names.PODSET_UNCONSTRAINED_TOPOLOGY] = "true"
    labels = {names.PODSET_LABEL: assigned.name}
    if start.on_worker_cluster:
        labels[names.MULTIKUEUE_WORKER_POD_LABEL] = "true"
    if start.queue and len(start.queue) <= _POD_INDEX_LIMIT:
        labels[names.LOCAL_QUEUE_NAME_LABEL] = start.queue
    if not dns_label_errors(start.cluster_queue):
        labels[names.CLUSTER_QUEUE_NAME_LABEL] = start.cluster_queue
    info = PodSetInfo(
        name=assigned.name,
        count=assigned.count,
        labels=labels,
        annotations=annotations,
        node_selector=selector,
        tolerations=tolerations,
        scheduling_gates=(names.TOPOLOGY_SCHEDULING_GATE,) if assigned.has_topology else (),
    )
    for updates in start.updates:
        update = next((u for u in updates if u.name == assigned.name), None)
        if update is not None:
            info = merged(info, update)
    return info


def merged(info: PodSetInfo, update: PodSetInfo) -> PodSetInfo:
    """`info` with the update of an admission check. Raises MergeConflict."""
    try:
        return msgspec.structs.replace(
            info,
            annotations=_union("annotations", info.annotations, update.annotations),
            labels=_union("labels", info.labels, update.labels),
            node_selector=_union("nodeSelector", info.node_selector, update.node_selector),
            tolerations=_with_tolerations(info.tolerations, update.tolerations),
            scheduling_gates=_with_names(info.scheduling_gates, update.scheduling_gates),
        )
    except MergeConflict as conflict:
        raise MergeConflict(f"invalid admission check PodSetUpdate: {conflict}") from conflict


class _Placement(ApiStruct, frozen=True, kw_only=True):
    node_selector: dict[str, str] = msgspec.field(default_factory=dict)
    tolerations: tuple[Toleration, ...] = ()
    scheduling_gates: tuple[SchedulingGate, ...] = ()


def template_info(name: str, count: int, template: JsonObject) -> PodSetInfo:
    """What `template` itself says: the data to restore it from."""
    meta = view(template, TemplateMeta, "metadata")
    spec = view(template, _Placement, "spec")
    return PodSetInfo(
        name=name,
        count=count,
        labels=meta.labels,
        annotations=meta.annotations,
        node_selector=spec.node_selector,
        tolerations=spec.tolerations,
        scheduling_gates=tuple(gate.name for gate in spec.scheduling_gates),
    )


def merged_template(template: JsonObject, info: PodSetInfo) -> JsonObject:
    """A copy of the pod template with the info merged in. Raises MergeConflict."""
    own = template_info(info.name, info.count, template)
    if names.WORKLOAD_SLICE_NAME in info.annotations:
        # A new slice takes over from whatever slice the template was started for last.
        stale = {names.WORKLOAD_SLICE_NAME, names.WORKLOAD_ANNOTATION}
        kept = {key: value for key, value in own.annotations.items() if key not in stale}
        own = msgspec.structs.replace(own, annotations=kept)
    result = replaced(template, ("metadata", "annotations"), _union("annotations", own.annotations, info.annotations))
    result = replaced(result, ("metadata", "labels"), _union("labels", own.labels, info.labels))
    result = replaced(result, ("spec", "nodeSelector"), _union("nodeSelector", own.node_selector, info.node_selector))
    # Lists that gain nothing keep the very bytes they have: fields we do not know must survive.
    tolerations = _with_tolerations(own.tolerations, info.tolerations)
    if len(tolerations) > len(own.tolerations):
        added = [msgspec.to_builtins(t) for t in tolerations[len(own.tolerations) :]]
        result = replaced(result, ("spec", "tolerations"), [*_list(template, "tolerations"), *added])
    gates = _with_names(own.scheduling_gates, info.scheduling_gates)
    if len(gates) > len(own.scheduling_gates):
        result = replaced(result, ("spec", "schedulingGates"), [{"name": gate} for gate in gates])
    return result


def restored_template(template: JsonObject, original: JsonObject, surviving_labels: Container[str] = ()) -> JsonObject:
    """A copy of the template whose labels, annotations, node selector, tolerations and scheduling gates are those of `original`, exactly (an empty one
    stays empty, an absent one absent); labels named in `surviving_labels` stay as the template has them."""
    result = dict(template)
    for part, keys in _INJECTED.items():
        own, wanted = section(template, part), section(original, part)
        restored = {key: value for key, value in own.items() if key not in keys}
        restored |= {key: wanted[key] for key in keys if key in wanted}
        if part == "metadata" and (
            surviving := {k: v for k, v in texts(own, "labels").items() if k in surviving_labels}
        ):
            restored["labels"] = texts(wanted, "labels") | surviving
        if restored or part in original:
            result[part] = restored
        else:
            result.pop(part, None)
    return result


def info_fields(info: PodSetInfo) -> tuple[JsonObject, JsonObject]:
    """The info as (metadata, spec) of a pod template, without what is empty."""
    merged = merged_template({}, info)
    return section(merged, "metadata"), section(merged, "spec")


def _list(template: JsonObject, key: str) -> list[object]:
    value = section(template, "spec").get(key)
    return list(value) if isinstance(value, list) else []


def _union(what: str, ours: Mapping[str, str], theirs: Mapping[str, str]) -> dict[str, str]:
    for key, value in sorted(theirs.items()):
        if key in ours and ours[key] != value:
            raise MergeConflict(f"conflict for {what}: conflict for key={key}, value1={ours[key]}, value2={value}")
    return {**ours, **theirs}


def _same(one: Toleration, other: Toleration) -> bool:
    return (one.key, one.effect, one.operator or "Equal", one.value) == (
        other.key,
        other.effect,
        other.operator or "Equal",
        other.value,
    )


def _with_tolerations(ours: Sequence[Toleration], theirs: Sequence[Toleration]) -> tuple[Toleration, ...]:
    result = list(ours)
    for toleration in theirs:
        if not any(_same(toleration, known) for known in result):
            result.append(toleration)
    return tuple(result)


def _with_names(ours: Sequence[str], theirs: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*ours, *theirs)))
