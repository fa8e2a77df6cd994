"""The chart's templates and values schema out of the kustomize manifests and our tables.

Each overlay is a variant of `overlays/default`: what differs stands in the template under the condition of that overlay, found by `nodes.merged`.
What a person may set is in `places` (where it goes) and `values` (what it may be).
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from cli.chart import nodes, places, values
from cli.chart.nodes import Inline, Variant, When
from cli.chart.places import Document

Render = Callable[[str], Iterable[Document]]
"""All objects of a kustomization below k8s/."""
BASE = "overlays/default"
HEADER = "{{- /* Generated from the kustomize manifests by `make chart`; do not edit. */}}\n"

_EMBEDDED = 'eq .Values.nats.mode "embedded"'
_CLUSTER = "gt (int .Values.nats.embedded.replicas) 1"
_CA = 'include "sluice.natsCaSecret" .'
_FAILURE_RECOVERY = 'include "sluice.failureRecovery" .'
_CONFIGURED = ".Values.managerConfig.controllerManagerConfigYaml"
_CERT_MANAGER, _PROMETHEUS = ".Values.enableCertManager", ".Values.enablePrometheus"
_SERVICES = (("overlays/external-nats", _CA), ("overlays/configured", _CONFIGURED))
_NATS = (("overlays/ha", _CLUSTER), ("overlays/dev", "not .Values.nats.embedded.persistence.enabled"))
_CERTIFICATES = (("overlays/cert-manager", _CERT_MANAGER),)
VARIANTS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "Deployment": (*_SERVICES, *_CERTIFICATES),
    "StatefulSet": _NATS,
    "Job": _NATS[:1],
    "Role": _NATS[:1],
    "CustomResourceDefinition": _CERTIFICATES,
    "MutatingWebhookConfiguration": _CERTIFICATES,
    "ValidatingWebhookConfiguration": _CERTIFICATES,
}
"""Which overlays an object of a kind is to be compared with, and when the chart is like them."""
ADDED = (
    ("overlays/ha", _CLUSTER),
    ("overlays/prometheus", _PROMETHEUS),
    ("overlays/cert-manager", _CERT_MANAGER),
    ("overlays/failure-recovery", _FAILURE_RECOVERY),
)
"""Overlays that have objects of their own."""
_CONDITIONS = {
    "CustomResourceDefinition": ".Values.crds.install",
    "NetworkPolicy": ".Values.networkPolicies.enabled",
    "PriorityClass": ".Values.priorityClass.create",
    "Issuer": "not .Values.certManager.issuerRef",
}
_FILES = {
    "Deployment": "services",
    "PodDisruptionBudget": "services",
    "NetworkPolicy": "network-policies",
    "PriorityClass": "priorities",
    "PriorityLevelConfiguration": "priorities",
    "FlowSchema": "priorities",
    "MutatingWebhookConfiguration": "webhooks",
    "ValidatingWebhookConfiguration": "webhooks",
}
Key = tuple[str, str]


def files(render: Render) -> dict[str, str]:
    """Path below the chart's folder -> content, of all that is generated."""
    base = _objects(render, BASE)
    without_nats = _objects(render, "overlays/external-nats")
    others = {folder: _objects(render, folder) for folder in _folders()}
    written: dict[str, list[str]] = {"services": [_settings(base, others)]}
    for key, document in base.items():
        if key[0] in ("Namespace", "ConfigMap"):
            continue
        variants: list[Variant] = [
            (condition, others[folder][key]) for folder, condition in VARIANTS.get(key[0], ()) if key in others[folder]
        ]
        conditions = [_CONDITIONS.get(key[0], "")]
        nats = key not in without_nats
        if nats:
            conditions.append(_EMBEDDED)
        written.setdefault(_file(key, nats), []).append(_document(nodes.merged(document, *variants), conditions))
    for folder, condition in ADDED:
        for key, document in others[folder].items():
            if key in base or key[0] == "ConfigMap":
                continue
            conditions = [_CONDITIONS.get(key[0], ""), condition]
            name = folder.rpartition("/")[2]
            if name == "ha":
                name, conditions = "nats", [*conditions, _EMBEDDED]
            written.setdefault(name, []).append(_document(document, conditions))
    templates = {f"templates/{name}.yaml": HEADER + "".join(parts) for name, parts in written.items()}
    return {**templates, "values.schema.json": json.dumps(values.schema(), indent=2) + "\n"}


