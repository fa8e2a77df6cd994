"""What the control plane of a shape needs."""

from __future__ import annotations

from loadtest.shape import load
from loadtest.target import cluster_options


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
