"""What the metrics service counts, and what it does not: replays, stale states, repeated messages."""

from __future__ import annotations

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from services.metrics.gauges import StateCollector
from services.metrics.handlers import Memory
from services.metrics.service import fixed_role, fold, viewer
from services.metrics.settings import MetricsSettings, with_configuration
from services.metrics.transitions import Observation, observations, split_reason
from shared.bus.interface import CaughtUp, FeedItem, Logged, ObjectChanged, Reset, Settled
from shared.config.configuration import (
    Configuration,
    Configured,
    CustomLabel,
    LeaderElection,
    LocalQueueMetrics,
    Metrics,
    Selector,
)
from shared.config.feature_gates import resolve
from shared.events import objects as o
from shared.events.decisions import Batch, DecisionId, Positions, Preempt
from shared.events.outcomes import DecisionOutcome
from shared.events.subjects import ObjectName
from shared.telemetry.metrics import Recorder

PENDING = o.Workload(namespace="ns", name="w", uid="u", version=1, created=100, queue_name="lq", priority_class="high")


def condition(type_: str, at: int, *, status: bool = True, reason: str = "") -> o.Condition:
    return o.Condition(type=type_, status=status, reason=reason, changed=at)


def step(workload: o.Workload, *conditions: o.Condition, **changed: object) -> o.Workload:
    return msgspec.structs.replace(workload, version=workload.version + 1, conditions=conditions, **changed)


ADMISSION = o.Admission(cluster_queue="cq")
RESERVED = step(PENDING, condition("QuotaReserved", 110), admission=ADMISSION, checks=(o.CheckState(name="ac"),))
ADMITTED = step(RESERVED, condition("QuotaReserved", 110), condition("Admitted", 130))
EVICTED = step(ADMITTED, *ADMITTED.conditions, condition("Evicted", 150, reason="Preempted"), evictions=1)
RELEASED = step(
    EVICTED,
    condition("QuotaReserved", 157, status=False, reason="PendingEvaluation"),
    condition("Evicted", 150, reason="Preempted"),
    condition("Requeued", 157, reason="Preempted"),
    admission=None,
)
FINISHED = step(ADMITTED, condition("Finished", 190, reason="Succeeded"), finished=True, pod_sets=())


def named(found: list[Observation]) -> dict[str, tuple[tuple[str, ...], float]]:
    return {x.name: (x.labels, x.value) for x in found}


def test_reservation_and_admission_are_counted_with_their_waits() -> None:
    assert named(observations(PENDING, RESERVED)) == {
        "quota_reserved_workloads_total": (("cq", "high"), 1),
        "local_queue_quota_reserved_workloads_total": (("lq", "ns", "high"), 1),
        "quota_reserved_wait_time_seconds": (("cq", "high"), 10),
        "local_queue_quota_reserved_wait_time_seconds": (("lq", "ns", "high"), 10),
    }
    admitted = named(observations(RESERVED, ADMITTED))
    assert admitted["admission_wait_time_seconds"] == (("cq", "high"), 30)
    assert admitted["admission_checks_wait_time_seconds"] == (("cq", "high"), 20)
    assert "quota_reserved_workloads_total" not in admitted


def test_both_at_once_without_checks() -> None:
    at_once = step(PENDING, condition("QuotaReserved", 110), condition("Admitted", 110), admission=ADMISSION)
    found = named(observations(PENDING, at_once))
    assert "admitted_workloads_total" in found
    assert "admission_checks_wait_time_seconds" not in found


def test_eviction_and_release() -> None:
    found = named(observations(ADMITTED, EVICTED))
    assert found["evicted_workloads_total"] == (("cq", "Preempted", "", "high"), 1)
    latency = named(observations(EVICTED, RELEASED))
    assert latency == {"workload_eviction_latency_seconds": (("cq", "Preempted"), 7)}


def test_a_wait_after_a_requeue_begins_at_the_requeue() -> None:
    again = step(RELEASED, condition("QuotaReserved", 160), condition("Requeued", 157), admission=ADMISSION)
    assert named(observations(RELEASED, again))["quota_reserved_wait_time_seconds"] == (("cq", "high"), 3)


