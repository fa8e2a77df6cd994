"""What the control plane of a shape needs."""

from __future__ import annotations

from pathlib import Path

import pytest

from loadtest.shape import load
from loadtest.target import cluster_options, external


def test_jobs_need_a_cluster_that_runs_them() -> None:
    options = cluster_options(load("latency"))
    assert options.audit
    assert (options.with_controllers, options.with_scheduler, options.with_kwok) == (True, True, True)
    assert options.nodes


def test_workloads_without_jobs_need_an_api_server_alone() -> None:
    options = cluster_options(load("small"))
    assert options.audit
    assert (options.with_controllers, options.with_scheduler, options.with_kwok) == (False, False, False)
    assert options.nodes == ()


def test_another_controller_is_what_is_told_of_it(tmp_path: Path) -> None:
    kubeconfig, log = tmp_path / "config", tmp_path / "audit.log"
    for file in (kubeconfig, log):
        file.touch()
    target = external(kubeconfig, name="other", users=("u",), audit_log=log, processes={"manager": 7, "bus": 8})
    assert (target.name, target.kubeconfig, target.users, target.audit_log) == ("other", kubeconfig, ("u",), log)
    assert target.processes() == {"manager": 7, "bus": 8}
    assert set(target.own) == {"manager", "bus"}
    assert target.faults == {}
    assert external(kubeconfig, processes={"manager": 7, "bus": 8}, own=("manager",)).own == ("manager",)


def test_files_that_are_not_there_and_names_of_no_process_are_refused(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "config"
    with pytest.raises(ValueError, match="config: no such file"):
        external(kubeconfig)
    kubeconfig.touch()
    with pytest.raises(ValueError, match=r"audit\.log: no such file"):
        external(kubeconfig, audit_log=tmp_path / "audit.log")
    with pytest.raises(ValueError, match="no process was named for bus"):
        external(kubeconfig, processes={"manager": 7}, own=("bus",))