def _folders() -> set[str]:
    return {folder for pairs in (*VARIANTS.values(), ADDED) for folder, _ in pairs}


def _objects(render: Render, folder: str) -> dict[Key, Document]:
    found: dict[Key, Document] = {}
    for document in render(folder):
        kind, name = document["kind"], document["metadata"]["name"]
        if kind == "ConfigMap":
            name = name.rpartition("-")[0]
        found[kind, name] = places.with_values(copy.deepcopy(document))
    return found


def _file(key: Key, nats: bool) -> str:
    kind, name = key
    match kind:
        case "CustomResourceDefinition":
            return f"crds/{name}"
        case _ if kind in _FILES:
            return _FILES[kind]
        case "ClusterRole" if name.startswith("kueue-"):
            return "user-roles"
        case _ if nats:
            return "nats"
        case "Service":
            return "services"
        case "StatefulSet" | "Job":
            return "nats"
        case _:
            return "accounts"


def _document(document: Any, conditions: Iterable[str]) -> str:
    wanted = [c for c in conditions if c]
    inner = "---\n" + nodes.text(document)
    if not wanted:
        return inner
    condition = wanted[0] if len(wanted) == 1 else f"and {' '.join(f'({c})' for c in wanted)}"
    return f"{{{{- if {condition} }}}}\n{inner}{{{{- end }}}}\n"


def _settings(base: Mapping[Key, Document], others: Mapping[str, Mapping[Key, Document]]) -> str:
    """The ConfigMaps, and as a named template what the first holds, for the checksum of the pods."""
    key: Key = ("ConfigMap", places.SETTINGS)
    shared = base[key]
    data = dict(shared["data"])
    data["SLUICE_NATS_URL"] = Inline('{{ include "sluice.natsUrl" . }}')
    data["SLUICE_LOG_LEVEL"] = Inline("{{ .Values.logLevel }}")
    data["SLUICE_NATS_CA_FILE"] = When('include "sluice.natsCaFile" .', Inline('{{ include "sluice.natsCaFile" . }}'))
    replicas = others["overlays/ha"][key]["data"]["SLUICE_NATS_STREAM_REPLICAS"]
    data["SLUICE_NATS_STREAM_REPLICAS"] = When(f"and ({_EMBEDDED}) ({_CLUSTER})", replicas)
    path = others["overlays/configured"][key]["data"]["SLUICE_CONFIGURATION"]
    data["SLUICE_CONFIGURATION"] = When(_CONFIGURED, path)
    data["SLUICE_FEATURE_GATES"] = When(".Values.featureGates", Inline('{{ include "sluice.featureGates" . }}'))
    own = f'{{{{- define "sluice.ownSettings" }}}}\n{nodes.text(data)}{{{{- end }}}}\n'
    # What is set by hand wins.
    given = 'merge (deepCopy .Values.settings) (include "sluice.ownSettings" . | fromYaml)'
    whole = f'{{{{- define "sluice.settings" }}}}\n{{{{- toYaml ({given}) }}}}\n{{{{- end }}}}\n'
    metadata = {**shared["metadata"], "name": places.SETTINGS}
    settings = nodes.text({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
    settings += 'data:\n  {{- include "sluice.settings" . | nindent 2 }}\n'
    configuration = others["overlays/configured"]["ConfigMap", places.CONFIGURATION]
    (file,) = configuration["data"]
    configuration["metadata"]["name"] = places.CONFIGURATION
    text = nodes.text({k: v for k, v in configuration.items() if k != "data"})
    text += f"data:\n  {file}: |\n    {{{{- {_CONFIGURED} | nindent 4 }}}}\n"
    return f"{own}{whole}---\n{settings}{{{{- if {_CONFIGURED} }}}}\n---\n{text}{{{{- end }}}}\n"
