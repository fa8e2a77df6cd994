"""Refusals of Jobs: the numbered rules of the integration specification, on creation and on update."""

from __future__ import annotations

from typing import Any

import pytest

from services.webhook.validate_job import created_errors, updated_errors

K = "kueue.x-k8s.io/"


def job(
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    *,
    suspend: bool = True,
    **spec: Any,
) -> dict[str, Any]:
    return {
        "metadata": {
            "name": "j",
            "labels": {K + k: v for k, v in (labels or {}).items()},
            "annotations": {K + k: v for k, v in (annotations or {}).items()},
        },
        "spec": {"suspend": suspend, "parallelism": 4, "template": {"spec": {"containers": []}}, **spec},
    }


def paths(errors: Any) -> list[str]:
    return [f"{e.path.replace(K, '')} {e.kind}" for e in errors]


QUEUE = "metadata.labels[queue-name] Invalid value"
MAX = "metadata.labels[max-exec-time-seconds] Invalid value"
GATED = "metadata.annotations[admission-gated-by]"
MIN = "metadata.annotations[job-min-parallelism] Invalid value"


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (job({"queue-name": "q"}), []),
        (job({"queue-name": "Q_"}), [QUEUE]),
        (job({"queue-name": ""}), [QUEUE]),
        (job({"max-exec-time-seconds": "10"}), []),
        (job({"max-exec-time-seconds": "0"}), [MAX]),
        (job({"max-exec-time-seconds": "soon"}), [MAX]),
        (
            job(annotations={"prebuilt-workload-name": "Not_A_Name"}),
            ["metadata.annotations[prebuilt-workload-name] Invalid value"],
        ),
        (job({"prebuilt-workload-name": "Not_A_Name"}), ["metadata.labels[prebuilt-workload-name] Invalid value"]),
        (job(annotations={"admission-gated-by": "example.com/a, example.com/b"}), []),
        (job(annotations={"admission-gated-by": "example.com/a,,"}), [f"{GATED} Invalid value"] * 3),
        (job(annotations={"admission-gated-by": "plain"}), [f"{GATED} Invalid value"]),
        (job(annotations={"admission-gated-by": "e.com/a,e.com/a"}), [f"{GATED} Invalid value"]),
        (job(annotations={"admission-gated-by": "e.com/" + "x" * 63}), [f"{GATED} Too long"]),
        (job(annotations={"job-min-parallelism": "2"}), []),
        (job(annotations={"job-min-parallelism": "4"}), [MIN]),
        (job(annotations={"job-min-parallelism": "0"}), [MIN]),
        (job(annotations={"job-min-parallelism": "few"}), [MIN]),
        (
            job(annotations={"job-completions-equal-parallelism": "true"}, completionMode="Indexed", completions=4),
            [],
        ),
        (
            job(annotations={"job-completions-equal-parallelism": "true"}, completionMode="Indexed", completions=8),
            ["spec.completions Invalid value"],
        ),
        (
            job(annotations={"job-completions-equal-parallelism": "true"}, completions=4),
            ["metadata.annotations[job-completions-equal-parallelism] Invalid value"],
        ),
        (
            job(annotations={"job-completions-equal-parallelism": "maybe"}),
            ["metadata.annotations[job-completions-equal-parallelism] Invalid value"],
        ),
    ],
)
def test_creation(made: dict[str, Any], expected: list[str]) -> None:
    assert paths(created_errors(made)) == expected


@pytest.mark.parametrize(
    ("old", "new", "default", "expected"),
    [
        (job({"queue-name": "a"}), job({"queue-name": "b"}), False, []),
        (job({"queue-name": "a"}, suspend=False), job({"queue-name": "b"}, suspend=False), False, [QUEUE]),
        (job({"queue-name": "a"}), job(), True, [QUEUE]),
        (job({"queue-name": "a"}), job(), False, []),
        (job({"max-exec-time-seconds": "5"}), job({"max-exec-time-seconds": "6"}), False, []),
        (job({"max-exec-time-seconds": "5"}, suspend=False), job({"max-exec-time-seconds": "6"}), False, [MAX]),
        (job(), job({"priority-class": "p"}), False, []),
        (
            job(suspend=False),
            job({"priority-class": "p"}, suspend=False),
            False,
            ["metadata.labels[priority-class] Invalid value"],
        ),
        (job({"priority-class": "p"}), job(), False, ["metadata.labels[priority-class] Invalid value"]),
        (job({"priority-class": "p"}, suspend=False), job({"priority-class": "q"}, suspend=False), False, []),
        (job(), job(annotations={"admission-gated-by": "e.com/a"}), False, [f"{GATED} Forbidden"]),
        (
            job(annotations={"admission-gated-by": "e.com/a,e.com/b"}),
            job(annotations={"admission-gated-by": "e.com/b"}),
            False,
            [],
        ),
        (
            job(annotations={"prebuilt-workload-name": "a"}, suspend=False),
            job(annotations={"prebuilt-workload-name": "b"}, suspend=False),
            False,
            ["metadata.annotations[prebuilt-workload-name] Invalid value"],
        ),
        (
            job(annotations={"job-min-parallelism": "2"}, suspend=False),
            job(annotations={"job-min-parallelism": "2"}, suspend=False, parallelism=3),
            False,
            ["spec.parallelism Forbidden"],
        ),
        (
            job(annotations={"job-min-parallelism": "2"}),
            job(annotations={"job-min-parallelism": "2"}, suspend=False, parallelism=3),
            False,
            [],
        ),
        (
            job(annotations={"job-completions-equal-parallelism": "false"}, suspend=False),
            job(suspend=False),
            False,
            ["metadata.annotations[job-completions-equal-parallelism] Forbidden"],
        ),
        # What was stored before the rule existed does not block an unrelated change.
        (
            job(annotations={"job-min-parallelism": "9"}),
            job(annotations={"job-min-parallelism": "9"}, backoffLimit=1),
            False,
            [],
        ),
    ],
)
def test_update(old: dict[str, Any], new: dict[str, Any], default: bool, expected: list[str]) -> None:
    assert paths(updated_errors(new, old, default_queue=default)) == expected
