"""The chart against the manifests: the same objects for the same wish, current files, and values that are refused by name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.chart.__main__ import differing
from cli.chart.generate import files
from cli.chart.places import BUS_ONLY, CA_SECRET
from shared.config.gate_table import GATES
from shared.events.streams import SERVICES
from tests.unit.k8s import test_manifests as manifests
from tests.unit.k8s.charts import CHART, CHECKSUMS, EXAMPLES, chart, comparable, example, helm, refused
from tests.unit.k8s.rendered import ROOT, Document, key, of_kind, pod_specs, render

OVERLAYS = sorted(p.name for p in (ROOT / "k8s" / "overlays").iterdir())


def test_there_is_an_example_for_each_overlay() -> None:
    assert sorted([*(p.stem for p in EXAMPLES.iterdir()), "default"]) == OVERLAYS


@pytest.mark.parametrize("name", OVERLAYS)
def test_the_chart_makes_what_the_overlay_makes(name: str) -> None:
    wanted, made = comparable(render(f"overlays/{name}")), comparable(chart(*example(name)))
    assert made.keys() == wanted.keys()
    for one in wanted:
        assert made[one] == wanted[one], one


def test_generated_files_are_current() -> None:
    assert differing(files(render)) == []


def test_stale_missing_and_foreign_files_are_noticed(tmp_path: Path) -> None:
    wanted = {"templates/a.yaml": "a", "templates/crds/b.yaml": "b", "values.schema.json": "{}"}
    for name in ("templates/a.yaml", "templates/c.yaml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("old")
    stale = ["templates/a.yaml", "templates/c.yaml", "templates/crds/b.yaml", "values.schema.json"]
    assert differing(wanted, tmp_path) == stale


@pytest.mark.parametrize("name", OVERLAYS)
def test_helm_finds_nothing_to_complain_of(name: str) -> None:
    done = helm("lint", "--strict", "--namespace", "kueue-system", str(CHART), *example(name))
    assert done.returncode == 0, done.stdout
    assert "[ERROR]" not in done.stdout + done.stderr
    assert "[WARNING]" not in done.stdout + done.stderr


def test_version_is_that_of_the_manifests() -> None:
    described = yaml.safe_load((CHART / "Chart.yaml").read_text())
    (image,) = {manifests.container(manifests.service_workload("base", s))["image"] for s in SERVICES}
    assert image == f"ghcr.io/sluice/sluice:v{described['appVersion']}"


# What the overlays have no word for.


def test_another_namespace_is_said_everywhere() -> None:
    objects = chart(namespace="batch")
    assert "kueue-system" not in yaml.safe_dump_all(objects)
    assert {o["metadata"]["namespace"] for o in objects if "namespace" in o["metadata"]} == {"batch"}


def settings(objects: tuple[Document, ...]) -> dict[str, str]:
    (found,) = [o for o in of_kind(objects, "ConfigMap") if o["metadata"]["name"] == "sluice-settings"]
    data: dict[str, str] = found["data"]
    return data


def test_settings_win_over_the_charts_own() -> None:
    given = ("--set", "settings.SLUICE_LOG_LEVEL=ERROR", "--set-string", "settings.SLUICE_STOP_TIMEOUT_S=7")
    data = settings(chart(*given))
    assert (data["SLUICE_LOG_LEVEL"], data["SLUICE_STOP_TIMEOUT_S"]) == ("ERROR", "7")
    assert data["SLUICE_HEALTH_PORT"] == "8081"


def test_feature_gates_become_a_setting() -> None:
    data = settings(chart("--set", "featureGates.PartialAdmission=false,featureGates.AllAlpha=true"))
    assert data["SLUICE_FEATURE_GATES"] == "AllAlpha=true,PartialAdmission=false"
    assert "SLUICE_FEATURE_GATES" not in settings(chart())


@pytest.mark.parametrize(
    ("values", "granted"),
    [
        ({}, False),
        ({"featureGates": {"FailureRecoveryPolicy": True}}, True),
        ({"featureGates": {"FailureRecoveryPolicy": False}}, False),
        ({"featureGates": {"AllAlpha": True}}, True),
        ({"featureGates": {"AllAlpha": True, "FailureRecoveryPolicy": False}}, False),
        ({"managerConfig": {"controllerManagerConfigYaml": "featureGates: {FailureRecoveryPolicy: true}"}}, True),
        ({"managerConfig": {"controllerManagerConfigYaml": "featureGates: {PartialAdmission: false}"}}, False),
    ],
)
def test_rights_to_end_pods_come_with_their_gate(values: dict[str, object], granted: bool, tmp_path: Path) -> None:
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    objects = chart("--values", str(file), namespace="batch")
    found = [o for o in objects if o["metadata"]["name"] == "sluice-watcher-failure-recovery"]
    assert [o["kind"] for o in found] == (["ClusterRole", "ClusterRoleBinding"] if granted else [])
    for binding in of_kind(tuple(found), "ClusterRoleBinding"):
        assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "sluice-watcher", "namespace": "batch"}]


def checksums(objects: tuple[Document, ...]) -> dict[str, tuple[str, ...]]:
    deployments = of_kind(objects, "Deployment")
    annotations = {key(o): o["spec"]["template"]["metadata"]["annotations"] for o in deployments}
    return {name: tuple(found.get(c, "") for c in CHECKSUMS) for name, found in annotations.items()}


def test_a_change_of_settings_or_of_the_configuration_restarts_every_pod() -> None:
    before = checksums(chart())
    for after in (checksums(chart("--set", "logLevel=DEBUG")), checksums(chart(*example("configured")))):
        assert after.keys() == before.keys()
        assert all(after[name] != before[name] for name in before)
    assert checksums(chart("--set", "services.webhook.replicas=4")) == before


def test_scheduling_values_reach_every_pod() -> None:
    given = (
        "--set", "nodeSelector.pool=system",
        "--set", "tolerations[0].key=system,tolerations[0].operator=Exists",
        "--set", "image.pullSecrets[0].name=registry",
        "--set", "priorityClass.create=false,priorityClass.name=system-cluster-critical",
    )  # fmt: skip
    objects = chart(*given)
    assert len(pod_specs(objects)) == len(SERVICES) + 2
    for name, template in pod_specs(objects).items():
        spec = template["spec"]
        assert spec["nodeSelector"] == {"pool": "system"}, name
        assert {"key": "system", "operator": "Exists"} in spec["tolerations"], name
        assert spec["imagePullSecrets"] == [{"name": "registry"}], name
        assert spec["priorityClassName"] == "system-cluster-critical", name
        if name.startswith("Deployment/"):
            assert len(spec["tolerations"]) == 3, name
    assert not list(of_kind(objects, "PriorityClass"))


@pytest.mark.parametrize(
    ("switch", "kinds"),
    [
        ("crds.install=false", {"CustomResourceDefinition"}),
        ("networkPolicies.enabled=false", {"NetworkPolicy"}),
        ("priorityClass.create=false", {"PriorityClass"}),
    ],
)
def test_parts_can_be_left_out_and_nothing_else_goes_with_them(switch: str, kinds: set[str]) -> None:
    all_of_it, rest = comparable(chart()), comparable(chart("--set", switch))
    assert {all_of_it[name]["kind"] for name in all_of_it.keys() - rest.keys()} == kinds
    assert not kinds & {o["kind"] for o in rest.values()}


def test_uninstalling_keeps_the_definitions() -> None:
    for crd in of_kind(chart(), "CustomResourceDefinition"):
        assert crd["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"


def test_an_issuer_of_ones_own() -> None:
    given = ("--set", "enableCertManager=true,certManager.issuerRef.name=corp,certManager.issuerRef.kind=ClusterIssuer")
    certificates = list(of_kind(chart(*given), "Certificate"))
    assert len(certificates) == 2
    assert all(c["spec"]["issuerRef"] == {"name": "corp", "kind": "ClusterIssuer"} for c in certificates)
    assert not list(of_kind(chart(*given), "Issuer"))


def external(*more: str) -> tuple[Document, ...]:
    return chart(*example("external-nats"), "--set", ",".join(("nats.external.secretPrefix=bus", *more)))


def test_an_external_nats_with_secrets_of_other_names() -> None:
    deployments = list(of_kind(external(), "Deployment"))
    assert len(deployments) == len(SERVICES)
    for one in deployments:
        component = one["metadata"]["labels"]["app.kubernetes.io/component"]
        volumes = one["spec"]["template"]["spec"]["volumes"]
        names = {v["name"]: v["secret"]["secretName"] for v in volumes if "secret" in v}
        assert names == {"nats-credentials": f"bus-{component}", "nats-ca": CA_SECRET}


@pytest.mark.parametrize(
    ("url", "file"),
    [("tls://a:4222", "/etc/ssl/certs/ca-certificates.crt"), ("nats://a:4222", None)],
)
def test_without_an_authority_of_its_own_tls_trusts_the_images(url: str, file: str | None) -> None:
    objects = external("nats.external.caSecret=", f"nats.external.url={url}")
    assert settings(objects).get("SLUICE_NATS_CA_FILE") == file
    assert CA_SECRET not in yaml.safe_dump_all(objects)


def test_ports_for_a_nats_at_another_one() -> None:
    objects = chart("--set", "networkPolicies.egressPorts={5222}")
    (policy,) = [p for p in of_kind(objects, "NetworkPolicy") if p["metadata"]["name"] == BUS_ONLY]
    (rule,) = policy["spec"]["egress"]
    assert rule["ports"] == [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}, {"port": 5222}]


# What must be refused, by the name of the field.

WRONG = {
    "image.tagg=v1": "/image",
    "image.pullPolicy=Sometimes": "/image/pullPolicy",
    "services.watcher.replicas=0": "/services/watcher/replicas",
    "services.webhook.replicas=5": "/services/webhook/replicas",
    "services.webhook.replicas=two": "/services/webhook/replicas",
    "services.cachier.replicas=1": "/services",
    "services.metrics.resources.requests.memory=lots": "/services/metrics/resources/requests/memory",
    "services.metrics.resources.requests=null": "/services/metrics/resources",
    "nats.mode=kafka": "/nats/mode",
    "nats.mode=external": "/nats/external/url",
    "nats.external.url=http://nats:4222": "/nats/external/url",
    "nats.embedded.replicas=2": "/nats/embedded/replicas",
    "nats.embedded.persistence.size=big": "/nats/embedded/persistence/size",
    "featureGates.NoSuchGate=true": "/featureGates",
    "featureGates.PartialAdmission=maybe": "/featureGates/PartialAdmission",
    "featureGates.TLSOptions=false": "/featureGates/TLSOptions",
    "logLevel=LOUD": "/logLevel",
    "settings.LOG_LEVEL=DEBUG": "/settings",
    "enablePrometheus=1": "/enablePrometheus",
    "certManager.issuerRef.nane=corp": "/certManager/issuerRef",
    "priorityClass.name=": "/priorityClass/name",
    "networkPolicies.egressPorts={70000}": "/networkPolicies/egressPorts/0",
    "tolerations[0].effect=Never": "/tolerations/0/effect",
    "managerConfig.controllerManagerConfigYaml.apiVersion=v1": "/managerConfig/controllerManagerConfigYaml",
    "replicaCount=3": "''",
}


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_values_are_refused_naming_the_field(wrong: str) -> None:
    said = refused("--set", wrong)
    assert "values don't meet the specifications of the schema" in said
    assert f"at '{WRONG[wrong]}'" in said or f"at {WRONG[wrong]}" in said, said


def _leaves(values: Any, path: str = "") -> list[str]:
    if isinstance(values, dict) and values:
        return [leaf for k, v in values.items() for leaf in _leaves(v, f"{path}.{k}")]
    return [path[1:]]


def test_every_value_is_used_and_each_top_level_one_explained() -> None:
    text = (CHART / "values.yaml").read_text()
    templates = "".join(p.read_text() for p in (CHART / "templates").rglob("*") if p.is_file())
    for leaf in _leaves(yaml.safe_load(text)):
        parts = leaf.split(".")
        prefixes = [f".Values.{'.'.join(parts[:n])}" for n in range(len(parts), 0, -1)]
        assert any(re.search(rf"{re.escape(p)}(?![\w.])", templates) for p in prefixes), leaf


def test_gates_are_those_of_our_table() -> None:
    said = refused("--set", "featureGates.NoSuchGate=true")
    assert "NoSuchGate" in said
    given = ",".join(f"featureGates.{name}={str(gate.default).lower()}" for name, gate in GATES.items())
    assert settings(chart("--set", given))["SLUICE_FEATURE_GATES"].count("=") == len(GATES)
