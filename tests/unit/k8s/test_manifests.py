"""The manifests against the code: commands, settings, ServiceAccounts, Secrets, ports, and how little each pod may do."""

from __future__ import annotations

import importlib.util
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest
import yaml

from cli import integrations
from cli.nats_credentials import CONFIG_KEY, CONFIG_SECRET, USERS, secret_name
from services.metrics.settings import MetricsSettings
from services.preemptor.settings import PreemptorSettings
from services.provisioning_request.settings import ProvisioningSettings
from services.queue_manager.settings import QueueManagerSettings
from services.scheduler.settings import SchedulerSettings
from services.watcher.certificates import CONFIGURATIONS
from services.watcher.settings import WatcherSettings
from services.webhook import conversion_review
from services.webhook.handlers import Handlers
from services.webhook.known_objects import KnownObjects
from services.webhook.settings import WebhookSettings
from shared.api.crd_kinds import CONVERTED
from shared.api.names import CONVERSION_SERVICE
from shared.config.configuration import Metrics
from shared.config.settings import BaseSettings, load
from shared.events.streams import READER, REPLICAS, SERVICES
from shared.jobs.protocol import JobKind
from shared.jobs.queueing_parent import QueueingParent
from shared.jobs.registry import PARENTS, review_path
from tests.unit.k8s.rendered import ROOT, Document, key, of_kind, pod_specs, render

NAMESPACE = "kueue-system"
SETTINGS: dict[str, type[BaseSettings]] = {
    "watcher": WatcherSettings,
    "queue_manager": QueueManagerSettings,
    "scheduler": SchedulerSettings,
    "preemptor": PreemptorSettings,
    "provisioning_request": ProvisioningSettings,
    "metrics": MetricsSettings,
    "webhook": WebhookSettings,
}
COMPLETE = ("base", "overlays/external-nats")
WITH_KUBERNETES = {"sluice-watcher", "sluice-webhook", "sluice-nats-credentials"}


def service_workload(folder: str, service: str) -> Document:
    """The Deployment of a service."""
    name = f"sluice-{service.replace('_', '-')}"
    found = [o for o in of_kind(render(folder), "Deployment") if o["metadata"]["name"] == name]
    assert len(found) == 1, name
    return found[0]


def container(workload: Document) -> Document:
    """Its only container."""
    containers: list[Document] = workload["spec"]["template"]["spec"]["containers"]
    assert len(containers) == 1
    return containers[0]


def environment(folder: str, workload: Document) -> dict[str, str]:
    """As the container will see it; values from fields are filled with what they have in a cluster."""
    maps = {o["metadata"]["name"]: o["data"] for o in of_kind(render(folder), "ConfigMap")}
    values: dict[str, str] = {}
    for source in container(workload).get("envFrom", ()):
        values |= maps[source["configMapRef"]["name"]]
    fields = {"metadata.namespace": NAMESPACE}
    for variable in container(workload).get("env", ()):
        field = variable.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath", "")
        values[variable["name"]] = fields[field] if field else variable["value"]
    return values


def test_every_service_of_the_table_is_known_here() -> None:
    assert set(SETTINGS) == set(SERVICES)


@pytest.mark.parametrize("folder", COMPLETE)
def test_there_is_a_workload_per_service_and_nothing_else(folder: str) -> None:
    wanted = {f"sluice-{s.replace('_', '-')}" for s in SERVICES}
    found = {o["metadata"]["name"] for o in of_kind(render(folder), "Deployment", "StatefulSet")}
    assert found == wanted | ({"sluice-nats"} if folder == "base" else set())


@pytest.mark.parametrize("service", SERVICES)
def test_the_command_is_a_module_that_exists(service: str) -> None:
    command = container(service_workload("base", service))["command"]
    assert command == ["python", "-m", f"services.{service}"]
    assert importlib.util.find_spec(f"services.{service}.__main__") is not None


