"""Custom labels of metrics: names, values, and what of which objects has to be known for them."""

from __future__ import annotations

import pytest

from shared.config.configuration import (
    Configuration,
    Configured,
    CustomLabel,
    LocalQueueMetrics,
    Metrics,
    Requirement,
    Selector,
)
from shared.config.custom_labels import UNTRACKED, CustomLabels, MarkKeys, Marks, custom_labels, marks_read
from shared.config.feature_gates import resolve

LABELS = (
    CustomLabel(name="team"),
    CustomLabel(name="cost", source_annotation_key="example.com/cost"),
    CustomLabel(name="size", source_kind="Workload", source_label_key="example.com/size", tracked_values=("s", "m")),
)


def configured(gate: bool = True, selector: Selector | None = None) -> Configured:
    queues = LocalQueueMetrics(enable=True, local_queue_selector=selector)
    return Configured(
        configuration=Configuration(metrics=Metrics(custom_labels=LABELS, local_queue_metrics=queues)),
        gates=resolve({"CustomMetricLabels": gate}),
    )


def test_names_are_those_of_the_kinds_in_the_order_of_the_file() -> None:
    custom = custom_labels(configured())
    assert custom.names(("ClusterQueue", "Workload")) == ("custom_team", "custom_cost", "custom_size")
    assert custom.names(("Workload",)) == ("custom_size",)
    assert custom.names(("Cohort",)) == ()


@pytest.mark.parametrize(
    ("marks", "expected"),
    [
        (Marks(), ("", "", "")),
        (Marks({"team": "a", "example.com/cost": "label"}, {"team": "annotation"}), ("a", "", "")),
        (Marks({"example.com/size": "m"}, {"example.com/cost": "red"}), ("", "red", "m")),
        (Marks({"example.com/size": "xl"}), ("", "", UNTRACKED)),
    ],
)
def test_values_come_from_label_or_annotation(marks: Marks, expected: tuple[str, ...]) -> None:
    assert custom_labels(configured()).values(("ClusterQueue", "Workload"), lambda _: marks) == expected


def test_a_value_is_taken_from_an_object_of_its_own_kind() -> None:
    marks = {"ClusterQueue": Marks({"team": "queue"}), "Workload": Marks({"team": "workload"})}
    assert CustomLabels(LABELS[:1]).values(("ClusterQueue", "Workload"), marks.__getitem__) == ("queue",)


def test_without_the_gate_there_are_none() -> None:
    assert custom_labels(configured(gate=False)).names(("ClusterQueue", "Workload")) == ()
    assert marks_read(configured(gate=False)) == {}


def test_what_is_read_of_which_objects() -> None:
    selector = Selector(match_labels={"a": "1"}, match_expressions=(Requirement(key="b", operator="Exists"),))
    assert marks_read(configured(selector=selector)) == {
        "ClusterQueue": MarkKeys(frozenset({"team"}), frozenset({"example.com/cost"})),
        "Workload": MarkKeys(frozenset({"example.com/size"})),
        "LocalQueue": MarkKeys(frozenset({"a", "b"})),
    }


def test_marks_are_cut_to_what_is_read() -> None:
    keys = MarkKeys(frozenset({"a"}), frozenset({"b"}))
    assert keys.of(Marks({"a": "1", "b": "2"}, {"a": "3", "b": "4"})) == Marks({"a": "1"}, {"b": "4"})
