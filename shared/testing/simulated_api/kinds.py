"""What the simulated API server knows of a kind: status subresource, generation, defaults, rules. One row each; anything else is kept as it comes.

The rows of our own kinds are made from their definitions (shared.api.crd_kinds), so the simulation follows them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import msgspec

from shared.api import names
from shared.api.crd import structural_schema
from shared.api.crd_kinds import KINDS
from shared.jobs.manifest import JsonObject
from shared.kube import resources
from shared.kube.resources import Resource
from shared.testing.simulated_api import defaults, update_rules
from shared.testing.simulated_api.storage import CollectionKey, collection_of
from shared.testing.simulated_api.update_rules import Rule


def _nothing(_: JsonObject | None, __: JsonObject) -> str:
    return ""


def _unfilled(document: JsonObject, _: JsonObject | None) -> JsonObject:
    return document


def _same(document: JsonObject) -> JsonObject:
    return document


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """`custom`: of a CustomResourceDefinition. `status`: it has that subresource, and its generation counts changes outside it.

    `unconditional`: a PUT need not name a version. `fill` adds defaults, `complete` what is made once, from name and uid; `refuses` gives the fault of
    a change, empty for none.
    """

    custom: bool = False
    status: bool = False
    generation: bool = False
    unconditional: bool = True
    fill: defaults.Fill = _unfilled
    complete: Callable[[JsonObject], JsonObject] = _same
    refuses: Rule = _nothing


def _named(namespace: JsonObject) -> JsonObject:
    metadata = namespace["metadata"]
    assert isinstance(metadata, dict)
    labels = {**(metadata.get("labels") or {}), "kubernetes.io/metadata.name": metadata["name"]}
    return {
        **namespace,
        "metadata": {**metadata, "labels": labels},
        "spec": {"finalizers": ["kubernetes"]},
        "status": {"phase": "Active"},
    }


_JOB = Kind(
    status=True,
    generation=True,
    fill=defaults.fill_job,
    complete=defaults.own_pods,
    refuses=update_rules.job,
)
_CUSTOM = Kind(custom=True, generation=True, unconditional=False)
_BUILT_IN: Mapping[CollectionKey, Kind] = {
    collection_of(resources.JOBS): _JOB,
    collection_of(resources.NAMESPACES): Kind(status=True, complete=_named),
    collection_of(resources.POD_TEMPLATES): Kind(generation=True),
    collection_of(resources.PRIORITY_CLASSES): Kind(generation=True),
    collection_of(resources.VALIDATING_WEBHOOKS): Kind(generation=True, unconditional=False),
    collection_of(resources.MUTATING_WEBHOOKS): Kind(generation=True, unconditional=False),
    collection_of(resources.LEASES): Kind(unconditional=False),
    collection_of(resources.PROVISIONING_REQUESTS): msgspec.structs.replace(_CUSTOM, status=True),
    ("", "pods"): Kind(status=True, generation=True),
    ("", "nodes"): Kind(status=True),
}
_RULES: Mapping[str, Rule] = {
    names.WORKLOAD: update_rules.workload,
    names.LOCAL_QUEUE: partial(update_rules.immutable, "clusterQueue"),
    names.ADMISSION_CHECK: partial(update_rules.immutable, "controllerName"),
}
_OWN: Mapping[CollectionKey, Kind] = {
    (names.GROUP, crd.plural): Kind(
        custom=True,
        status=crd.status,
        generation=True,
        unconditional=False,
        fill=next(
            (
                fill
                for version in crd.versions
                if version.storage and (fill := defaults.filler(structural_schema(version.struct)))
            ),
            _unfilled,
        ),
        refuses=_RULES.get(crd.kind, _nothing),
    )
    for crd in KINDS
}
_TABLE: Mapping[CollectionKey, Kind] = {**_BUILT_IN, **_OWN}
_PLAIN = Kind()


def kind_of(resource: Resource) -> Kind:
    """The row of a resource; groups with a dot that are not Kubernetes' own are taken for custom ones."""
    found = _TABLE.get((resource.group, resource.plural))
    if found is not None:
        return found
    return _CUSTOM if "." in resource.group and not resource.group.endswith(".k8s.io") else _PLAIN
