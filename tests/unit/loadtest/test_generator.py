"""The plan of a shape: names, order, times and bodies."""

from __future__ import annotations

import msgspec
import pytest

from loadtest.generator import CLASS_LABEL, RUN_SECONDS, Plan, plan
from loadtest.shape import Cohort, Kind, QueuesSet, Shape, WorkloadsSet, WorkloadTemplate
from shared.api.cluster_queue import ClusterQueue
from shared.api.decoding import convert, decode
from shared.api.workload import Workload


def template(name: str, *, request: str = "1", priority: int = 0, pods: int = 1) -> WorkloadTemplate:
    return WorkloadTemplate(class_name=name, runtime_ms=1500, request=request, priority=priority, pod_count=pods)


def planned(
    kind: Kind, sets: tuple[WorkloadsSet, ...], *, cohorts: int = 1, queues: int = 1, count: int | None = None
) -> Plan:
    queues_set = QueuesSet(
        class_name="cq", count=queues, nominal_quota="20", borrowing_limit="100",
        reclaim_within_cohort="Any", within_cluster_queue="LowerPriority", workloads_sets=sets,
    )  # fmt: skip
    cohort = Cohort(class_name="cohort", count=cohorts, queues_sets=(queues_set,))
    return plan(Shape(title="t", kind=kind, cohorts=(cohort,)), count)


def two_sets() -> tuple[WorkloadsSet, ...]:
    return (
        WorkloadsSet(count=2, creation_interval_ms=100, workloads=(template("small"), template("medium"))),
        WorkloadsSet(count=1, creation_interval_ms=250, workloads=(template("large"),)),
    )


def test_names_follow_the_performance_suite() -> None:
    made = planned("Workload", two_sets(), cohorts=2, queues=2)
    assert [queue.name for queue in made.queues] == [
        "cq-0-0-cohort-0", "cq-0-1-cohort-0", "cq-0-0-cohort-1", "cq-0-1-cohort-1",
    ]  # fmt: skip
    first = [item.name for item in made.items if item.namespace == "cq-0-0-cohort-0"]
    assert first == ["small-0-0-0", "medium-0-0-1", "large-1-0-0", "small-0-1-0", "medium-0-1-1"]


def test_the_sets_of_a_queue_run_side_by_side_each_with_its_interval() -> None:
    due = {item.name: round(item.due_s * 1000) for item in planned("Workload", two_sets()).items}
    assert due == {"small-0-0-0": 100, "medium-0-0-1": 200, "large-1-0-0": 250, "small-0-1-0": 300, "medium-0-1-1": 400}


def test_items_come_in_the_order_in_which_they_are_due() -> None:
    due = [item.due_s for item in planned("Workload", two_sets(), cohorts=3, queues=2).items]
    assert due == sorted(due)


@pytest.mark.parametrize("count", [0, 1, 7])
def test_a_count_keeps_the_first_items_and_all_queues(count: int) -> None:
    whole, part = planned("Job", two_sets(), queues=3), planned("Job", two_sets(), queues=3, count=count)
    assert part.items == whole.items[:count]
    assert part.queues == whole.queues


def test_the_plan_is_the_same_each_time() -> None:
    assert planned("Job", two_sets()) == planned("Job", two_sets())


def test_a_queue_is_a_cluster_queue_a_namespace_and_a_local_queue() -> None:
    queue = planned("Workload", two_sets()).queues[0]
    assert [document["kind"] for document in queue.objects] == ["ClusterQueue", "Namespace", "LocalQueue"]
    made = convert(ClusterQueue, queue.objects[0])
    assert made.spec.cohort_name == "cohort-0"
    quota = made.spec.resource_groups[0].flavors[0].resources[0]
    assert (quota.name, str(quota.nominal_quota), str(quota.borrowing_limit)) == ("cpu", "20", "100")
    assert made.spec.preemption.reclaim_within_cohort == "Any"
    assert made.spec.preemption.within_cluster_queue == "LowerPriority"
    assert queue.nominal_milli == 20_000


def test_a_workload_asks_for_its_pods() -> None:
    sets = (
        WorkloadsSet(count=1, creation_interval_ms=0, workloads=(template("w", request="500m", priority=7, pods=3),)),
    )
    item = planned("Workload", sets).items[0]
    made = decode(Workload, item.body)
    assert (made.metadata.namespace, made.spec.queue_name, made.spec.priority) == (item.namespace, item.namespace, 7)
    assert made.spec.pod_sets[0].count == 3
    assert made.metadata.labels == {CLASS_LABEL: "w"}
    assert item.milli == 1500
    assert item.runtime_s == 1.5


def test_a_job_is_written_as_users_write_it() -> None:
    sets = (WorkloadsSet(count=1, creation_interval_ms=0, workloads=(template("j", priority=7, pods=2),)),)
    made = planned("Job", sets)
    job = msgspec.json.decode(made.items[0].body)
    assert "suspend" not in job["spec"]
    assert job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == made.queues[0].name
    assert job["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] == "priority-7"
    assert (job["spec"]["parallelism"], job["spec"]["completions"]) == (2, 2)
    assert job["spec"]["template"]["metadata"]["annotations"] == {RUN_SECONDS: "1.5"}


def test_the_priorities_of_jobs_are_classes_made_once() -> None:
    templates = tuple(template(n, priority=p) for n, p in (("a", 5), ("b", 5), ("c", 0), ("d", 9)))
    made = planned("Job", (WorkloadsSet(count=1, creation_interval_ms=1, workloads=templates),))
    assert [(d["kind"], d.get("value")) for d in made.shared[1:]] == [
        ("WorkloadPriorityClass", 5), ("WorkloadPriorityClass", 9),
    ]  # fmt: skip
    assert [d["kind"] for d in planned("Workload", two_sets()).shared] == ["ResourceFlavor"]
