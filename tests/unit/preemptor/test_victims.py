"""Which victims take too long to free their quota."""

from __future__ import annotations

import msgspec
import pytest

from services.preemptor.victims import Lateness, Victims
from shared.api import names
from shared.events.objects import Workload
from tests.unit.preemptor.objects import condition, released, workload

EVICTED = condition(names.EVICTED, "Preempted", 900)
VICTIM = workload(EVICTED, evictions=1)


@pytest.mark.parametrize(
    "wl",
    [
        workload(),
        released(EVICTED),
        workload(condition(names.EVICTED, "QuotaReserved", 900, status=False)),
        workload(EVICTED, finished=True),
    ],
)
def test_nobody_waits_for_these(wl: Workload) -> None:
    assert Victims(60.0).look(wl, 5000.0) == Lateness("free")


def test_a_victim_has_its_time_and_is_late_after_it() -> None:
    victims = Victims(60.0)
    assert victims.look(VICTIM, 900.0) == Lateness("in time", 960.0)
    assert victims.look(VICTIM, 959.9) == Lateness("in time", 960.0)
    assert victims.look(VICTIM, 960.0) == Lateness("late", 1020.0, 1)
    assert victims.look(VICTIM, 961.0) == Lateness("in time", 1020.0)
    assert victims.look(VICTIM, 1020.0) == Lateness("late", 1080.0, 2)
    assert victims.stuck(2) == 1
    assert victims.stuck(3) == 0


def test_quota_that_is_free_ends_the_watch() -> None:
    victims = Victims(60.0)
    victims.look(VICTIM, 1000.0)
    assert victims.look(released(EVICTED), 1001.0) == Lateness("free")
    assert victims.stuck(1) == 0


@pytest.mark.parametrize(
    "again",
    [
        msgspec.structs.replace(VICTIM, evictions=2),
        msgspec.structs.replace(VICTIM, uid="new"),
        workload(condition(names.EVICTED, "Preempted", 990), evictions=1),
    ],
)
def test_another_eviction_is_counted_anew(again: Workload) -> None:
    victims = Victims(60.0)
    victims.look(VICTIM, 1500.0)
    victims.look(VICTIM, 1560.0)
    assert victims.look(again, 2000.0).repeat == 1
