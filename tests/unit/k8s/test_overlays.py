"""The overlays against base and the code: each builds, keeps what base promises, and changes what it is for."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from cli.nats_credentials import CA_SECRET, TLS_FOLDER, TLS_SECRET, hosts_of, server_of
from services.watcher.settings import WatcherSettings
from services.webhook.settings import WebhookSettings
from shared.api.crd_kinds import KINDS
from shared.config.configuration_file import load as load_configuration
from shared.config.settings import load
from shared.events.streams import REPLICAS, SERVICES
from tests.unit.k8s import test_manifests as manifests
from tests.unit.k8s.dashboard import expression
from tests.unit.k8s.rendered import ROOT, Document, key, of_kind, pod_specs, render

OVERLAYS = tuple(
    f"overlays/{name}"
    for name in (
        "default",
        "dev",
        "ha",
        "prometheus",
        "cert-manager",
        "multi-replica",
        "configured",
        "failure-recovery",
    )
)
HA, PROMETHEUS, CERT_MANAGER = "overlays/ha", "overlays/prometheus", "overlays/cert-manager"
CONFIGURED = "overlays/configured"
NAMESPACE = manifests.NAMESPACE


def test_every_overlay_is_tested() -> None:
    there = {f"overlays/{p.name}" for p in (ROOT / "k8s" / "overlays").iterdir()}
    assert there == {*OVERLAYS, "overlays/external-nats"}


@pytest.mark.parametrize("folder", OVERLAYS)
def test_what_base_promises_holds(folder: str) -> None:
    manifests.test_pods_are_restricted(folder)
    manifests.test_only_those_that_need_it_get_a_token(folder)
    manifests.test_priority_class_and_flow_schemas(folder)
    manifests.test_objects_are_labelled_and_unique(folder)
    assert _names("base") <= _names(folder)
    assert not list(of_kind(render(folder), "Secret"))


def _names(folder: str) -> set[str]:
    """Without the ConfigMap, whose name changes with what it says."""
    return {key(o) for o in render(folder) if o["kind"] != "ConfigMap"}


@pytest.mark.parametrize("service", SERVICES)
@pytest.mark.parametrize("folder", OVERLAYS)
def test_settings_are_accepted_and_files_are_mounted(folder: str, service: str) -> None:
    workload = manifests.service_workload(folder, service)
    settings = load(manifests.SETTINGS[service], service, SERVICES, manifests.environment(folder, workload))
    mounts = {m["mountPath"] for m in manifests.container(workload)["volumeMounts"]}
    for file in (settings.nats_password_file, settings.nats_ca_file, settings.configuration):
        assert not file or file.rpartition("/")[0] in mounts
    assert bool(settings.configuration) == (folder == CONFIGURED)
    assert bool(settings.nats_ca_file) == settings.nats_url.startswith("tls://") == (folder == HA)
    assert settings.nats_stream_replicas == (3 if folder == HA else 1)
    assert settings.log_level == ("DEBUG" if folder == "overlays/dev" else "INFO")
    if isinstance(settings, WatcherSettings):
        assert settings.manage_certificates is (folder != CERT_MANAGER)


@pytest.mark.parametrize("folder", OVERLAYS)
def test_no_more_instances_than_there_are_numbers_for(folder: str) -> None:
    for service in SERVICES:
        assert manifests.service_workload(folder, service)["spec"]["replicas"] <= REPLICAS


@pytest.mark.parametrize("folder", OVERLAYS)
def test_volumes_that_are_mounted_are_there(folder: str) -> None:
    claims = {
        key(o): {c["metadata"]["name"] for c in o["spec"].get("volumeClaimTemplates", ())}
        for o in of_kind(render(folder), "StatefulSet")
    }
    for name, template in pod_specs(render(folder)).items():
        there = {v["name"] for v in template["spec"].get("volumes", ())} | claims.get(name, set())
        for one in template["spec"]["containers"]:
            assert {m["name"] for m in one.get("volumeMounts", ())} == there, name


@pytest.mark.parametrize("folder", OVERLAYS)
def test_each_pod_has_exactly_one_budget(folder: str) -> None:
    budgets = [b["spec"]["selector"] for b in of_kind(render(folder), "PodDisruptionBudget")]
    for name, (labels, _) in _pods(folder).items():
        # The eviction API refuses a pod that two budgets cover.
        assert sum(_selects(b, labels) for b in budgets) == (0 if name == "sluice-nats-credentials" else 1), name


# Who may speak to whom.


def _selects(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    return manifests._selected(selector, labels)


def _admitted(folder: str, labels: dict[str, str], ports: dict[str, int], port: int, sender: dict[str, str]) -> bool:
    """Whether a pod with these labels and ports hears a pod of this namespace with `sender`'s labels on `port`."""
    policies = [
        p["spec"]
        for p in of_kind(render(folder), "NetworkPolicy")
        if "Ingress" in p["spec"]["policyTypes"] and _selects(p["spec"]["podSelector"], labels)
    ]
    for rule in (rule for spec in policies for rule in spec.get("ingress", ())):
        open_ports = {ports.get(p["port"], p["port"]) for p in rule["ports"]}
        senders = rule.get("from")
        who = senders is None or any(_selects(s.get("podSelector", {}), sender) for s in senders)
        if port in open_ports and who:
            return True
    return not policies


