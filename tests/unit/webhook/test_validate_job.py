"""Refusals of Jobs: the numbered rules of the integration specification, on creation and on update."""

from __future__ import annotations

from typing import Any

import pytest

from services.webhook.validate_job import created_errors, updated_errors
from shared.config.feature_gates import DEFAULT_GATES, FeatureGates, resolve
from shared.jobs.batch_job import BatchJob
from shared.jobs.protocol import Circumstances

K = "kueue.x-k8s.io/"
JOB = BatchJob()


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


PREBUILT = "metadata.annotations[prebuilt-workload-name] Invalid value"
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
        (job(annotations={"admission-gated-by": "example.com/a,,"}), [f"{GATED} Invalid value"] * 2),
        (job(annotations={"admission-gated-by": ""}), [f"{GATED} Invalid value"]),
        (job(annotations={"admission-gated-by": "plain"}), [f"{GATED} Invalid value"]),
        (job(annotations={"admission-gated-by": "Not.A.Domain/a"}), [f"{GATED} Invalid value"]),
        (job(annotations={"admission-gated-by": "e.com/a b"}), [f"{GATED} Invalid value"]),
        (job(annotations={"admission-gated-by": "e.com/a~b/c:d"}), []),
        (job(annotations={"admission-gated-by": "e.com/a,e.com/a"}), [f"{GATED} Invalid value"]),
        (job(annotations={"admission-gated-by": "e.com/" + "x" * 63}), [f"{GATED} Too long"]),
        (job(annotations={"job-min-parallelism": "2"}), []),
        (job(annotations={"job-min-parallelism": "4"}), [MIN]),
        (job(annotations={"job-min-parallelism": "0"}), [MIN]),
        (job(annotations={"job-min-parallelism": "few"}), [MIN]),
        (job(annotations={"job-min-parallelism": "2", "elastic-job": "true"}), [MIN]),
        (job({"max-exec-time-seconds": "2147483648"}), [MAX]),
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
    assert paths(created_errors(JOB, made, Circumstances(gates=DEFAULT_GATES))) == expected


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
        (
            job(annotations={"prebuilt-workload-name": "a"}, suspend=False),
            job(annotations={"prebuilt-workload-name": "Not_A_Name"}),
            False,
            ["metadata.annotations[prebuilt-workload-name] Invalid value"],
        ),
        (
            job(annotations={"elastic-job": "true", "prebuilt-workload-name": "a"}, suspend=False),
            job(annotations={"elastic-job": "true", "prebuilt-workload-name": "b"}, suspend=False),
            False,
            [],
        ),
        (
            job(),
            job(annotations={"elastic-job": "true"}),
            False,
            ["metadata.annotations[elastic-job] Invalid value"],
        ),
        # The rules of a creation hold for a change too.
        (job(), job(annotations={"prebuilt-workload-name": "Not_A_Name"}), False, [PREBUILT]),
        (job(), job({"queue-name": "Not_A_Name"}), False, [QUEUE]),
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
    assert paths(updated_errors(JOB, new, old, Circumstances(gates=DEFAULT_GATES, default_queue=default))) == expected


TOPOLOGY = "spec.template.metadata.annotations"


def placed(**annotations: str) -> dict[str, Any]:
    keys = {K + "podset-" + key.replace("_", "-"): value for key, value in annotations.items()}
    return job(template={"metadata": {"annotations": keys}, "spec": {"containers": []}})


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (placed(required_topology="rack"), []),
        (placed(required_topology="rack", preferred_topology="block"), [f"{TOPOLOGY} Invalid value"]),
        (placed(preferred_topology="not a level"), [f"{TOPOLOGY}[podset-preferred-topology] Invalid value"]),
        (placed(unconstrained_topology="T"), []),
        (placed(unconstrained_topology="maybe"), [f"{TOPOLOGY}[podset-unconstrained-topology] Invalid value"]),
        (placed(slice_required_topology="rack", slice_size="2"), []),
        (placed(slice_required_topology="rack"), [f"{TOPOLOGY}[podset-slice-size] Required value"]),
        (placed(slice_size="2"), [f"{TOPOLOGY}[podset-slice-size] Forbidden"]),
        (
            placed(slice_required_topology="rack", slice_size="many"),
            [f"{TOPOLOGY}[podset-slice-size] Invalid value"],
        ),
        (placed(slice_required_topology="rack", slice_size="0"), [f"{TOPOLOGY}[podset-slice-size] Invalid value"]),
        (placed(slice_required_topology="rack", slice_size="5"), [f"{TOPOLOGY}[podset-slice-size] Invalid value"]),
        (placed(required_topology="rack", group_name="g"), []),
        (placed(required_topology="rack", group_name="12"), [f"{TOPOLOGY}[podset-group-name] Invalid value"]),
        (placed(group_name="g"), [f"{TOPOLOGY}[podset-group-name] Forbidden"]),
        (
            placed(required_topology="a", group_name="g", slice_required_topology="rack", slice_size="2"),
            [f"{TOPOLOGY}[podset-group-name] Forbidden"] * 2,
        ),
    ],
)
def test_topology_annotations(made: dict[str, Any], expected: list[str]) -> None:
    assert paths(created_errors(JOB, made, Circumstances(gates=DEFAULT_GATES))) == expected


