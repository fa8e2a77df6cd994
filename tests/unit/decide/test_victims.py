"""The decision to evict: its message, paths and what identifies the victim."""

from __future__ import annotations

import pytest

from shared.decide import victims
from shared.decide.preemption_request import Target
from shared.model.workload import Admission, PodSetAssignment
from shared.model.world import World
from tests.unit.decide.preemption_worlds import holder
from tests.unit.model.builders import cohort, group, info, local, queue, workload, world


def built() -> World:
    return world(
        cohort("root"),
        cohort("team", "root"),
        queue("A", group(default="cpu=4"), cohort="team"),
        queue("B", group(default="cpu=4"), cohort="root"),
        queue("alone", group(default="cpu=4")),
        local("lq", "B"),
        holder("victim", "B", 2, 3),
        workload("fresh"),
    )


@pytest.mark.parametrize(
    ("reason", "phrase"),
    [
        ("InClusterQueue", "prioritization in the ClusterQueue"),
        ("InCohortReclamation", "reclamation within the cohort"),
        ("InCohortFairSharing", "Fair Sharing within the cohort"),
        ("InCohortReclaimWhileBorrowing", "reclamation within the cohort while borrowing"),
    ],
)
def test_parts_of_the_message(reason: str, phrase: str) -> None:
    preemptor = info(workload("P", uid="u-1", job_uid="j-1"))
    text = victims.message(preemptor, reason, "/root/team/A", "/root/B")
    who, preemptor_path, preemptee_path = text.split("; ")
    assert "(UID: u-1, JobUID: j-1)" in who
    assert who.endswith(phrase)
    assert (preemptor_path, preemptee_path) == ("preemptor path: /root/team/A", "preemptee path: /root/B")


def test_unknown_uids_are_said_to_be_unknown() -> None:
    assert "(UID: UNKNOWN, JobUID: UNKNOWN)" in victims.message(
        info(workload("P", uid="")), "InClusterQueue", "/q", "/q"
    )


def test_paths_lead_from_the_root() -> None:
    assert victims.path_text(built(), "A") == "/root/team/A"
    assert victims.path_text(built(), "alone") == "/alone"


def test_a_preempt_names_both_sides() -> None:
    target = built()
    preemptor = info(workload("P", priority=7))
    decision = victims.preempt(target, preemptor, "A", Target("ns/victim", "B", "InCohortReclamation", {}))
    assert (decision.key, decision.uid, decision.incarnation) == ("ns/victim", "uid-victim", "inc-victim")
    assert (decision.cluster_queue, decision.preemptor_cluster_queue, decision.domain) == ("B", "A", "root")
    assert (decision.preemptor, decision.preemptor_uid) == ("ns/P", "uid-P")
    assert (decision.priority, decision.preemptor_priority) == (3, 7)
    assert (decision.eviction, decision.reason, decision.already_evicted) == ("Preempted", "InCohortReclamation", False)
    assert decision.message == victims.message(preemptor, "InCohortReclamation", "/root/team/A", "/root/B")
    assert (decision.preemptor_path, decision.preemptee_path) == ("/root/team/A", "/root/B")


def test_a_victim_on_its_way_out_is_marked() -> None:
    target = built()
    target.assume_preempted("ns/victim", "ns/other")
    wanted = Target("ns/victim", "B", "InCohortReclamation", {})
    assert victims.preempt(target, info(workload("P")), "A", wanted).already_evicted


def test_the_state_an_unsettled_admission_leaves_has_no_incarnation_yet() -> None:
    target = built()
    pod_set = PodSetAssignment(name="main", count=1, flavors={"cpu": "default"}, usage={"cpu": 1000})
    target.assume("ns/fresh", Admission("B", (pod_set,)), at=3)
    wanted = Target("ns/fresh", "B", "InCohortReclamation", {})
    assert victims.preempt(target, info(workload("P")), "A", wanted).incarnation == ""


def test_a_migration_carries_the_uid_of_the_better_variant() -> None:
    decision = victims.migrate(built(), info(workload("better", uid="u-9")), "B", "ns/victim")
    assert (decision.eviction, decision.reason) == ("FlavorMigration", "FlavorMigration")
    assert "u-9" in decision.message
    assert (decision.key, decision.cluster_queue) == ("ns/victim", "B")
