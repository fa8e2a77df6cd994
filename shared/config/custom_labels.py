"""Labels that `metrics.customLabels` adds to metrics: their names, and their values off the labels and annotations of objects. Gate CustomMetricLabels.

Also says which labels and annotations of which objects anybody has to know for that, and for the selector of LocalQueues with metrics, so that no
more than those travels on the bus.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec

from shared.config.configuration import Configured, CustomLabel
from shared.telemetry.metrics import SourceKind

PREFIX = "custom_"
UNTRACKED = "kueue.x-k8s.io/_UNTRACKED_VALUE_"
"""Stands for each value that `trackedValues` does not name."""


class Marks(msgspec.Struct, frozen=True):
    """Labels and annotations of an object, perhaps only some of them."""

    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}


NO_MARKS = Marks()
MarksOf = Callable[[SourceKind], Marks]


class MarkKeys(msgspec.Struct, frozen=True):
    """Keys of labels and of annotations."""

    labels: frozenset[str] = frozenset()
    annotations: frozenset[str] = frozenset()

    def of(self, marks: Marks) -> Marks:
        """What of these an object has."""
        return Marks(
            {key: value for key, value in marks.labels.items() if key in self.labels},
            {key: value for key, value in marks.annotations.items() if key in self.annotations},
        )


class CustomLabels:
    """The labels in the order of the configuration. A family names the kinds that it takes them from."""

    def __init__(self, labels: Iterable[CustomLabel] = ()) -> None:
        self._labels = tuple(labels)

    def names(self, kinds: tuple[SourceKind, ...]) -> tuple[str, ...]:
        """Names of the labels that take their value from objects of these kinds."""
        return tuple(PREFIX + label.name for label in self._labels if label.source_kind in kinds)

    def values(self, kinds: tuple[SourceKind, ...], marks_of: MarksOf) -> tuple[str, ...]:
        """Their values, in the order of `names`."""
        return tuple(_value(label, marks_of(label.source_kind)) for label in self._labels if label.source_kind in kinds)


def _value(label: CustomLabel, marks: Marks) -> str:
    if label.source_annotation_key:
        value = marks.annotations.get(label.source_annotation_key, "")
    else:
        value = marks.labels.get(label.source_label_key or label.name, "")
    return UNTRACKED if value and label.tracked_values and value not in label.tracked_values else value


def custom_labels(configured: Configured) -> CustomLabels:
    """Those of the configuration; none with the gate off."""
    on = configured.gates["CustomMetricLabels"]
    return CustomLabels(configured.configuration.metrics.custom_labels if on else ())


def marks_read(configured: Configured) -> dict[SourceKind, MarkKeys]:
    """By kind, what metrics read of its objects; kinds of which nothing is read are left out."""
    labels: dict[SourceKind, set[str]] = {}
    annotations: dict[SourceKind, set[str]] = {}
    metrics = configured.configuration.metrics
    for label in metrics.custom_labels if configured.gates["CustomMetricLabels"] else ():
        if label.source_annotation_key:
            annotations.setdefault(label.source_kind, set()).add(label.source_annotation_key)
        else:
            labels.setdefault(label.source_kind, set()).add(label.source_label_key or label.name)
    selector = metrics.local_queue_metrics.local_queue_selector
    if selector is not None:
        keys = (*selector.match_labels, *(requirement.key for requirement in selector.match_expressions))
        labels.setdefault("LocalQueue", set()).update(keys)
    return {
        kind: MarkKeys(frozenset(labels.get(kind, ())), frozenset(annotations.get(kind, ())))
        for kind in labels.keys() | annotations.keys()
    }