def test_the_end() -> None:
    found = named(observations(ADMITTED, FINISHED))
    assert found["finished_workloads_total"] == (("cq", "high"), 1)
    assert found["execution_time_seconds"] == (("cq", "high"), 60)
    resumed = named(observations(step(ADMITTED, *ADMITTED.conditions, past_execution_s=40), FINISHED))
    assert resumed["execution_time_seconds"] == (("cq", "high"), 100)
    assert observations(FINISHED, step(FINISHED, *FINISHED.conditions, finished=True)) == []


def test_another_object_of_the_same_name_is_no_transition() -> None:
    assert observations(PENDING, msgspec.structs.replace(ADMITTED, uid="other")) == []


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("Preempted", ("Preempted", "")),
        ("Deactivated", ("Deactivated", "")),
        ("DeactivatedDueToAdmissionCheck", ("Deactivated", "AdmissionCheck")),
    ],
)
def test_reason_and_cause(reason: str, expected: tuple[str, str]) -> None:
    assert split_reason(reason) == expected


class Service:
    """The service without a bus."""

    def __init__(self, settings: MetricsSettings | None = None, configured: Configured | None = None) -> None:
        self.registry = CollectorRegistry()
        self.role = "standalone"
        self.memory = Memory(viewer(settings or MetricsSettings(), configured or Configured()))
        view = self.memory.view
        self.recorder = Recorder(self.registry, lambda: self.role, view.custom.names)
        self.registry.register(StateCollector(view, lambda: self.role))

    def see(self, *items: FeedItem) -> None:
        for item in items:
            fold(self.memory, self.recorder, item)

    def value(self, name: str, /, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"kueue_{name}", {**labels, "replica_role": "standalone"})


def change(item: o.Object, kind: str = "workload") -> ObjectChanged:
    return ObjectChanged(name=ObjectName(kind, item.namespace, item.name), object=item, position=item.version)


LQ = change(o.LocalQueue(namespace="ns", name="lq", version=1, cluster_queue="cq"), "localqueue")
CQ = change(
    o.ClusterQueue(
        name="cq",
        version=1,
        cohort="team",
        groups=(
            o.ResourceGroup(
                covered=("cpu",), flavors=(o.Flavor("f", (o.FlavorQuota("cpu", "4", borrowing_limit="500m"),)),)
            ),
        ),
        conditions=(condition("Active", 1),),
        status_usage=o.QueueUsage((("f", "cpu", 1500, 0),)),
    ),
    "clusterqueue",
)
LIVE = (Reset(1, "start"), LQ, CQ, change(PENDING), CaughtUp(Positions(epoch=1)))


def test_a_replay_counts_nothing_and_live_changes_count_once() -> None:
    service = Service()
    service.see(*LIVE, change(RESERVED), change(RESERVED), change(ADMITTED))
    assert service.value("admitted_workloads_total", cluster_queue="cq", priority_class="high") == 1
    service.see(Reset(1, "wiped"), LQ, CQ, change(ADMITTED), CaughtUp(Positions(epoch=2)), change(ADMITTED))
    assert service.value("admitted_workloads_total", cluster_queue="cq", priority_class="high") == 1


def test_what_happened_during_a_replay_is_counted_after_it() -> None:
    service = Service()
    service.see(*LIVE, change(ADMITTED))
    service.see(Reset(1, "wiped"), Reset(2, "again"), LQ, CQ, change(FINISHED))
    assert service.value("finished_workloads_total", cluster_queue="cq", priority_class="high") is None
    service.see(CaughtUp(Positions(epoch=2)), change(FINISHED))
    assert service.value("finished_workloads_total", cluster_queue="cq", priority_class="high") == 1
    assert service.value("admitted_workloads_total", cluster_queue="cq", priority_class="high") == 1


def test_a_late_older_state_is_no_transition() -> None:
    service = Service()
    service.see(*LIVE, change(ADMITTED), change(RESERVED))
    assert service.value("admitted_active_workloads", cluster_queue="cq") == 1


