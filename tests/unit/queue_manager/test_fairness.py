"""What queues and cohorts say about fair sharing, and when the past usage of a LocalQueue is written."""

from __future__ import annotations

from typing import Any

import msgspec

from shared.events.commands import Command, SetCohortStatus, SetQueueStatus
from shared.events.objects import Cohort, Flavor, FlavorQuota, Object, ResourceGroup
from tests.unit.queue_manager.objects import cluster_queue, flavor, local_queue, namespace, reserved, workload
from tests.unit.queue_manager.test_service import BASE, Manager, statuses

AFS: dict[str, Any] = {"afs": True, "afs_half_life_s": 600.0, "afs_sampling_s": 60.0}
BY_USAGE = "UsageBasedAdmissionFairSharing"


def nominal(cpu: str) -> tuple[ResourceGroup, ...]:
    return (ResourceGroup(("cpu",), (Flavor("default", (FlavorQuota(resource="cpu", nominal=cpu),)),)),)


def cohort(name: str, parent: str = "", **changes: str) -> Cohort:
    base = Cohort(name=name, uid=f"{name}-uid", version=1, generation=1, parent=parent)
    return msgspec.structs.replace(base, **changes)


TREE: tuple[Object, ...] = (
    namespace(),
    flavor(),
    cohort("root"),
    cohort("team", "root"),
    cluster_queue(cohort="team", groups=nominal("0"), fair_weight="2"),
    cluster_queue("lender", cohort="root", groups=nominal("10")),
    local_queue(),
    reserved(workload(), cpu=4000, admitted=True),
)


def shares(commands: list[Command]) -> dict[str, int | None]:
    return {
        c.name: c.weighted_share
        for c in commands
        if isinstance(c, SetQueueStatus | SetCohortStatus) and c.kind != "localqueue"
    }


def test_shares_of_queues_and_cohorts() -> None:
    manager = Manager(*TREE, fair_sharing=True)
    assert shares(manager.step()) == {"cq": 200, "lender": 0, "root": 0, "team": 400}


def test_without_fair_sharing_there_are_none_and_old_ones_go() -> None:
    manager = Manager(
        *TREE[:2], cohort("root"), msgspec.structs.replace(cohort("team", "root"), weighted_share=7), *TREE[4:]
    )
    found = shares(manager.step())
    assert found == {"cq": None, "lender": None, "team": None}


def test_a_workload_moves_the_shares_of_its_queue_and_the_cohorts_above() -> None:
    manager = Manager(*TREE, fair_sharing=True)
    manager.step()
    manager.now += 10
    assert shares(manager.put(reserved(workload("more"), cpu=1000, admitted=True))) == {"cq": 250, "team": 500}


def test_a_weight_moves_shares_all_over_the_tree_and_a_status_none() -> None:
    manager = Manager(*TREE, fair_sharing=True)
    manager.step()
    manager.now += 10
    told = manager.put(cluster_queue("lender", cohort="root", groups=nominal("20"), generation=2))
    assert {"cq": 100, "team": 200}.items() <= shares(told).items()
    for name, share in (("root", 0), ("team", 200)):
        parent = "root" if name == "team" else ""
        manager.put(msgspec.structs.replace(cohort(name, parent), weighted_share=share))
    manager.now += 10
    again = manager.put(msgspec.structs.replace(cohort("team", "root"), weighted_share=200))
    assert [c for c in again if isinstance(c, SetCohortStatus)] == []


def test_a_share_is_written_once_a_second() -> None:
    manager = Manager(*TREE, fair_sharing=True)
    manager.step()
    assert "team" not in shares(manager.put(reserved(workload("a"), cpu=1000, admitted=True)))
    assert shares(manager.step(manager.now + 1))["team"] == 500


def by_usage(**changes: Any) -> tuple[Object, ...]:
    return (*BASE[:2], cluster_queue(admission_mode=BY_USAGE, **changes), local_queue())


def consumed(commands: list[Command]) -> list[tuple[dict[str, str] | None, int]]:
    return [(c.consumed, c.consumed_at) for c in statuses(commands).values() if c.kind == "localqueue"]


def written(manager: Manager, commands: list[Command]) -> list[Command]:
    """The gateway carries the status of the LocalQueue out."""
    command = statuses(commands)["ns/lq"]
    found = local_queue(
        consumed=command.consumed or {},
        consumed_at=command.consumed_at if command.consumed is not None else None,
        status_pending=command.pending,
        status_reserving=command.reserving,
        status_admitted=command.admitted,
        status_reservation=command.reservation,
        status_usage=command.usage,
        conditions=(command.active,),
    )
    sent = manager.put(found)
    version = manager.writer.judge.version("localqueue", "ns/lq")
    return [*sent, *manager.settle(command, version=version)]


def test_past_usage_is_written_at_once_and_then_every_interval() -> None:
    manager = Manager(*by_usage(), reserved(workload(), cpu=2000, admitted=True), now=1000.0, **AFS)
    first = manager.step()
    assert consumed(first) == [({}, 1000)]
    assert consumed(written(manager, first)) == []
    assert consumed(manager.step(1059.0)) == []
    # After 60 of 600 seconds 1 - 0.5 ** 0.1 of 2 cores.
    [(amounts, at)] = consumed(manager.step(1060.0))
    assert at == 1060
    assert amounts is not None
    assert amounts["cpu"] == "133934016n"


def test_a_record_on_its_way_is_not_computed_anew() -> None:
    manager = Manager(*by_usage(), now=1000.0, **AFS)
    first = manager.step()
    assert consumed(first) == [({}, 1000)]
    manager.now = 1003.0
    again = consumed(manager.put(reserved(workload("other"), cpu=1000)))
    assert again == [({}, 1000)], "only the counts are new"
    assert consumed(manager.step(1004.0)) == []


def test_an_admission_is_written_at_once() -> None:
    manager = Manager(*by_usage(), now=1000.0, **AFS)
    written(manager, manager.step())
    manager.now = 1010.0
    waiting = workload("new")
    manager.put(waiting)
    told = manager.put(reserved(waiting, cpu=1000, admitted=True))
    [(amounts, _)] = consumed(told)
    # The penalty for 60 s of 1 core, 10 s old, and the 10 s since.
    assert amounts == {"cpu": "77683805n"}


def test_queues_without_the_mode_or_inactive_ones_take_no_part() -> None:
    assert consumed(Manager(*BASE, **AFS).step()) == [(None, 0)]
    assert consumed(Manager(*by_usage(stop_policy="Hold"), **AFS).step()) == [(None, 0)]
    assert consumed(Manager(*by_usage()).step()) == [(None, 0)]
