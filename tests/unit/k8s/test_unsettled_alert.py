"""What is told of unsettled decisions fits how many there may be."""

import json
import re
from pathlib import Path

import pytest

from services.scheduler.service import ROOM
from services.scheduler.settings import SchedulerSettings

ROOT = Path(__file__).parents[3]
K = SchedulerSettings().max_unsettled


@pytest.mark.parametrize(
    "path", ["k8s/components/prometheus/alerts.yaml", "k8s/charts/sluice/templates/prometheus.yaml"]
)
def test_the_alert_is_reached_when_the_scheduler_waits_and_only_then(path: str) -> None:
    """Between K and K less the room that it waits for, of one scheduler: a standby counts the same decisions."""
    rule = r"(\w+)\(sluice_scheduler_unsettled_decisions\) >= (\d+)"
    assert re.findall(rule, (ROOT / path).read_text()) == [("max", str(K - K // ROOM))]


def test_the_dashboard_names_the_limit() -> None:
    panels = json.loads((ROOT / "compose/grafana/dashboards/sluice.json").read_text())["panels"]
    (panel,) = [panel for panel in panels if panel["title"] == "Unsettled decisions" and "description" in panel]
    assert f"waits at {K} " in panel["description"]