def test_evicted_once_counts_each_reason_of_a_workload_once() -> None:
    service = Service()
    again = step(RELEASED, condition("QuotaReserved", 160), condition("Admitted", 160), admission=ADMISSION)
    twice = step(again, *again.conditions, condition("Evicted", 170, reason="Preempted"), evictions=2)
    service.see(*LIVE, change(ADMITTED), change(EVICTED), change(RELEASED), change(again), change(twice))
    labels = {"cluster_queue": "cq", "reason": "Preempted", "underlying_cause": "", "priority_class": "high"}
    assert service.value("evicted_workloads_total", **labels) == 2
    assert service.value("evicted_workloads_once_total", **labels) == 1


@pytest.mark.parametrize(("status", "expected"), [("applied", 1.0), ("rejected", None)])
def test_preemptions_count_when_they_are_applied(status: str, expected: float | None) -> None:
    service = Service()
    preempt = Preempt(
        key="ns/w",
        uid="u",
        incarnation="i",
        reason="InClusterQueue",
        message="",
        preemptor="ns/p",
        preemptor_uid="p",
        preemptor_cluster_queue="cq",
    )
    batch = Batch(author="s", positions=Positions(epoch=1), decided_ns=0, decisions=(preempt,))
    outcome = DecisionOutcome(decision=DecisionId(1, 7, 0), key="ns/w", uid="u", status=status)  # type: ignore[arg-type]
    service.see(*LIVE, Logged(batch, 7), Settled(outcome, 1), Settled(outcome, 2))
    assert (
        service.value("preempted_workloads_total", preempting_cluster_queue="cq", reason="InClusterQueue") == expected
    )


def test_gauges_of_workloads_and_queues() -> None:
    service = Service(MetricsSettings(cluster_queue_resources=True))
    refused = step(
        msgspec.structs.replace(PENDING, name="x", uid="x"),
        condition("QuotaReserved", 1, status=False, reason="WaitingForQuota"),
    )
    service.see(*LIVE, change(refused))
    assert service.value("pending_workloads", cluster_queue="cq", status="active") == 1
    assert service.value("pending_workloads", cluster_queue="cq", status="inadmissible") == 1
    assert service.value("local_queue_pending_workloads", name="lq", namespace="ns", status="inadmissible") == 1
    assert service.value("unadmitted_workloads", cluster_queue="cq", reason="WaitingForQuota", underlying_cause="") == 1
    assert service.value("cluster_queue_status", cluster_queue="cq", status="active") == 1
    assert service.value("cluster_queue_info", cluster_queue="cq", parent_cohort="team", root_cohort="team") == 1
    quota = {"cohort": "team", "cluster_queue": "cq", "flavor": "f", "resource": "cpu"}
    assert service.value("cluster_queue_nominal_quota", **quota) == 4
    assert service.value("cluster_queue_borrowing_limit", **quota) == 0.5
    assert service.value("cluster_queue_lending_limit", **quota) == float("inf")
    assert service.value("cluster_queue_resource_usage", **quota) == 1.5


def test_shares_are_those_of_the_status_and_there_only_with_fair_sharing() -> None:
    service = Service(MetricsSettings(afs_weights={"memory": 0.5}))
    service.see(*LIVE)
    share = {"cluster_queue": "cq", "cohort": "team"}
    of_local = {"name": "lq", "namespace": "ns", "cluster_queue": "cq"}
    assert service.value("cluster_queue_weighted_share", **share) is None
    assert service.value("local_queue_admission_fair_sharing_usage", **of_local) is None
    queue, local = CQ.object, LQ.object
    assert isinstance(queue, o.ClusterQueue)
    assert isinstance(local, o.LocalQueue)
    used = {"cpu": "1500m", "memory": "4"}
    service.see(
        change(msgspec.structs.replace(queue, version=2, weighted_share=61), "clusterqueue"),
        change(o.Cohort(name="team", version=2, weighted_share=7), "cohort"),
        change(msgspec.structs.replace(local, version=2, fair_weight="2", consumed=used, consumed_at=5), "localqueue"),
    )
    assert service.value("cluster_queue_weighted_share", **share) == 61
    assert service.value("cohort_weighted_share", cohort="team") == 7
    assert service.value("local_queue_admission_fair_sharing_usage", **of_local) == (1.5 + 0.5 * 4) / 2
    without = Service(configured=Configured(gates=resolve({"MetricsForCohorts": False})))
    without.see(*LIVE, change(o.Cohort(name="team", version=2, weighted_share=7), "cohort"))
    assert without.value("cohort_weighted_share", cohort="team") is None