def _pods(folder: str) -> dict[str, tuple[dict[str, str], dict[str, int]]]:
    """Short name -> labels, ports by name."""
    return {
        name.rpartition("/")[2]: (
            template["metadata"]["labels"],
            {p["name"]: p["containerPort"] for one in template["spec"]["containers"] for p in one.get("ports", ())},
        )
        for name, template in pod_specs(render(folder)).items()
    }


@pytest.mark.parametrize("folder", [*OVERLAYS, "base"])
def test_policies_let_through_what_is_needed_and_no_more(folder: str) -> None:
    pods = _pods(folder)
    stranger: dict[str, str] = {"app": "stranger"}
    server, server_ports = pods["sluice-nats"]
    for name, (labels, ports) in pods.items():
        assert _admitted(folder, server, server_ports, 4222, labels), name
        if name != "sluice-nats" and ports:
            assert _admitted(folder, labels, ports, ports["health"], stranger), name
        assert not _admitted(folder, labels, ports, 9999, stranger), name
    webhook, webhook_ports = pods["sluice-webhook"]
    for name in ("webhook", "metrics"):
        assert _admitted(folder, webhook, webhook_ports, webhook_ports[name], stranger), name
    assert not _admitted(folder, server, server_ports, 4222, stranger)
    assert _admitted(folder, server, server_ports, 4222, {"sluice.dev/reads-events": "true"})
    assert _admitted(folder, server, server_ports, 6222, server)
    assert not _admitted(folder, server, server_ports, 6222, webhook)


@pytest.mark.parametrize("folder", [*OVERLAYS, "base", "overlays/external-nats"])
def test_who_has_no_kubernetes_credentials_reaches_the_bus_only(folder: str) -> None:
    egress = [p["spec"] for p in of_kind(render(folder), "NetworkPolicy") if "Egress" in p["spec"]["policyTypes"]]
    for service in SERVICES:
        workload = manifests.service_workload(folder, service)
        labels = workload["spec"]["template"]["metadata"]["labels"]
        rules = [r for spec in egress if _selects(spec["podSelector"], labels) for r in spec["egress"]]
        open_ports = {p["port"] for rule in rules for p in rule["ports"]}
        if workload["spec"]["template"]["spec"]["automountServiceAccountToken"]:
            assert not rules
        else:
            settings = load(manifests.SETTINGS[service], service, SERVICES, manifests.environment(folder, workload))
            bus = {int(found) for found in re.findall(r":(\d+)(?=,|$)", settings.nats_url)}
            assert bus <= open_ports
            assert not {443, 6443} & open_ports


# What each is for.


