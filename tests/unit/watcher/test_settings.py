"""Settings of the watcher that contradict each other are one clear error at the start."""

import pytest

from services.watcher.settings import WatcherSettings
from shared.config.settings import SettingsError, load
from shared.events.streams import SERVICES


def loaded(**variables: str) -> WatcherSettings:
    environment = {f"SLUICE_WATCHER_{name.upper()}": value for name, value in variables.items()}
    return load(WatcherSettings, "watcher", SERVICES, environment)


def test_the_defaults_agree_with_each_other() -> None:
    settings = loaded()
    assert settings.api_timeout_s < settings.lease_duration_s
    assert settings.namespace == "kueue-system"


def test_the_environment_sets_them() -> None:
    settings = loaded(kubeconfig="/some/file", api_timeout_s="1.5", lane_workers="8")
    assert (settings.kubeconfig, settings.api_timeout_s, settings.lane_workers) == ("/some/file", 1.5, 8)


@pytest.mark.parametrize(
    ("variables", "named"),
    [
        ({"api_timeout_s": "3"}, "api_timeout_s"),
        ({"lease_duration_s": "1.5"}, "api_timeout_s"),
        ({"lease_renew_s": "5"}, "lease_renew_s"),
        ({"events_per_s": "0"}, "events_per_s"),
        ({"lane_workers": "-1"}, "lane_workers"),
        ({"check_s": "often"}, "CHECK_S"),
        ({"unheard_of": "1"}, "unheard_of"),
    ],
)
def test_what_cannot_be_is_refused_by_name(variables: dict[str, str], named: str) -> None:
    with pytest.raises(SettingsError, match=named):
        loaded(**variables)
