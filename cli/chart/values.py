"""What may be set in the chart: the shape of values.yaml, which values.schema.json is made from. Defaults and explanations are in values.yaml.

Helm checks values against the schema before it renders anything, and names the path of what it refuses. Unknown names are refused everywhere, so
that a misspelt one does not pass unseen.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from cli.chart.places import value_name
from shared.config.gate_table import GATES
from shared.events.streams import REPLICAS, SERVICES

Name = Annotated[str, Meta(pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", max_length=253)]
MaybeName = Annotated[str, Meta(pattern=r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$", max_length=253)]
Image = Annotated[str, Meta(pattern=r"^[a-z0-9][\w./:-]*$")]
Amount = Annotated[str, Meta(pattern=r"^[0-9]+(\.[0-9]+)?(m|k|Ki|M|Mi|G|Gi|T|Ti)?$")] | Annotated[float, Meta(ge=0)]
Port = Annotated[int, Meta(ge=1, le=65535)]
# Half of what there are numbers for: a rolling update starts as many again.
Replicas = Annotated[int, Meta(ge=1, le=REPLICAS // 2)]
Labels = dict[str, str]


class Strict(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Refuses names that it does not know."""


class SecretName(Strict):
    """As in a pod's imagePullSecrets."""

    name: Name


class ImageValues(Strict):
    """Sluice's own image; `tag` empty: that of the chart's appVersion."""

    repository: Image
    tag: Annotated[str, Meta(pattern=r"^[\w.-]*$", max_length=128)]
    pullPolicy: Literal["Always", "IfNotPresent", "Never"]
    pullSecrets: list[SecretName]


class Resources(Strict):
    """Requests are always there: a pod without them is the first to go."""

    requests: dict[str, Amount]
    limits: dict[str, Amount] | None = None


class Service(Strict):
    """One of Sluice's services."""

    replicas: Replicas
    resources: Resources


class Persistence(Strict):
    """The disk of an embedded server."""

    enabled: bool
    size: Annotated[str, Meta(pattern=r"^[1-9][0-9]*(Gi|Ti|G|T)$")]
    storageClassName: MaybeName


class EmbeddedNats(Strict):
    """One server, or three with TLS and each stream on all of them."""

    image: Image
    replicas: Literal[1, 3]
    resources: Resources
    persistence: Persistence


class ExternalNats(Strict):
    """A NATS of your own. Its passwords are in the Secrets `<secretPrefix>-<service>`, key `password`."""

    url: Annotated[str, Meta(pattern=r"^((nats|tls)://[^,\s]+(,(nats|tls)://[^,\s]+)*)?$")]
    secretPrefix: Name
    caSecret: MaybeName


class Nats(Strict):
    """Which NATS."""

    mode: Literal["embedded", "external"]
    embedded: EmbeddedNats
    external: ExternalNats


class IssuerRef(Strict):
    """As in a Certificate of cert-manager."""

    name: str | None = None
    kind: str | None = None
    group: str | None = None


class CertManager(Strict):
    """Empty `issuerRef`: a self-signed issuer of its own."""

    issuerRef: IssuerRef


class ManagerConfig(Strict):
    """Kueue's configuration file, as text; the name is that of Kueue's chart."""

    controllerManagerConfigYaml: str


class Metrics(Strict):
    """Where the Prometheus of enablePrometheus runs."""

    prometheusNamespace: Name


class Crds(Strict):
    """Off: somebody else installs the definitions."""

    install: bool


class PriorityClass(Strict):
    """Of all pods. Without `create`, one that is there: system-cluster-critical, for example."""

    create: bool
    name: Name


class NetworkPolicies(Strict):
    """`egressPorts`: where the services without Kubernetes credentials may connect to, besides DNS."""

    enabled: bool
    egressPorts: list[Port]


class Toleration(Strict):
    """As in a pod."""

    key: str | None = None
    operator: Literal["Exists", "Equal"] | None = None
    value: str | None = None
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    tolerationSeconds: int | None = None


_Services = msgspec.defstruct("_Services", [(value_name(s), Service) for s in SERVICES], bases=(Strict,), kw_only=True)


class Values(Strict):
    """values.yaml. `global` is Helm's own."""

    image: ImageValues
    crds: Crds
    services: _Services  # type: ignore[valid-type]
    nats: Nats
    managerConfig: ManagerConfig
    featureGates: dict[str, bool]
    logLevel: Literal["DEBUG", "INFO", "WARNING", "ERROR"]
    settings: dict[str, str]
    enableCertManager: bool
    certManager: CertManager
    enablePrometheus: bool
    metrics: Metrics
    priorityClass: PriorityClass
    networkPolicies: NetworkPolicies
    nodeSelector: Labels
    tolerations: list[Toleration]
    global_: dict[str, Any] | None = msgspec.field(name="global", default=None)


def schema() -> dict[str, Any]:
    """The JSON schema, with what a Struct cannot say: the names of gates and their locks, and that an external NATS has a URL."""
    made = msgspec.json.schema(Values)
    definitions = made["$defs"]
    gates: dict[str, Any] = {
        name: {"type": "boolean", **({"const": gate.default} if gate.locked else {})} for name, gate in GATES.items()
    }
    groups = {name: {"type": "boolean"} for name in ("AllAlpha", "AllBeta")}
    definitions["Values"]["properties"]["featureGates"] = {
        "type": "object",
        "properties": dict(sorted((gates | groups).items())),
        "additionalProperties": False,
    }
    # Not `propertyNames`: Helm names the wrong field when one of those is refused.
    definitions["Values"]["properties"]["settings"] = {
        "type": "object",
        "patternProperties": {"^SLUICE_[A-Z0-9_]+$": {"type": "string"}},
        "additionalProperties": False,
    }
    definitions["Nats"]["if"] = {"properties": {"mode": {"const": "external"}}}
    definitions["Nats"]["then"] = {"properties": {"external": {"properties": {"url": {"minLength": 1}}}}}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **made}
