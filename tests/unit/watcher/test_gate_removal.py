"""How long admitted pods kept their gate: from the Admitted condition, by gate, queue and whether a group was it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal

import pytest
from prometheus_client import CollectorRegistry

from services.watcher.gate_removal import gate_removal
from shared.api import names
from shared.api.conditions import Condition
from shared.api.workload import Workload
from shared.api.workload_status import Admission, WorkloadStatus
from shared.config.configuration import Configuration, Configured, LeaderElection

NAME = "kueue_pod_scheduling_gate_removal_seconds"
ADMITTED_S = 1_767_225_600.0


def a_workload(status: Literal["True", "False"] = "True", queue: str | None = "cq") -> Workload:
    at = datetime.fromtimestamp(ADMITTED_S, UTC)
    conditions = (Condition(type=names.ADMITTED, status=status, reason="Admitted", last_transition_time=at),)
    admission = None if queue is None else Admission(cluster_queue=queue)
    return Workload(status=WorkloadStatus(conditions=conditions, admission=admission))


def sample(registry: CollectorRegistry, what: str, *, group: str, role: str = "leader") -> float | None:
    labels = {"name": "kueue.x-k8s.io/admission", "cluster_queue": "cq", "is_group": group, "replica_role": role}
    return registry.get_sample_value(f"{NAME}_{what}", labels)


@pytest.mark.parametrize(("is_group", "group"), [(False, "false"), (True, "true")])
def test_it_counts_from_the_admission(is_group: bool, group: str) -> None:
    registry = CollectorRegistry()
    removed = gate_removal(Configured(), registry, lambda: ADMITTED_S + 1.5)
    removed(a_workload(), is_group)
    removed(a_workload(), is_group)
    assert sample(registry, "sum", group=group) == 3.0
    assert sample(registry, "count", group=group) == 2.0
    assert sample(registry, "count", group="true" if group == "false" else "false") is None


def test_a_clock_behind_the_api_servers_is_no_negative_time() -> None:
    registry = CollectorRegistry()
    gate_removal(Configured(), registry, lambda: ADMITTED_S - 0.7)(a_workload(), False)
    assert sample(registry, "sum", group="false") == 0.0


@pytest.mark.parametrize("workload", [a_workload("False"), a_workload(queue=None), Workload()])
def test_what_is_not_admitted_any_more_does_not_count(workload: Workload) -> None:
    registry = CollectorRegistry()
    gate_removal(Configured(), registry, lambda: ADMITTED_S)(workload, False)
    assert sample(registry, "count", group="false") is None


def test_without_an_election_there_is_no_leader() -> None:
    registry = CollectorRegistry()
    configured = Configured(configuration=Configuration(leader_election=LeaderElection(leader_elect=False)))
    gate_removal(configured, registry, lambda: ADMITTED_S)(a_workload(), False)
    assert sample(registry, "count", group="false", role="standalone") == 1.0
