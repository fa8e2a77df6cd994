"""The Active condition of a check, and the configuration that it works with."""

from __future__ import annotations

import pytest

from services.provisioning_request.activity import active_condition, config_of, parameters_error
from shared.api import names
from shared.events.objects import AdmissionCheck, Condition
from tests.unit.provisioning_request.objects import check, config

CONFIGS = {"cfg": config()}
INACTIVE = Condition(names.ACTIVE, False, "BadParametersRef", "old text")


@pytest.mark.parametrize(
    ("ac", "error"),
    [
        (check(), ""),
        (check(parameters_kind="provisioningrequestconfig"), ""),
        (check(parameters_name=""), "no parameters"),
        (check(parameters_kind="Other"), "'Other'"),
        (check(parameters_group="example.com"), "'example.com'"),
        (check(parameters_name="missing"), "'missing'"),
    ],
)
def test_what_is_wrong_with_the_parameters(ac: AdmissionCheck, error: str) -> None:
    found = parameters_error(ac, CONFIGS)
    assert error in found
    assert bool(found) is bool(error)


def test_a_new_check_becomes_active() -> None:
    command = active_condition(check(active=None), CONFIGS, 100.9)
    assert command is not None
    assert (command.kind, command.name, command.uid, command.version) == ("admissioncheck", "prov", "ac-uid", 5)
    assert command.active == Condition(names.ACTIVE, True, "Active", "The admission check is active", 100, 2)


def test_a_check_without_its_configuration_becomes_inactive() -> None:
    command = active_condition(check(), {}, 100.0)
    assert command is not None
    assert (command.active.status, command.active.reason) == (False, "BadParametersRef")
    assert "'cfg'" in command.active.message


@pytest.mark.parametrize(("ac", "configs"), [(check(), CONFIGS), (check(active=INACTIVE), {})])
def test_only_a_change_of_truth_is_written(ac: AdmissionCheck, configs: dict[str, object]) -> None:
    assert active_condition(ac, configs, 100.0) is None  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("ac", "works"),
    [
        (check(), True),
        (None, False),
        (check(active=None), False),
        (check(active=INACTIVE), False),
        (check(parameters_name="missing"), False),
    ],
)
def test_the_configuration_counts_only_while_the_check_works(ac: AdmissionCheck | None, works: bool) -> None:
    assert config_of(ac, CONFIGS) == (CONFIGS["cfg"] if works else None)
