"""The status a queue should carry, against the one it carries."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from services.queue_manager.queue_status import status_change
from shared.api import names
from shared.events.objects import ClusterQueue, Condition, QueueUsage
from shared.model.activity import Activity
from shared.state.queues import QueueStatus
from tests.unit.queue_manager.objects import cluster_queue, local_queue

USAGE = QueueUsage((("default", "cpu", 3000, 0),))
READY = Activity(True, "Ready", "Can admit new workloads")
STOPPED = Activity(False, "Stopped", "is stopped")
STATUS = QueueStatus(pending=1, reserving=2, admitted=1, reservation=USAGE, usage=QueueUsage(), active=READY)
ACTIVE = Condition(names.ACTIVE, True, "Ready", "Can admit new workloads", 50, 1)


def told(**changes: Any) -> ClusterQueue:
    """A ClusterQueue that says what STATUS wants."""
    base = cluster_queue(
        status_pending=1, status_reserving=2, status_admitted=1, status_reservation=USAGE, conditions=(ACTIVE,)
    )
    return msgspec.structs.replace(base, **changes)


def test_a_queue_that_says_it_already_is_left_alone() -> None:
    assert status_change("clusterqueue", told(), STATUS, 100.0) is None


def test_a_new_queue_gets_its_whole_status_at_once() -> None:
    change = status_change("clusterqueue", cluster_queue(version=7), STATUS, 100.9)
    assert change is not None
    assert change.urgent
    command = change.command
    assert (command.kind, command.name, command.uid, command.version) == ("clusterqueue", "cq", "cq-uid", 7)
    assert (command.pending, command.reserving, command.admitted) == (1, 2, 1)
    assert (command.reservation, command.usage) == (USAGE, QueueUsage())
    assert command.active == msgspec.structs.replace(ACTIVE, changed=100)


@pytest.mark.parametrize(
    "changes",
    [
        {"status_pending": 0},
        {"status_reserving": 0},
        {"status_admitted": 0},
        {"status_reservation": QueueUsage()},
        {"status_usage": USAGE},
        {"generation": 2},
        {"conditions": (msgspec.structs.replace(ACTIVE, message="other"),)},
    ],
)
def test_numbers_and_texts_can_wait(changes: dict[str, Any]) -> None:
    change = status_change("clusterqueue", told(**changes), STATUS, 100.0)
    assert change is not None
    assert not change.urgent
    assert change.command.active.changed == 50


def test_a_flip_is_urgent_and_moves_the_time() -> None:
    change = status_change("clusterqueue", told(), msgspec.structs.replace(STATUS, active=STOPPED), 100.0)
    assert change is not None
    assert change.urgent
    assert change.command.active == Condition(names.ACTIVE, False, "Stopped", "is stopped", 100, 1)


def test_another_reason_is_urgent_and_keeps_the_time() -> None:
    inactive = Condition(names.ACTIVE, False, "FlavorNotFound", "missing", 50, 1)
    change = status_change(
        "clusterqueue", told(conditions=(inactive,)), msgspec.structs.replace(STATUS, active=STOPPED), 100.0
    )
    assert change is not None
    assert change.urgent
    assert change.command.active.changed == 50


def test_local_queues_are_named_with_their_namespace() -> None:
    change = status_change("localqueue", local_queue(), STATUS, 100.0)
    assert change is not None
    assert (change.command.kind, change.command.key) == ("localqueue", "ns/lq")
