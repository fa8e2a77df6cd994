"""Refused Jobs: the labels and annotations that are ours."""

from __future__ import annotations

from tests.integration.refused.objects import (
    FORBIDDEN,
    INVALID,
    REQUIRED,
    K,
    Refusal,
    batch_job,
    placed,
)

GATED = f"metadata.annotations[{K}admission-gated-by]"
PLACE = "spec.template.metadata.annotations"

JOBS = (
    Refusal(
        document=batch_job({"queue-name": "Not_A_Name"}), path=f"metadata.labels[{K}queue-name]", kind=INVALID, code=403
    ),
    Refusal(document=batch_job({"queue-name": ""}), path=f"metadata.labels[{K}queue-name]", kind=INVALID, code=403),
    Refusal(
        document=batch_job({"max-exec-time-seconds": "0"}),
        path=f"metadata.labels[{K}max-exec-time-seconds]",
        kind=INVALID,
        code=403,
        value='"0"',
    ),
    Refusal(
        document=batch_job({"max-exec-time-seconds": "soon"}),
        path=f"metadata.labels[{K}max-exec-time-seconds]",
        kind=INVALID,
        code=403,
    ),
    Refusal(
        document=batch_job({"prebuilt-workload-name": "Not_A_Name"}),
        path=f"metadata.labels[{K}prebuilt-workload-name]",
        kind=INVALID,
        code=403,
    ),
    Refusal(
        document=batch_job(annotations={"prebuilt-workload-name": "Not_A_Name"}),
        path=f"metadata.annotations[{K}prebuilt-workload-name]",
        kind=INVALID,
        code=403,
    ),
    Refusal(document=batch_job(annotations={"admission-gated-by": "a,,b"}), path=GATED, kind=INVALID, code=403),
    Refusal(
        document=batch_job(annotations={"job-min-parallelism": "4"}),
        path=f"metadata.annotations[{K}job-min-parallelism]",
        kind=INVALID,
        code=403,
        value='"4"',
    ),
    Refusal(
        document=batch_job(annotations={"job-completions-equal-parallelism": "maybe"}),
        path=f"metadata.annotations[{K}job-completions-equal-parallelism]",
        kind=INVALID,
        code=403,
    ),
    Refusal(
        document=batch_job(
            annotations={"job-completions-equal-parallelism": "true"}, completionMode="Indexed", completions=8
        ),
        path="spec.completions",
        kind=INVALID,
        code=403,
        value="8",
    ),
    Refusal(document=placed(required_topology="rack", preferred_topology="block"), path=PLACE, kind=INVALID, code=403),
    Refusal(
        document=placed(slice_required_topology="rack"),
        path=f"{PLACE}[{K}podset-slice-size]",
        kind=REQUIRED,
        code=403,
    ),
    Refusal(document=placed(group_name="g"), path=f"{PLACE}[{K}podset-group-name]", kind=FORBIDDEN, code=403),
    Refusal(
        document=batch_job({"queue-name": "a"}, suspend=False),
        change={"spec": {"suspend": False}, "metadata": {"labels": {K + "queue-name": "b"}}},
        path=f"metadata.labels[{K}queue-name]",
        kind=INVALID,
        code=403,
        before=({"spec": {"suspend": False}},),
    ),
    Refusal(
        document=batch_job({"queue-name": "a", "priority-class": "p"}),
        change={"metadata": {"labels": {K + "priority-class": None}}},
        path=f"metadata.labels[{K}priority-class]",
        kind=INVALID,
        code=403,
    ),
    Refusal(
        document=batch_job({"queue-name": "a"}),
        change={"metadata": {"annotations": {K + "elastic-job": "true"}}},
        path=f"metadata.annotations[{K}elastic-job]",
        kind=INVALID,
        code=403,
    ),
)
