"""The table of the PodsReady condition."""

import pytest

from services.watcher.pods_ready import pods_ready_condition
from shared.api.decoding import convert
from shared.api.workload import Workload
from tests.unit.watcher.manifests import condition, workload
from tests.unit.watcher.moments import NOW


@pytest.mark.parametrize(
    ("admitted", "old", "ready", "expected"),
    [
        (False, None, True, ("False", "WaitForStart")),
        (True, None, True, ("True", "Started")),
        (True, ("False", "WaitForStart"), True, ("True", "Started")),
        (True, ("False", "WaitForRecovery"), True, ("True", "Recovered")),
        (True, ("True", "Recovered"), True, None),
        (True, ("True", "Started"), True, None),
        (True, None, False, ("False", "WaitForStart")),
        (True, ("True", "Started"), False, ("False", "WaitForRecovery")),
        (True, ("False", "WaitForRecovery"), False, None),
        (True, ("False", "PodsReady"), False, ("False", "WaitForStart")),
        (False, ("True", "Started"), False, ("False", "WaitForStart")),
    ],
)
def test_condition(admitted: bool, old: tuple[str, str] | None, ready: bool, expected: tuple[str, str] | None) -> None:
    conditions = [condition("Admitted")] if admitted else []
    if old is not None:
        conditions.append(condition("PodsReady", *old))
    found = pods_ready_condition(convert(Workload, workload(status={"conditions": conditions})), ready, NOW)
    assert (None if found is None else (found.status, found.reason)) == expected