@pytest.mark.parametrize("service", SERVICES)
@pytest.mark.parametrize("folder", COMPLETE)
def test_the_environment_is_accepted_by_the_settings_of_the_service(folder: str, service: str) -> None:
    values = environment(folder, service_workload(folder, service))
    own = f"SLUICE_{service.upper()}_"
    fields = {f.name for f in msgspec.structs.fields(SETTINGS[service])}
    for variable in values:
        name = variable.removeprefix(own) if variable.startswith(own) else variable.removeprefix("SLUICE_")
        assert name.lower() in fields, variable
    settings = load(SETTINGS[service], service, SERVICES, values)
    assert settings.health_host == "0.0.0.0"
    assert settings.nats_password == ""
    mounts = {m["mountPath"] for m in container(service_workload(folder, service))["volumeMounts"]}
    for file in (settings.nats_password_file, settings.nats_ca_file):
        assert not file or file.rpartition("/")[0] in mounts
    assert settings.nats_password_file
    assert bool(settings.nats_ca_file) == (folder != "base")


@pytest.mark.parametrize("service", SERVICES)
def test_ports_and_probes_are_those_of_the_settings(service: str) -> None:
    workload = service_workload("base", service)
    one = container(workload)
    ports = {p["name"]: p["containerPort"] for p in one["ports"]}
    settings = load(SETTINGS[service], service, SERVICES, environment("base", workload))
    assert ports["health"] == settings.health_port
    assert one["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "health"}
    assert one["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "health"}
    if isinstance(settings, WebhookSettings):
        assert ports["webhook"] == settings.webhook_port
        assert settings.webhook_host == "0.0.0.0"
        assert Metrics().bind_address == f":{ports['metrics']}"
        services = {o["metadata"]["name"]: o["spec"]["ports"] for o in of_kind(render("base"), "Service")}
        for source in settings.metrics_sources.split(","):
            found = urlsplit(source)
            assert [p["port"] for p in services[found.hostname or ""]] == [found.port], source
    assert workload["spec"]["template"]["metadata"]["annotations"]["prometheus.io/port"] == str(settings.health_port)


@pytest.mark.parametrize("service", ["watcher", "webhook"])
def test_those_with_credentials_know_their_namespace(service: str) -> None:
    settings = load(SETTINGS[service], service, SERVICES, environment("base", service_workload("base", service)))
    assert isinstance(settings, WatcherSettings | WebhookSettings)
    assert settings.namespace == NAMESPACE


def test_there_is_somebody_to_take_over_and_room_for_a_rolling_update() -> None:
    for service in SERVICES:
        spec = service_workload("base", service)["spec"]
        assert spec["replicas"] == (1 if service in ("metrics", "provisioning_request") else 2), service
        # The default: as many again may be started beside those that end, as readers of the bus.
        assert "strategy" not in spec, service
        assert 2 * spec["replicas"] <= REPLICAS


@pytest.mark.parametrize("folder", COMPLETE)
def test_pods_are_restricted(folder: str) -> None:
    templates = pod_specs(render(folder))
    assert templates
    for name, template in templates.items():
        spec = template["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True, name
        assert spec["securityContext"]["runAsUser"] > 0, name
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec), name
        assert not [v for v in spec.get("volumes", ()) if "hostPath" in v], name
        # A Service named sluice-metrics would become variables that look like settings.
        assert spec["enableServiceLinks"] is False, name
        for one in spec["containers"]:
            context = one["securityContext"]
            assert context["allowPrivilegeEscalation"] is False, name
            assert context["readOnlyRootFilesystem"] is True, name
            assert context["capabilities"] == {"drop": ["ALL"]}, name
            assert {"cpu", "memory"} <= set(one["resources"]["requests"]), name
            assert "memory" in one["resources"]["limits"], name
            assert ":" in one["image"].rpartition("/")[2], f"{name}: no version"


@pytest.mark.parametrize("folder", COMPLETE)
def test_only_those_that_need_it_get_a_token(folder: str) -> None:
    objects = render(folder)
    accounts = {key(o) for o in of_kind(objects, "ServiceAccount")}
    for name, template in pod_specs(objects).items():
        spec, short = template["spec"], name.rpartition("/")[2]
        assert spec["automountServiceAccountToken"] is (short in WITH_KUBERNETES), name
        if short in WITH_KUBERNETES:
            assert spec["serviceAccountName"] == short
            assert f"ServiceAccount/{NAMESPACE}/{short}" in accounts


@pytest.mark.parametrize("folder", COMPLETE)
def test_roles_are_bound_to_accounts_that_exist(folder: str) -> None:
    objects = render(folder)
    accounts = {key(o) for o in of_kind(objects, "ServiceAccount")}
    roles = {o["kind"] + "/" + o["metadata"]["name"] for o in of_kind(objects, "Role", "ClusterRole")}
    bindings = list(of_kind(objects, "RoleBinding", "ClusterRoleBinding"))
    assert bindings
    for binding in bindings:
        assert f"{binding['roleRef']['kind']}/{binding['roleRef']['name']}" in roles
        for subject in binding["subjects"]:
            assert f"ServiceAccount/{subject['namespace']}/{subject['name']}" in accounts


@pytest.mark.parametrize("service", SERVICES)
def test_each_service_mounts_its_own_password_and_no_other(service: str) -> None:
    volumes = service_workload("base", service)["spec"]["template"]["spec"]["volumes"]
    mounted = [v["secret"]["secretName"] for v in volumes if "secret" in v]
    assert mounted == [secret_name(service)]


def test_the_credentials_job_may_touch_exactly_what_it_makes() -> None:
    role = next(o for o in of_kind(render("nats"), "Role"))
    named = [r for r in role["rules"] if r["resources"] == ["secrets"] and r["verbs"] == ["get"]]
    assert len(named) == 1
    assert set(named[0]["resourceNames"]) == {CONFIG_SECRET, *(secret_name(user) for user in USERS)}
    assert set(USERS) == {*SERVICES, READER}
    others = [r for r in role["rules"] if r not in named]
    assert others == [
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["create"]},
        {"apiGroups": [""], "resources": ["secrets"], "resourceNames": [CONFIG_SECRET], "verbs": ["patch"]},
        {"apiGroups": ["apps"], "resources": ["statefulsets"], "resourceNames": ["sluice-nats"], "verbs": ["patch"]},
    ]


def test_the_nats_server_reads_the_configuration_that_the_job_makes() -> None:
    server = next(o for o in of_kind(render("nats"), "StatefulSet"))
    one = container(server)
    secret = next(v["secret"] for v in server["spec"]["template"]["spec"]["volumes"] if "secret" in v)
    mount = next(m["mountPath"] for m in one["volumeMounts"] if m["name"] == "config")
    assert secret["secretName"] == CONFIG_SECRET
    assert [item["key"] for item in secret["items"]] == [CONFIG_KEY]
    assert one["command"] == ["nats-server", "--config", f"{mount}/{CONFIG_KEY}"]
    job = next(o for o in of_kind(render("nats"), "Job"))
    assert container(job)["command"] == ["python", "-m", "cli.nats_credentials"]
    service = next(o for o in of_kind(render("nats"), "Service"))
    settings = load(WatcherSettings, "watcher", SERVICES, environment("base", service_workload("base", "watcher")))
    assert f"//{service['metadata']['name']}.{NAMESPACE}.svc:{service['spec']['ports'][0]['port']}" in settings.nats_url
    assert f"--url={settings.nats_url}" in container(job)["args"]


@pytest.mark.parametrize(("folder", "path"), [("base", "/healthz"), ("overlays/ha", "/healthz?js-server-only=true")])
def test_a_nats_that_cannot_write_is_started_again_but_not_one_that_catches_up(folder: str, path: str) -> None:
    server = next(o for o in of_kind(render(folder), "StatefulSet"))
    assert container(server)["livenessProbe"]["httpGet"] == {"path": path, "port": "monitor"}


@pytest.mark.parametrize("folder", COMPLETE)
def test_services_and_budgets_select_pods(folder: str) -> None:
    objects = render(folder)
    pods = [(t["metadata"]["labels"], t["spec"]["containers"]) for t in pod_specs(objects).values()]
    for service in of_kind(objects, "Service"):
        selected = [c for labels, c in pods if service["spec"]["selector"].items() <= labels.items()]
        assert len(selected) == 1, key(service)
        names = {p["name"] for p in selected[0][0]["ports"]}
        assert {p["targetPort"] for p in service["spec"]["ports"]} <= names
    budgets = list(of_kind(objects, "PodDisruptionBudget"))
    assert budgets
    for budget in budgets:
        # A minimum would keep the node of a single pod from ever being drained.
        assert budget["spec"]["maxUnavailable"] == 1
        assert sum(_selected(budget["spec"]["selector"], labels) for labels, _ in pods) >= 1


@pytest.mark.parametrize("folder", COMPLETE)
def test_each_pod_that_stays_has_exactly_one_budget(folder: str) -> None:
    objects = render(folder)
    budgets = list(of_kind(objects, "PodDisruptionBudget"))
    for workload in of_kind(objects, "Deployment", "StatefulSet", "Job"):
        labels = workload["spec"]["template"]["metadata"]["labels"]
        # The eviction API refuses a pod that two budgets cover; a Job's pod in a budget makes it an error.
        wanted = 0 if workload["kind"] == "Job" else 1
        assert sum(_selected(b["spec"]["selector"], labels) for b in budgets) == wanted, key(workload)


def _selected(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    if not selector.get("matchLabels", {}).items() <= labels.items():
        return False
    for rule in selector.get("matchExpressions", ()):
        within = labels.get(rule["key"]) in rule["values"]
        if within != (rule["operator"] == "In"):
            return False
    return True


@pytest.mark.parametrize("folder", [*COMPLETE, "local"])
def test_priority_class_and_flow_schemas(folder: str) -> None:
    objects = render(folder)
    classes = {o["metadata"]["name"] for o in of_kind(objects, "PriorityClass")}
    if folder == "base":
        assert {t["spec"]["priorityClassName"] for t in pod_specs(objects).values()} == classes
    levels = {o["metadata"]["name"] for o in of_kind(objects, "PriorityLevelConfiguration")}
    accounts = {o["metadata"]["name"] for o in of_kind(objects, "ServiceAccount")}
    schemas = list(of_kind(objects, "FlowSchema"))
    assert {schema["metadata"]["name"] for schema in schemas} == {"sluice", "sluice-lease"}
    for schema in schemas:
        spec = schema["spec"]
        assert spec["priorityLevelConfiguration"]["name"] in levels | {"leader-election"}
        # Before the catch-all of all ServiceAccounts, behind the system's own.
        assert 100 < spec["matchingPrecedence"] < 9000
        for rule in spec["rules"]:
            assert {s["serviceAccount"]["name"] for s in rule["subjects"]} <= accounts


@pytest.mark.parametrize("service", SERVICES)
def test_instances_of_a_service_are_spread_over_nodes_and_zones(service: str) -> None:
    template = service_workload("base", service)["spec"]["template"]
    constraints = {c["topologyKey"]: c for c in template["spec"]["topologySpreadConstraints"]}
    assert set(constraints) == {"kubernetes.io/hostname", "topology.kubernetes.io/zone"}
    for constraint in constraints.values():
        # A cluster of one node has to do.
        assert (constraint["maxSkew"], constraint["whenUnsatisfiable"]) == (1, "ScheduleAnyway")
        assert _selected(constraint["labelSelector"], template["metadata"]["labels"])
        # Among the pods of the same service: a key may not be in both, the API server says.
        assert constraint["matchLabelKeys"] == ["app.kubernetes.io/name"]
        assert not set(constraint["matchLabelKeys"]) & set(constraint["labelSelector"]["matchLabels"])


def test_webhook_configurations_point_at_handlers_and_the_service() -> None:
    routes = Handlers(WebhookSettings(), KnownObjects(None), None).routes()  # type: ignore[arg-type]
    objects = render("base")
    configurations = list(of_kind(objects, "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"))
    assert {o["metadata"]["name"] for o in configurations} == {name for _, name in CONFIGURATIONS}
    services = {o["metadata"]["name"] for o in of_kind(objects, "Service")}
    called = set()
    for configuration in configurations:
        for webhook in configuration["webhooks"]:
            service = webhook["clientConfig"]["service"]
            assert service["name"] in services
            assert service["namespace"] == NAMESPACE
            called.add(service["path"])
            # R2: a webhook that is down never stops the gateway.
            conditions = [c["expression"] for c in webhook["matchConditions"]]
            assert f'request.userInfo.username != "system:serviceaccount:{NAMESPACE}:sluice-watcher"' in conditions
    kinds: list[JobKind | QueueingParent] = [*integrations.optional(), *PARENTS]
    optional = {review_path(kind, verb) for kind in kinds for verb in ("mutate", "validate")}
    assert called == set(routes) - optional
    assert optional <= set(routes)


@pytest.mark.parametrize("kind", integrations.optional(), ids=lambda kind: str(kind.framework))
def test_an_integration_brings_its_rights_and_its_admission(
    kind: JobKind,
) -> None:
    name = integrations.component(kind.framework)
    folder = ROOT / "k8s" / "components" / "integrations" / name
    found = yaml.safe_load((folder / "kustomization.yaml").read_text())
    for patch, verb in zip(found["patches"], ("mutate", "validate"), strict=True):
        (operation,) = yaml.safe_load(patch["patch"])
        assert operation["value"]["clientConfig"]["service"]["path"] == review_path(kind, verb)
    role = next(d for d in yaml.safe_load_all((folder / "role.yaml").read_text()) if d["kind"] == "ClusterRole")
    assert {group for rule in role["rules"] for group in rule["apiGroups"]} == {kind.group}
    base = [
        rule
        for o in of_kind(render("base"), "ClusterRole")
        if o["metadata"]["name"] == "sluice-watcher"
        for rule in o["rules"]
    ]
    there = {
        verb for r in base if kind.plural in r["resources"] and kind.group in r["apiGroups"] for verb in r["verbs"]
    }
    assert "watch" not in there


def test_definitions_are_converted_by_webhooks_that_need_not_be_ready() -> None:
    """Ready is who has read OBJECTS, which are there once the gateway has listed everything; what is stored in v1beta1 it can list once it is converted."""
    objects = render("base")
    conversions = [d["spec"]["conversion"] for d in of_kind(objects, "CustomResourceDefinition")]
    called = [c["webhook"]["clientConfig"]["service"] for c in conversions if c["strategy"] == "Webhook"]
    assert len(called) == len(CONVERTED)
    (named,) = {(s["namespace"], s["name"], s["path"], s["port"]) for s in called}
    assert named == (NAMESPACE, CONVERSION_SERVICE, conversion_review.PATH, 443)
    services = {key(o): o["spec"] for o in of_kind(objects, "Service")}
    conversion = services[f"Service/{NAMESPACE}/{CONVERSION_SERVICE}"]
    admission = services[f"Service/{NAMESPACE}/kueue-webhook-service"]
    assert conversion["publishNotReadyAddresses"] is True
    assert "publishNotReadyAddresses" not in admission
    assert (conversion["selector"], conversion["ports"]) == (admission["selector"], admission["ports"])


@pytest.mark.parametrize("folder", [*COMPLETE, "local"])
def test_objects_are_labelled_and_unique(folder: str) -> None:
    objects = render(folder)
    names = [key(o) for o in objects]
    assert len(set(names)) == len(names)
    for one in objects:
        assert one["metadata"].get("namespace", NAMESPACE) == NAMESPACE
        if one["kind"] != "ConfigMap":
            assert one["metadata"]["labels"]["app.kubernetes.io/part-of"] == "sluice", key(one)


def test_no_secret_is_shipped() -> None:
    for folder in (*COMPLETE, "local"):
        assert not list(of_kind(render(folder), "Secret")), folder
    templates = ROOT / "k8s" / "charts" / "sluice" / "templates"
    for path in (ROOT / "k8s").rglob("*.yaml"):
        if templates in path.parents:
            assert "\nkind: Secret\n" not in path.read_text(), path
            continue
        for document in yaml.safe_load_all(path.read_text()):
            assert document is None or document.get("kind") != "Secret", path
