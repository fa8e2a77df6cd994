"""Where values go in the manifests: the same places in every variant, so that `merged` sees no difference there."""

from __future__ import annotations

from typing import Any

from cli.chart.nodes import Inline, Node, Values, When

Document = dict[str, Any]
IMAGE, NATS_IMAGE = "ghcr.io/sluice/sluice", "docker.io/library/nats"
SETTINGS, CONFIGURATION = "sluice-settings", "kueue-manager-config"
SECRET_PREFIX = "sluice-nats"
"""Of the Secrets with passwords: `sluice-nats-<service>`."""
CA_SECRET = "sluice-nats-ca"
BUS_ONLY = "sluice-bus-only"


def value_name(service: str) -> str:
    """`queue-manager` or `queue_manager` -> `queueManager`."""
    first, *rest = service.replace("_", "-").split("-")
    return first + "".join(part.capitalize() for part in rest)


def with_values(document: Document) -> Document:
    """The object with its values' places; changes `document`."""
    match document["kind"], document["metadata"]["name"]:
        case "Deployment", name:
            _deployment(document, value_name(name.removeprefix("sluice-")))
        case "StatefulSet", _:
            _nats_server(document)
        case "Job", name:
            # A Job cannot be changed: each revision has its own.
            document["metadata"]["name"] = Inline(f"{name}-{{{{ .Release.Revision }}}}")
            _pod(document["spec"]["template"]["spec"])
            _image(document, IMAGE)
        case "PriorityClass", _:
            document["metadata"]["name"] = Inline("{{ .Values.priorityClass.name }}")
        case "NetworkPolicy", name if name == BUS_ONLY:
            (rule,) = document["spec"]["egress"]
            names = [port for port in rule["ports"] if port["port"] == 53]
            rule["ports"] = [*names, Values('include "sluice.egressPorts" . | fromYamlArray')]
        case "RoleBinding", "prometheus-k8s":
            document["subjects"][0]["namespace"] = Inline("{{ .Values.metrics.prometheusNamespace }}")
        case "Certificate", _:
            issuer = document["spec"].pop("issuerRef")
            document["spec"]["issuerRef"] = When(
                "not .Values.certManager.issuerRef", issuer, Values(".Values.certManager.issuerRef")
            )
        case "CustomResourceDefinition", _:
            # Without it, uninstalling would delete every queue and workload of the cluster.
            document["metadata"].setdefault("annotations", {})["helm.sh/resource-policy"] = "keep"
        case _:
            pass
    return document


def _deployment(document: Document, service: str) -> None:
    own = f".Values.services.{service}"
    spec = document["spec"]
    spec["replicas"] = Inline(f"{{{{ {own}.replicas }}}}")
    template = spec["template"]
    template["metadata"]["annotations"] = {
        **template["metadata"]["annotations"],
        "sluice.dev/settings-checksum": Inline('{{ include "sluice.settings" . | sha256sum }}'),
        "sluice.dev/configuration-checksum": When(
            ".Values.managerConfig.controllerManagerConfigYaml",
            Inline("{{ .Values.managerConfig.controllerManagerConfigYaml | sha256sum }}"),
        ),
    }
    _pod(template["spec"])
    _image(document, IMAGE)
    (container,) = template["spec"]["containers"]
    container["resources"] = Values(f"{own}.resources")
    (source,) = container["envFrom"]
    source["configMapRef"]["name"] = SETTINGS
    for volume in template["spec"]["volumes"]:
        if volume["name"] == "nats-credentials":
            ending = volume["secret"]["secretName"].removeprefix(SECRET_PREFIX)
            volume["secret"]["secretName"] = Inline(f'{{{{ include "sluice.secretPrefix" . }}}}{ending}')
        elif volume["name"] == "nats-ca":
            volume["secret"]["secretName"] = Inline('{{ include "sluice.natsCaSecret" . }}')
        elif volume["name"] == "configuration":
            volume["configMap"]["name"] = CONFIGURATION


def _nats_server(document: Document) -> None:
    _pod(document["spec"]["template"]["spec"])
    _image(document, NATS_IMAGE)
    (container,) = document["spec"]["template"]["spec"]["containers"]
    container["resources"] = Values(".Values.nats.embedded.resources")
    for claim in document["spec"].get("volumeClaimTemplates", ()):
        claim["spec"]["resources"]["requests"]["storage"] = Inline("{{ .Values.nats.embedded.persistence.size }}")
        claim["spec"]["storageClassName"] = When(
            ".Values.nats.embedded.persistence.storageClassName",
            Inline("{{ .Values.nats.embedded.persistence.storageClassName }}"),
        )


def _pod(spec: Document) -> None:
    spec["priorityClassName"] = Inline("{{ .Values.priorityClass.name }}")
    spec["imagePullSecrets"] = Values(".Values.image.pullSecrets")
    spec["nodeSelector"] = Values(".Values.nodeSelector")
    more: list[Node] = [*spec.get("tolerations", ()), Values(".Values.tolerations")]
    spec["tolerations"] = more if len(more) > 1 else more[0]


def _image(document: Document, repository: str) -> None:
    (container,) = document["spec"]["template"]["spec"]["containers"]
    if container["image"].rpartition(":")[0] != repository:
        raise ValueError(f"{container['image']}: not {repository}")
    ours = repository == IMAGE
    container["image"] = Inline('{{ include "sluice.image" . }}' if ours else "{{ .Values.nats.embedded.image }}")
    container["imagePullPolicy"] = Inline("{{ .Values.image.pullPolicy }}")
