"""Values with which a service would stand still, divide by zero or never end a wait are refused before it starts."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from services.preemptor.settings import PreemptorSettings
from services.provisioning_request.settings import ProvisioningSettings
from services.queue_manager.settings import QueueManagerSettings
from services.scheduler.settings import SchedulerSettings
from services.watcher.settings import WatcherSettings
from services.webhook.settings import WebhookSettings
from shared.config.settings import BaseSettings, SettingsError, load

SETTINGS: dict[str, type[BaseSettings]] = {
    "scheduler": SchedulerSettings,
    "queue_manager": QueueManagerSettings,
    "preemptor": PreemptorSettings,
    "provisioning_request": ProvisioningSettings,
    "watcher": WatcherSettings,
    "webhook": WebhookSettings,
}
MAY_BE_NOTHING = {
    *("stop_timeout_s", "gather_s", "retry_delay_s", "report_interval_s", "status_interval_s", "stagger_s"),
    *("afs_half_life_s", "health_port", "webhook_port"),
}
NUMBERS = [
    (service, field.name)
    for service, type_ in SETTINGS.items()
    for field in msgspec.structs.fields(type_)
    if isinstance(field.default, int | float) and not isinstance(field.default, bool)
]


@pytest.mark.parametrize(("service", "field"), NUMBERS)
@pytest.mark.parametrize("value", ["-1", "0"])
def test_a_number_that_cannot_be_meant_is_refused_by_the_name_of_its_variable(
    service: str, field: str, value: str
) -> None:
    variable = f"SLUICE_{service.upper()}_{field.upper()}"
    if value == "0" and field in MAY_BE_NOTHING:
        assert getattr(load(SETTINGS[service], service, SETTINGS, {variable: value}), field) == 0
        return
    with pytest.raises(SettingsError, match=variable):
        load(SETTINGS[service], service, SETTINGS, {variable: value})


def test_in_a_file_too(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text("scheduler: {max_unsettled: 0}\n")
    with pytest.raises(SettingsError, match="max_unsettled: Expected `int` >= 1"):
        load(SchedulerSettings, "scheduler", SETTINGS, {"SLUICE_SETTINGS": str(path)})