def test_series_of_a_queue_vanish_with_it() -> None:
    service = Service()
    service.see(*LIVE, change(RESERVED))
    name = ObjectName("clusterqueue", "", "cq")
    service.see(ObjectChanged(name=name, object=o.Tombstone(name="cq", version=9), position=9))
    assert service.value("quota_reserved_workloads_total", cluster_queue="cq", priority_class="high") is None
    assert service.value("cluster_queue_status", cluster_queue="cq", status="active") is None


def test_a_cycle_of_cohorts_does_not_hang_the_scrape() -> None:
    service = Service()
    service.see(*LIVE)
    for name, parent in (("team", "org"), ("org", "team")):
        service.see(change(o.Cohort(name=name, version=1, parent=parent), "cohort"))
    assert (
        service.registry.get_sample_value(
            "kueue_pending_workloads", {"cluster_queue": "cq", "status": "active", "replica_role": "standalone"}
        )
        == 1
    )


@pytest.mark.parametrize(
    ("metrics", "gates", "resources", "local_queues"),
    [
        (Metrics(), {}, False, True),
        (Metrics(enable_cluster_queue_resources=True), {}, True, True),
        (Metrics(local_queue_metrics=LocalQueueMetrics()), {}, False, False),
        (Metrics(), {"LocalQueueMetrics": False}, False, False),
    ],
)
def test_what_the_configuration_switches(
    metrics: Metrics, gates: dict[str, bool], resources: bool, local_queues: bool
) -> None:
    configured = Configured(configuration=Configuration(metrics=metrics), gates=resolve(gates))
    settings = with_configuration(MetricsSettings(), configured)
    assert (settings.cluster_queue_resources, settings.local_queues) == (resources, local_queues)


READY = step(ADMITTED, *ADMITTED.conditions, condition("PodsReady", 145, reason="Started"))


def test_pods_ready_is_timed_from_queueing_and_from_admission_and_until_the_eviction() -> None:
    found = named(observations(ADMITTED, READY))
    assert found["ready_wait_time_seconds"] == (("cq", "high"), 45)
    assert found["local_queue_admitted_until_ready_wait_time_seconds"] == (("lq", "ns", "high"), 15)
    evicted = step(READY, *READY.conditions, condition("Evicted", 150, reason="Preempted"), evictions=1)
    assert named(observations(READY, evicted))["pods_ready_to_evicted_time_seconds"] == (("cq", "Preempted", ""), 5)
    assert "pods_ready_to_evicted_time_seconds" not in named(observations(ADMITTED, EVICTED))


@pytest.mark.parametrize("cause", ["WaitForStart", "WaitForRecovery"])
def test_the_cause_of_a_time_out_is_what_was_waited_for(cause: str) -> None:
    waiting = step(ADMITTED, *ADMITTED.conditions, condition("PodsReady", 140, status=False, reason=cause))
    evicted = step(waiting, *waiting.conditions, condition("Evicted", 150, reason="PodsReadyTimeout"), evictions=1)
    found = named(observations(waiting, evicted))
    assert found["evicted_workloads_total"] == (("cq", "PodsReadyTimeout", cause, "high"), 1)


def test_a_replaced_slice_is_counted() -> None:
    replaced = step(ADMITTED, condition("Finished", 190, reason="WorkloadSliceReplaced"), finished=True)
    assert named(observations(ADMITTED, replaced))["replaced_workload_slices_total"] == (("cq",), 1)
    assert "replaced_workload_slices_total" not in named(observations(ADMITTED, FINISHED))


def test_queues_that_a_replay_does_not_bring_back_have_no_series() -> None:
    service = Service()
    service.see(*LIVE, change(RESERVED))
    service.see(Reset(1, "wiped"), LQ, change(RESERVED), CaughtUp(Positions(epoch=2)))
    assert service.value("quota_reserved_workloads_total", cluster_queue="cq", priority_class="high") is None
    of_local = {"name": "lq", "namespace": "ns", "priority_class": "high"}
    assert service.value("local_queue_quota_reserved_workloads_total", **of_local) == 1


