"""What a workload wants of its ProvisioningRequest checks: the tables of topology-and-checks spec 15.3-15.7."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from services.provisioning_request.provisioning import (
    CHECK_INACTIVE,
    CLASS_ANNOTATION,
    CONSUME_ANNOTATION,
    NOT_NEEDED,
    backoff_s,
    current_request,
    parameters_of,
    pod_set_updates,
    reconcile,
)
from shared.api import names
from shared.events.commands import (
    Command,
    CreateProvisioningRequest,
    DeleteProvisioningRequest,
    PodSetUpdate,
    SetCheckState,
    TemplateSource,
)
from shared.events.objects import CheckState, Condition, ProvisioningRequest, Workload
from tests.unit.provisioning_request.objects import (
    ADMITTED,
    EVICTED,
    RESERVED,
    config,
    pod_set,
    request,
    true,
    workload,
)


def run(wl: Workload, owned: Iterable[ProvisioningRequest] = (), **changes: Any) -> list[Command]:
    return reconcile(wl, {"prov": config(**changes)}, owned)


def states(commands: Iterable[Command]) -> list[tuple[str, str, int | None]]:
    return [(c.state, c.message, c.requeue_after_s) for c in commands if isinstance(c, SetCheckState)]


def created(commands: Iterable[Command]) -> list[str]:
    return [c.name for c in commands if isinstance(c, CreateProvisioningRequest)]


def deleted(commands: Iterable[Command]) -> list[str]:
    return [c.name for c in commands if isinstance(c, DeleteProvisioningRequest)]


def state(state_: Any = "Pending", message: str = "", retry_count: int | None = None, **changes: Any) -> CheckState:
    return CheckState(name="prov", state=state_, message=message, retry_count=retry_count, **changes)


# --- when nothing is done -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wl",
    [
        workload(conditions=(), admission=None),
        workload(conditions=(Condition(names.QUOTA_RESERVED, False, "Pending"),)),
        workload(deleting=True),
        workload(checks=[]),
        workload(checks=[CheckState(name="of-another-controller")]),
    ],
)
def test_nothing_is_wanted(wl: Workload) -> None:
    assert run(wl) == []


# --- requests -------------------------------------------------------------------------------------------------------


def test_a_reservation_makes_the_first_request() -> None:
    wl = workload(annotations={"provreq.kueue.x-k8s.io/extra": "x", "unrelated": "y"})
    assert run(wl) == [
        CreateProvisioningRequest(
            id="",
            kind="provisioningrequest",
            namespace="ns",
            name="wl-prov-1",
            version=10,
            workload="wl",
            workload_uid="wl-uid",
            check="prov",
            class_name="check-capacity",
            parameters={"p": "1", "extra": "x"},
            templates=(TemplateSource(name="ppt-wl-prov-1-main", pod_set="main", count=2),),
        )
    ]


def test_only_needed_pod_sets_are_asked_for() -> None:
    wl = workload(pod_sets=[pod_set("a", 1), pod_set("b", 0), pod_set("c", 3)])
    (command,) = run(wl)
    assert isinstance(command, CreateProvisioningRequest)
    assert [(t.pod_set, t.count) for t in command.templates] == [("a", 1), ("c", 3)]


def test_a_retried_check_makes_the_next_attempt() -> None:
    assert created(run(workload(checks=[state(retry_count=2)]))) == ["wl-prov-3"]


def test_not_needed_makes_the_check_ready() -> None:
    commands = run(workload(), managed_resources=("gpu",))
    assert states(commands) == [("Ready", NOT_NEEDED, None)]
    assert created(commands) == []
    assert run(workload(checks=[state("Ready", NOT_NEEDED)]), managed_resources=("gpu",)) == []


def test_a_check_that_is_not_active_waits() -> None:
    assert states(reconcile(workload(), {"prov": None}, ())) == [("Pending", CHECK_INACTIVE, None)]
    assert reconcile(workload(checks=[state(message=CHECK_INACTIVE)]), {"prov": None}, ()) == []


def test_the_newest_fitting_request_counts_and_the_others_are_deleted() -> None:
    owned = [request(1), request(3), request(2), request(9, name="wl-other-9")]
    commands = run(workload(), owned)
    assert deleted(commands) == ["wl-other-9", "wl-prov-1", "wl-prov-2"]
    assert created(commands) == []


def test_deletion_names_the_uid() -> None:
    (command,) = run(workload(conditions=(RESERVED, EVICTED)), [request(1)])
    assert command == DeleteProvisioningRequest(
        id="", kind="provisioningrequest", namespace="ns", name="wl-prov-1", uid="pr-uid-1", version=20
    )


def test_a_request_under_deletion_does_not_count() -> None:
    commands = run(workload(), [request(1, deleting=True)])
    assert (deleted(commands), created(commands)) == ([], ["wl-prov-1"])


@pytest.mark.parametrize(
    "changes", [{"class_name": "other"}, {"parameters": {"p": "2"}}, {"parameters": {"p": "1", "q": "1"}}]
)
def test_a_changed_configuration_replaces_the_request(changes: dict[str, Any]) -> None:
    commands = run(workload(), [request(1)], **changes)
    assert (deleted(commands), created(commands)) == (["wl-prov-1"], ["wl-prov-1"])


def test_parameters_overridden_by_the_workload_agree() -> None:
    wl = workload(annotations={"provreq.kueue.x-k8s.io/p": "mine"})
    assert parameters_of(wl, config()) == {"p": "mine"}
    own = request(1, parameters={"p": "mine"})
    assert current_request(wl, "prov", config(), [own]) is not None
    assert current_request(wl, "prov", config(), [request(1)]) is None


def test_the_end_of_the_workload_deletes_its_requests() -> None:
    assert deleted(run(workload(finished=True, checks=[]), [request(1), request(2)])) == ["wl-prov-1", "wl-prov-2"]
    finished = workload(conditions=(RESERVED, true(names.FINISHED)))
    assert run(finished, [request(1)])[0].name == "wl-prov-1"


@pytest.mark.parametrize(("cleanup", "gone"), [(True, ["wl-prov-1"]), (False, [])])
def test_an_eviction_deletes_requests_if_told_so(cleanup: bool, gone: list[str]) -> None:
    wl = workload(conditions=(RESERVED, EVICTED))
    commands = reconcile(wl, {"prov": config()}, [request(1)], cleanup_on_eviction=cleanup)
    assert deleted(commands) == gone
    assert len(commands) == len(gone)


def test_a_workload_evicted_and_released_stays_without_requests() -> None:
    wl = workload(conditions=(EVICTED,), admission=None)
    assert run(wl) == []


# --- from the request to the check (15.5) ---------------------------------------------------------------------------

F, B, P, A = (true(t, f"{t} text") for t in ("Failed", "BookingExpired", "Provisioned", "Accepted"))
REVOKED = true("CapacityRevoked", "gone")
ETA = Condition("Provisioned", False, "Waiting", "ETA: 5 min")


@pytest.mark.parametrize(
    ("conditions", "before", "attempt", "expected"),
    [
        ((), state(), 1, []),
        ((), state(message="old"), 1, [("Pending", "", None)]),
        ((A,), state(message="kept"), 1, []),
        ((A, ETA), state(), 1, [("Pending", "ETA: 5 min", None)]),
        ((A, ETA), state(message="ETA: 5 min"), 1, []),
        ((A, P), state(), 1, [("Ready", "Provisioned text", None)]),
        ((A, P), state("Ready", "other text"), 1, []),
        ((A, F), state(), 1, [("Retry", "Retrying after failure: Failed text", 60)]),
        ((A, F), state(retry_count=1), 2, [("Retry", "Retrying after failure: Failed text", 120)]),
        ((A, F), state(retry_count=2), 3, [("Retry", "Retrying after failure: Failed text", 240)]),
        ((A, F), state(retry_count=3), 4, [("Rejected", "Failed text", None)]),
        ((F, P), state("Ready"), 1, [("Retry", "Retrying after failure: Failed text", 60)]),
        ((F,), state("Retry", "Retrying after failure: Failed text", requeue_after_s=60), 1, []),
        ((F,), state("Rejected", "Failed text", 3), 4, []),
        ((REVOKED, P), state("Ready"), 1, [("Rejected", "gone", None)]),
        ((B, P), state(), 1, [("Retry", "Retrying after booking expired: BookingExpired text", 60)]),
        ((B, P), state(retry_count=3), 4, [("Rejected", "BookingExpired text", None)]),
        ((F, REVOKED), state(), 1, [("Retry", "Retrying after failure: Failed text", 60)]),
    ],
)
def test_the_first_true_condition_makes_the_state(
    conditions: tuple[Condition, ...],
    before: CheckState,
    attempt: int,
    expected: list[tuple[str, str, int | None]],
) -> None:
    assert states(run(workload(checks=[before]), [request(attempt, *conditions)])) == expected


def test_without_retries_the_first_failure_rejects() -> None:
    assert states(run(workload(), [request(1, F)], backoff_limit=0)) == [("Rejected", "Failed text", None)]


def test_capacity_revoked_of_an_inactive_workload_changes_nothing() -> None:
    wl = workload(active=False, checks=[state("Ready")])
    assert states(run(wl, [request(1, REVOKED, P)])) == []


def test_an_expired_booking_of_an_admitted_workload_is_ignored() -> None:
    wl = workload(conditions=(RESERVED, ADMITTED), checks=[state("Ready", "x")])
    assert run(wl, [request(1, B, P)]) == []


def test_a_failed_attempt_that_was_retried_already_is_followed_by_the_next() -> None:
    commands = run(workload(checks=[state(retry_count=1)]), [request(1, F)])
    assert states(commands) == [("Pending", "Retrying after failure: Failed text", None)]
    assert created(commands) == ["wl-prov-2"]


def test_a_new_failure_waits_for_the_eviction_before_the_next_attempt() -> None:
    assert created(run(workload(), [request(1, F)])) == []
    assert created(run(workload(), [request(1, B)])) == []
    commands = run(workload(checks=[state("Retry", "Retrying after failure: Failed text")]), [request(1, F)])
    assert commands == []


def test_state_commands_are_about_this_state_of_the_workload() -> None:
    (command,) = run(workload(checks=[state(message="old")]), [request(1)])
    assert isinstance(command, SetCheckState)
    assert (command.kind, command.key, command.uid, command.incarnation, command.version, command.check) == (
        "workload",
        "ns/wl",
        "wl-uid",
        "inc",
        10,
        "prov",
    )


@pytest.mark.parametrize(
    ("retries", "seconds"), [(0, 60), (1, 120), (2, 240), (4, 960), (5, 1800), (20, 1800), (10_000, 1800)]
)
def test_backoff_doubles_up_to_its_limit(retries: int, seconds: int) -> None:
    assert backoff_s(60, 1800, retries) == seconds


# --- podSetUpdates (15.7) -------------------------------------------------------------------------------------------


def test_ready_tells_the_pods_where_their_capacity_is() -> None:
    pr = request(1, P, class_details={"zone": "z1"}, pod_sets=(("ppt-wl-prov-1-a", 3),))
    wl = workload(pod_sets=[pod_set("a"), pod_set("merged-away")])
    (command,) = run(wl, [pr], selector_updates=(("topology/zone", "zone"), ("other", "absent")))
    assert isinstance(command, SetCheckState)
    assert command.pod_set_updates == (
        PodSetUpdate(
            name="a",
            annotations={CONSUME_ANNOTATION: "wl-prov-1", CLASS_ANNOTATION: "check-capacity"},
            node_selector={"topology/zone": "z1"},
        ),
    )


def test_updates_follow_the_order_of_the_pod_sets() -> None:
    pr = request(1, P, pod_sets=(("ppt-wl-prov-1-b", 1), ("ppt-wl-prov-1-a", 1)))
    wl = workload(pod_sets=[pod_set("a"), pod_set("b")])
    assert [u.name for u in pod_set_updates(wl, config(), pr)] == ["a", "b"]
