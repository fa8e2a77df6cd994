"""Patches hold what differs and nothing else, and removals as null."""

from typing import Any

import msgspec
import pytest

from services.watcher.patches import admission_of, carries_admission, workload_patch
from shared.api.decoding import convert
from shared.api.workload import Workload
from shared.decide import transitions
from shared.events.decisions import Admit
from shared.events.objects import PodSetAssignment
from tests.unit.watcher.manifests import condition, workload
from tests.unit.watcher.moments import NOW

ASSIGNED = PodSetAssignment(
    name="main", count=2, flavors={"cpu": "f", "memory": "f"}, usage={"cpu": 1500, "memory": 2**31}
)
ADMIT = Admit(key="team/w", uid="uid-w", incarnation="", cluster_queue="cq", pod_sets=(ASSIGNED,))


def admitted(**changes: Any) -> Workload:
    assignment = {
        "name": "main",
        "count": 2,
        "flavors": {"cpu": "f", "memory": "f"},
        "resourceUsage": {"cpu": "1.5", "memory": "2048Mi"},
        **changes,
    }
    status = {
        "admission": {"clusterQueue": "cq", "podSetAssignments": [assignment]},
        "conditions": [condition("QuotaReserved"), condition("Admitted")],
        "requeueState": {"count": 1, "requeueAt": "2026-01-02T03:00:00Z"},
    }
    return convert(Workload, workload(status=status))


def test_equal_states_need_no_patch() -> None:
    assert workload_patch(admitted(), admitted().status) == {}


def test_a_removal_is_a_null_and_other_fields_are_not_named() -> None:
    found = admitted()
    status = transitions.unreserve(found.status, "PendingEvaluation", "m", NOW, 1)
    patch: Any = workload_patch(found, status)
    assert set(patch["status"]) == {"admission", "conditions", "accumulatedPastExecutionTimeSeconds"}
    assert patch["status"]["admission"] is None
    assert [c["type"] for c in patch["status"]["conditions"]] == ["QuotaReserved", "Admitted"]


def test_a_field_that_goes_inside_an_object_is_a_null_there() -> None:
    found = admitted()
    patch: Any = workload_patch(found, transitions.set_requeue_at(found.status, None))
    assert patch == {"status": {"requeueState": {"requeueAt": None}}}


def test_amounts_are_written_in_the_api_s_form() -> None:
    (assignment,) = admission_of("cq", (ASSIGNED,)).pod_set_assignments
    assert assignment.resource_usage == {"cpu": "1500m", "memory": "2Gi"}


def test_an_admission_is_recognised_by_value() -> None:
    assert carries_admission(admitted(), ADMIT)


@pytest.mark.parametrize(
    "changes", [{"count": 1}, {"flavors": {"cpu": "g", "memory": "f"}}, {"resourceUsage": {"cpu": "1"}}, {"name": "x"}]
)
def test_another_admission_is_not(changes: dict[str, Any]) -> None:
    assert not carries_admission(admitted(**changes), ADMIT)
    assert not carries_admission(admitted(), msgspec.structs.replace(ADMIT, cluster_queue="other"))
    assert not carries_admission(convert(Workload, workload()), ADMIT)