def test_a_follower_publishes_gauges_only() -> None:
    service = Service()
    service.role = "follower"
    service.see(*LIVE, change(RESERVED))
    assert service.registry.get_sample_value(
        "kueue_reserving_active_workloads", {"cluster_queue": "cq", "replica_role": "follower"}
    )
    assert not [m for m in service.registry.collect() if m.name == "kueue_quota_reserved_workloads" and m.samples]
    service.role = "leader"
    service.see(change(ADMITTED))
    labels = {"cluster_queue": "cq", "priority_class": "high", "replica_role": "leader"}
    assert service.registry.get_sample_value("kueue_admitted_workloads_total", labels) == 1
    service.recorder.clear()
    assert service.registry.get_sample_value("kueue_admitted_workloads_total", labels) is None


@pytest.mark.parametrize(
    ("setting", "elect", "expected"), [("", True, ""), ("", False, "standalone"), ("leader", True, "leader")]
)
def test_the_role_that_needs_no_election(setting: str, elect: bool, expected: str) -> None:
    configured = Configured(configuration=Configuration(leader_election=LeaderElection(leader_elect=elect)))
    assert fixed_role(MetricsSettings(replica_role=setting), configured) == expected


def tree(*, gates: dict[str, bool] | None = None) -> Service:
    """team (nominal 1, lends at most 3) holds cq (4 cpu) and lies below org, which has an object without quota of its own."""
    service = Service(configured=Configured(gates=resolve(gates or {})))
    own = (o.ResourceGroup(("cpu",), (o.Flavor("f", (o.FlavorQuota("cpu", "1", lending_limit="3"),)),)),)
    queue = CQ.object
    assert isinstance(queue, o.ClusterQueue)
    reserving = msgspec.structs.replace(queue, version=2, status_reservation=o.QueueUsage((("f", "cpu", 2500, 0),)))
    service.see(
        *LIVE,
        change(o.Cohort(name="team", version=1, parent="org", groups=own, weighted_share=7), "cohort"),
        change(o.Cohort(name="org", version=1), "cohort"),
        change(reserving, "clusterqueue"),
        change(ADMITTED),
    )
    return service


def test_cohorts_count_what_is_below_them() -> None:
    service = tree()
    cell = {"flavor": "f", "resource": "cpu"}
    assert service.value("cohort_subtree_quota", cohort="team", **cell) == 5
    assert service.value("cohort_subtree_quota", cohort="org", **cell) == 3
    assert service.value("cohort_weighted_share", cohort="team") == 7
    assert service.value("cohort_weighted_share", cohort="org") is None
    assert service.value("cohort_info", cohort="team", parent_cohort="org", root_cohort="org") == 1
    for cohort in ("team", "org"):
        assert service.value("cohort_subtree_resource_reservations", cohort=cohort, **cell) == 2.5
        assert service.value("cohort_subtree_admitted_active_workloads", cohort=cohort) == 1
        assert service.value("cohort_subtree_admitted_workloads_total", cohort=cohort, priority_class="high") == 1


def test_a_cohort_that_nobody_names_any_more_has_no_series() -> None:
    service = tree()
    for name in ("org", "team"):
        tombstone = o.Tombstone(name=name, version=9)
        service.see(ObjectChanged(name=ObjectName("cohort", "", name), object=tombstone, position=9))
    # The ClusterQueue still says that it belongs to team.
    assert service.value("cohort_subtree_admitted_workloads_total", cohort="team", priority_class="high") == 1
    assert service.value("cohort_subtree_admitted_workloads_total", cohort="org", priority_class="high") is None
    queue = CQ.object
    assert isinstance(queue, o.ClusterQueue)
    service.see(change(msgspec.structs.replace(queue, version=10, cohort=""), "clusterqueue"))
    assert service.value("cohort_subtree_admitted_workloads_total", cohort="team", priority_class="high") is None
    assert service.value("cohort_info", cohort="team", parent_cohort="", root_cohort="team") is None


def test_cohorts_have_no_series_without_their_gate() -> None:
    service = tree(gates={"MetricsForCohorts": False})
    assert not [m for m in service.registry.collect() if m.name.startswith("kueue_cohort") and m.samples]