def test_ha_is_a_cluster_as_the_credentials_job_configures_it() -> None:
    objects = render(HA)
    server = next(o for o in of_kind(objects, "StatefulSet") if o["metadata"]["name"] == "sluice-nats")
    shipped = server_of(NAMESPACE, server["spec"]["replicas"])
    assert shipped.cluster is not None
    headless = next(o for o in of_kind(objects, "Service") if o["metadata"]["name"] == server["spec"]["serviceName"])
    assert headless["spec"]["clusterIP"] == "None"
    assert headless["spec"]["publishNotReadyAddresses"] is True
    names = [f"sluice-nats-{n}.{headless['metadata']['name']}.{NAMESPACE}.svc" for n in range(3)]
    assert [f"tls://{name}:6222" for name in names] == list(shipped.cluster.routes)
    watcher = manifests.environment(HA, manifests.service_workload(HA, "watcher"))
    assert watcher["SLUICE_NATS_URL"].split(",") == [f"tls://{name}:4222" for name in names]
    assert all(f"*.{name.partition('.')[2]}" in hosts_of(NAMESPACE) for name in names)
    assert server["spec"]["replicas"] == int(watcher["SLUICE_NATS_STREAM_REPLICAS"]) == 3
    one = manifests.container(server)
    assert one["command"][-2:] == ["--name", "$(POD_NAME)"]
    assert {p["containerPort"] for p in one["ports"]} >= {4222, 6222}
    volumes = {v["name"]: v.get("secret", {}).get("secretName") for v in server["spec"]["template"]["spec"]["volumes"]}
    (mounted,) = [m for m in one["volumeMounts"] if volumes.get(m["name"]) == TLS_SECRET]
    assert mounted["mountPath"] == TLS_FOLDER
    spread = {c["topologyKey"]: c for c in server["spec"]["template"]["spec"]["topologySpreadConstraints"]}
    assert spread["kubernetes.io/hostname"]["whenUnsatisfiable"] == "DoNotSchedule"
    job = next(o for o in of_kind(objects, "Job"))
    assert "--cluster=3" in manifests.container(job)["args"]
    for service in SERVICES:
        spec = manifests.service_workload(HA, service)["spec"]["template"]["spec"]
        assert CA_SECRET in [v["secret"]["secretName"] for v in spec["volumes"] if "secret" in v]
        # Its key is the servers' alone.
        assert TLS_SECRET not in [v["secret"]["secretName"] for v in spec["volumes"] if "secret" in v]


@pytest.mark.parametrize("folder", [HA, "overlays/multi-replica"])
def test_more_instances_of_what_answers(folder: str) -> None:
    assert manifests.service_workload(folder, "webhook")["spec"]["replicas"] == 3


def test_dev_needs_no_volume_and_asks_for_little() -> None:
    for name, template in pod_specs(render("overlays/dev")).items():
        requests = manifests.container({"spec": {"template": template}})["resources"]["requests"]
        assert requests == {"cpu": "20m", "memory": "64Mi"} or name.startswith("Job/"), name
    assert not [o for o in of_kind(render("overlays/dev"), "StatefulSet") if o["spec"].get("volumeClaimTemplates")]


