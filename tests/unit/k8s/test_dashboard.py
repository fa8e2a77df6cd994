"""Prometheus and Grafana of compose.yaml fit each other and the services: sources, targets, panels. Whether the series exist: tests/integration/stack."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from services.metrics.settings import MetricsSettings
from shared.config.settings import load
from shared.events.streams import SERVICES
from tests.unit.k8s.dashboard import DASHBOARD, GRAFANA, expression, expressions, panels
from tests.unit.k8s.rendered import ROOT
from tests.unit.k8s.test_containers import CONTAINERS, environment_of
from tests.unit.k8s.test_manifests import SETTINGS

SOURCES = yaml.safe_load((GRAFANA / "provisioning" / "datasources" / "prometheus.yaml").read_text())["datasources"]


def mounted(name: str) -> dict[str, str]:
    """Path in the container -> path here, of what is mounted from this folder."""
    parts = [v.split(":") for v in CONTAINERS[name]["volumes"] if v.startswith("./")]
    assert all(mode == "ro" for *_, mode in parts)
    return {inside: outside for outside, inside, _ in parts}


def sources(document: Any) -> list[Any]:
    """Every `datasource` in the dashboard."""
    if isinstance(document, dict):
        own = [document["datasource"]] if "datasource" in document else []
        return own + [s for value in document.values() for s in sources(value)]
    return [s for value in document for s in sources(value)] if isinstance(document, list) else []


def test_every_service_is_read_where_it_serves_its_metrics() -> None:
    inside = CONTAINERS["prometheus"]["command"][0].partition("=")[2]
    config = yaml.safe_load((ROOT / mounted("prometheus")[inside]).read_text())
    (job,) = config["scrape_configs"]
    (group,) = job["static_configs"]
    ports = {s: load(SETTINGS[s], s, SERVICES, environment_of(s)).health_port for s in SERVICES}
    assert sorted(group["targets"]) == sorted(f"{service}:{port}" for service, port in ports.items())
    (relabel,) = job["relabel_configs"]
    match = re.fullmatch(relabel["regex"], group["targets"][0])
    assert (relabel["target_label"], match and match[1]) == ("service", "watcher")


def test_what_is_off_by_default_is_on_where_the_dashboard_shows_it() -> None:
    assert any("kueue_cluster_queue_resource_usage" in e.series for e in expressions())
    settings = load(SETTINGS["metrics"], "metrics", SERVICES, environment_of("metrics"))
    assert isinstance(settings, MetricsSettings)
    assert settings.cluster_queue_resources


def test_the_dashboard_asks_the_source_that_is_provided() -> None:
    (source,) = SOURCES
    asked = sources(DASHBOARD)
    assert len(asked) > len(panels())
    assert all(one == {"type": source["type"], "uid": source["uid"]} for one in asked)
    host, port = re.fullmatch(r"http://(\w+):(\d+)", source["url"]).groups()  # type: ignore[union-attr]
    assert CONTAINERS[host]["ports"] == [f"127.0.0.1:{port}:{port}"]


def test_grafana_finds_its_files() -> None:
    there = mounted("grafana")
    assert ROOT / there["/etc/grafana/provisioning"] == GRAFANA / "provisioning"
    provider = yaml.safe_load((GRAFANA / "provisioning" / "dashboards" / "sluice.yaml").read_text())["providers"][0]
    folder = provider["options"]["path"]
    home = CONTAINERS["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert home == f"{folder}/sluice.json"
    assert (ROOT / there[folder] / "sluice.json").exists()


def test_nobody_can_log_in_to_grafana() -> None:
    said = CONTAINERS["grafana"]["environment"]
    assert said["GF_AUTH_ANONYMOUS_ORG_ROLE"] == "Viewer"
    assert said["GF_AUTH_DISABLE_LOGIN_FORM"] == said["GF_SECURITY_DISABLE_INITIAL_ADMIN_CREATION"] == "true"


@pytest.mark.parametrize("name", ["prometheus", "grafana"])
def test_they_come_only_when_asked_for(name: str) -> None:
    assert CONTAINERS[name]["profiles"] == ["dashboard"]
    assert not [other for other, one in CONTAINERS.items() if name in one.get("depends_on", {}) and other != "grafana"]


def test_panels_have_titles_of_their_own_and_do_not_overlap() -> None:
    everything = DASHBOARD["panels"]
    assert len({p["id"] for p in everything}) == len(everything)
    assert len({p["title"] for p in everything}) == len(everything)
    taken: set[tuple[int, int]] = set()
    for panel in everything:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24, panel["title"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        taken |= cells


def test_what_an_expression_speaks_of() -> None:
    found = expression("p", 'sum by (le, a) (rate(kueue_x_total{b=~"$c", d!="e=1"}[5m])) / up{job="s"}')
    assert found.series == {"kueue_x_total", "up"}
    assert found.labels == {"le", "a", "b", "d", "job"}
    assert all(one.series for one in expressions())


@pytest.mark.parametrize(
    "series",
    [
        "kueue_pending_workloads",
        "kueue_admitted_active_workloads",
        "kueue_admission_wait_time_seconds_bucket",
        "kueue_cluster_queue_resource_usage",
        "kueue_cluster_queue_nominal_quota",
        "kueue_evicted_workloads_total",
        "sluice_scheduler_cycles_total",
        "sluice_scheduler_unsettled_decisions",
        "sluice_kube_calls_total",
        "sluice_bus_lag_messages",
    ],
)
def test_the_questions_that_people_ask_have_a_panel(series: str) -> None:
    assert [one.panel for one in expressions() if series in one.series]