def test_the_gate_of_unadmitted_workloads() -> None:
    service = Service(configured=Configured(gates=resolve({"UnadmittedWorkloadsObservability": False})))
    service.see(*LIVE)
    labels = {"reason": "PendingEvaluation", "underlying_cause": ""}
    assert service.value("unadmitted_workloads", cluster_queue="cq", **labels) is None
    with_gate = Service()
    with_gate.see(*LIVE)
    assert with_gate.value("unadmitted_workloads", cluster_queue="cq", **labels) == 1
    of_local = {"name": "lq", "namespace": "ns", "cluster_queue": "cq"}
    assert with_gate.value("local_queue_unadmitted_workloads", **of_local, **labels) == 1


def test_only_selected_local_queues_have_series() -> None:
    chosen = LocalQueueMetrics(enable=True, local_queue_selector=Selector(match_labels={"shown": "yes"}))
    configured = Configured(configuration=Configuration(metrics=Metrics(local_queue_metrics=chosen)))
    service = Service(configured=configured)
    queue = LQ.object
    assert isinstance(queue, o.LocalQueue)
    shown = change(msgspec.structs.replace(queue, version=2, labels={"shown": "yes"}), "localqueue")
    of_local = {"name": "lq", "namespace": "ns"}
    service.see(*LIVE, change(RESERVED))
    assert service.value("local_queue_reserving_active_workloads", **of_local) is None
    assert service.value("local_queue_quota_reserved_workloads_total", **of_local, priority_class="high") is None
    service.see(shown, change(ADMITTED))
    assert service.value("local_queue_admitted_active_workloads", **of_local) == 1
    assert service.value("local_queue_admitted_workloads_total", **of_local, priority_class="high") == 1
    service.see(change(msgspec.structs.replace(queue, version=3), "localqueue"))
    assert service.value("local_queue_admitted_workloads_total", **of_local, priority_class="high") is None
    assert service.value("local_queue_status", **of_local, active="Unknown") is None


def test_custom_labels_are_on_the_series_of_their_objects() -> None:
    labels = (
        CustomLabel(name="cost", source_annotation_key="example.com/cost", tracked_values=("red",)),
        CustomLabel(name="team", source_kind="Workload", tracked_values=("a", "b")),
        CustomLabel(name="room", source_kind="LocalQueue"),
    )
    configured = Configured(
        configuration=Configuration(metrics=Metrics(custom_labels=labels)),
        gates=resolve({"CustomMetricLabels": True}),
    )
    service = Service(configured=configured)
    queue, local = CQ.object, LQ.object
    assert isinstance(queue, o.ClusterQueue)
    assert isinstance(local, o.LocalQueue)
    service.see(
        *LIVE,
        change(msgspec.structs.replace(queue, version=2, annotations={"example.com/cost": "blue"}), "clusterqueue"),
        change(msgspec.structs.replace(local, version=2, labels={"room": "7"}), "localqueue"),
        change(step(PENDING, labels={"team": "a"})),
        change(msgspec.structs.replace(PENDING, name="x", uid="x", labels={"team": "c"})),
    )
    untracked = "kueue.x-k8s.io/_UNTRACKED_VALUE_"
    pending = {"cluster_queue": "cq", "status": "active", "custom_cost": untracked}
    assert service.value("pending_workloads", **pending, custom_team="a") == 1
    assert service.value("pending_workloads", **pending, custom_team=untracked) == 1
    service.see(change(msgspec.structs.replace(ADMITTED, version=5, labels={"team": "b"})))
    of_local = {"name": "lq", "namespace": "ns", "priority_class": "high", "custom_room": "7"}
    assert service.value("local_queue_admitted_workloads_total", **of_local, custom_team="b") == 1
    of_queue = {"cluster_queue": "cq", "priority_class": "high", "custom_cost": untracked}
    assert service.value("admitted_workloads_total", **of_queue) == 1
    name = ObjectName("clusterqueue", "", "cq")
    service.see(ObjectChanged(name=name, object=o.Tombstone(name="cq", version=9), position=9))
    assert service.value("admitted_workloads_total", **of_queue) is None