def test_cert_manager_injects_where_the_api_server_looks() -> None:
    objects = render(CERT_MANAGER)
    (certificate,) = [o for o in of_kind(objects, "Certificate") if o["metadata"]["name"] == "serving-cert"]
    marked = {
        o["metadata"]["name"]: o["metadata"].get("annotations", {}).get("cert-manager.io/inject-ca-from", "")
        for o in of_kind(
            objects, "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration", "CustomResourceDefinition"
        )
    }
    converted = {f"{crd.plural}.kueue.x-k8s.io" for crd in KINDS if crd.converted}
    wanted = converted | {name for name in marked if name.endswith("-webhook-configuration")}
    assert {name for name, source in marked.items() if source} == wanted
    assert {marked[name] for name in wanted} == {f"{NAMESPACE}/{certificate['metadata']['name']}"}
    served = {
        f"{w['clientConfig']['service']['name']}.{NAMESPACE}.svc"
        for o in of_kind(objects, "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
        for w in o["webhooks"]
    } | {
        f"{o['spec']['conversion']['webhook']['clientConfig']['service']['name']}.{NAMESPACE}.svc"
        for o in of_kind(objects, "CustomResourceDefinition")
        if "webhook" in o["spec"]["conversion"]
    }
    assert served <= set(certificate["spec"]["dnsNames"])
    (role,) = [o for o in of_kind(objects, "Role") if o["metadata"]["name"] == "sluice-webhook"]
    assert role["rules"][0]["resourceNames"] == [certificate["spec"]["secretName"]]
    (issuer,) = of_kind(objects, "Issuer")
    assert certificate["spec"]["issuerRef"] == {"kind": "Issuer", "name": issuer["metadata"]["name"]}


def test_metrics_have_a_certificate_of_their_own_from_cert_manager() -> None:
    objects = render(CERT_MANAGER)
    (certificate,) = [o for o in of_kind(objects, "Certificate") if o["metadata"]["name"] == "metrics-cert"]
    workload = manifests.service_workload(CERT_MANAGER, "webhook")
    settings = load(WebhookSettings, "webhook", SERVICES, manifests.environment(CERT_MANAGER, workload))
    (mount,) = [
        m["name"]
        for m in manifests.container(workload)["volumeMounts"]
        if m["mountPath"] == settings.metrics_certificate_dir
    ]
    volumes = {v["name"]: v for v in workload["spec"]["template"]["spec"]["volumes"]}
    assert volumes[mount]["secret"]["secretName"] == certificate["spec"]["secretName"]
    ports = {p["name"]: p["containerPort"] for p in manifests.container(workload)["ports"]}
    (served,) = [
        o["metadata"]["name"]
        for o in of_kind(objects, "Service")
        if o["spec"]["ports"][0]["targetPort"] == "metrics" and ports["metrics"]
    ]
    assert f"{served}.{NAMESPACE}.svc" in certificate["spec"]["dnsNames"]
    assert certificate["spec"]["issuerRef"]["name"] in {o["metadata"]["name"] for o in of_kind(objects, "Issuer")}


def test_the_configuration_that_is_mounted_is_one_that_services_read(tmp_path: Path) -> None:
    objects = render(CONFIGURED)
    (shipped,) = [o for o in of_kind(objects, "ConfigMap") if o["metadata"]["name"].startswith("kueue-manager-config-")]
    for service in SERVICES:
        workload = manifests.service_workload(CONFIGURED, service)
        settings = load(manifests.SETTINGS[service], service, SERVICES, manifests.environment(CONFIGURED, workload))
        folder, _, name = settings.configuration.rpartition("/")
        (mount,) = [m["name"] for m in manifests.container(workload)["volumeMounts"] if m["mountPath"] == folder]
        volumes = workload["spec"]["template"]["spec"]["volumes"]
        (source,) = [v["configMap"]["name"] for v in volumes if v["name"] == mount]
        assert source == shipped["metadata"]["name"]
        file = tmp_path / name
        file.write_text(shipped["data"][name])
        assert load_configuration(str(file)).configuration == load_configuration().configuration


# Alerts.


def alerts() -> list[Document]:
    (rules,) = of_kind(render(PROMETHEUS), "PrometheusRule")
    return [rule for group in rules["spec"]["groups"] for rule in group["rules"]]


def test_the_monitor_finds_every_pod_of_a_service() -> None:
    objects = render(PROMETHEUS)
    (monitor,) = of_kind(objects, "ServiceMonitor")
    wanted = monitor["spec"]["selector"]["matchLabels"]
    (service,) = [o for o in of_kind(objects, "Service") if wanted.items() <= o["metadata"]["labels"].items()]
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint["port"] in {p["name"] for p in service["spec"]["ports"]}
    (target,) = {p["targetPort"] for p in service["spec"]["ports"]}
    for name in SERVICES:
        template = manifests.service_workload(PROMETHEUS, name)["spec"]["template"]
        assert service["spec"]["selector"].items() <= template["metadata"]["labels"].items()
        assert target in {p["name"] for p in template["spec"]["containers"][0]["ports"]}
        # Its label `service` is the name of the service, as the dashboard and the alerts have it.
        assert _relabelled(endpoint["relabelings"], template["metadata"]["labels"])["service"] == name


def _relabelled(rules: list[Document], labels: dict[str, str]) -> dict[str, str]:
    """What Prometheus makes of a pod's labels."""
    values = {f"__meta_kubernetes_pod_label_{k.replace('.', '_').replace('/', '_')}": v for k, v in labels.items()}
    for rule in rules:
        source = ";".join(values.get(name, "") for name in rule.get("sourceLabels", ()))
        found = re.fullmatch(rule.get("regex", "(.*)"), source)
        if found:
            value = rule["replacement"]
            for number in range(1, found.re.groups + 1):
                value = value.replace(f"${{{number}}}", found[number] or "")
            values[rule["targetLabel"]] = value
    return values


def test_an_alert_for_each_service_that_is_gone() -> None:
    down = next(a["expr"] for a in alerts() if a["alert"] == "SluiceServiceDown")
    assert set(re.findall(r'absent\(up\{job="sluice", service="(\w+)"\}\)', down)) == set(SERVICES)


def test_alerts_are_complete_and_explained() -> None:
    page = (ROOT / "docs" / "operations.md").read_text()
    explained = set(re.findall(r"^### (Sluice\w+)$", page, re.MULTILINE))
    assert {a["alert"] for a in alerts()} == explained
    assert len(alerts()) == len(explained)
    for alert in alerts():
        assert alert["labels"]["severity"] in ("critical", "warning")
        assert alert["annotations"]["summary"]
        assert re.fullmatch(r"\d+m", alert["for"])
        assert expression(alert["alert"], alert["expr"]).series or "kubelet_" in alert["expr"]