LAYERS = f"{TOPOLOGY}[podset-slice-required-topology-constraints]"


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        ('[{"topology":"rack","size":4},{"topology":"host","size":2}]', []),
        ("nothing", [f"{LAYERS} Invalid value"]),
        ("[]", [f"{LAYERS} Invalid value"]),
        ('[{"topology":"rack","size":4},{"topology":"rack","size":2}]', [f"{LAYERS}[1].topology Invalid value"]),
        ('[{"topology":"rack","size":4},{"topology":"host","size":3}]', [f"{LAYERS}[1].size Invalid value"]),
        ('[{"topology":"rack","size":0}]', [f"{LAYERS}[0].size Invalid value"]),
        ('[{"topology":"rack","size":8}]', [f"{LAYERS}[0].size Invalid value"]),
        ('[{"topology":"no level","size":2}]', [f"{LAYERS}[0].topology Invalid value"]),
    ],
)
def test_slices_inside_slices(layers: str, expected: list[str]) -> None:
    assert (
        paths(
            created_errors(JOB, placed(slice_required_topology_constraints=layers), Circumstances(gates=DEFAULT_GATES))
        )
        == expected
    )


def test_gates_of_topologies() -> None:
    layered = placed(slice_required_topology_constraints='[{"topology":"rack","size":4}]')
    assert paths(created_errors(JOB, layered, Circumstances(gates=resolve({"TASMultiLayerTopology": False})))) == [
        f"{LAYERS} Forbidden"
    ]
    off = DEFAULT_GATES.states | {"TopologyAwareScheduling": False}
    assert paths(created_errors(JOB, placed(slice_size="2"), Circumstances(gates=FeatureGates(off)))) == []


def test_an_elastic_job_has_no_fixed_place() -> None:
    made = placed(required_topology="rack")
    made["metadata"]["annotations"] = {K + "elastic-job": "true"}
    assert paths(created_errors(JOB, made, Circumstances(gates=DEFAULT_GATES))) == [
        f"{TOPOLOGY}[podset-required-topology] Forbidden"
    ]
    rigid = resolve({"ElasticJobsViaWorkloadSlices": False})
    assert paths(created_errors(JOB, made, Circumstances(gates=rigid))) == []


def test_which_name_of_a_prebuilt_workload_counts() -> None:
    made = job({"prebuilt-workload-name": "Label_"}, {"prebuilt-workload-name": "Annotation_"})
    assert paths(created_errors(JOB, made, Circumstances(gates=DEFAULT_GATES))) == [PREBUILT]
    older = resolve({"WorkloadIdentifierAnnotations": False})
    assert paths(created_errors(JOB, made, Circumstances(gates=older))) == [
        "metadata.labels[prebuilt-workload-name] Invalid value"
    ]
    assert (
        paths(
            created_errors(JOB, job(annotations={"prebuilt-workload-name": "Annotation_"}), Circumstances(gates=older))
        )
        == []
    )
    too_long = job(annotations={"prebuilt-workload-name": "A_" * 40})
    assert paths(created_errors(JOB, too_long, Circumstances(gates=older))) == [PREBUILT]


def test_gates_on_admission_are_free_text_without_their_feature() -> None:
    off = resolve({"AdmissionGatedBy": False})
    made = job(annotations={"admission-gated-by": "plain"})
    assert paths(created_errors(JOB, made, Circumstances(gates=off))) == []
    assert paths(updated_errors(JOB, made, job(), Circumstances(gates=off, default_queue=False))) == []
