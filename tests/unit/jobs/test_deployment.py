from typing import Any

import pytest

from shared.config.feature_gates import DEFAULT_GATES, resolve
from shared.jobs.deployment import Deployment
from shared.jobs.manifest import JsonObject
from shared.jobs.protocol import Circumstances
from tests.unit.jobs.round_trip import template

KIND = Deployment()
K = "kueue.x-k8s.io/"
AROUND = Circumstances(gates=DEFAULT_GATES)


def deployment(labels: dict[str, str] | None = None, *, ready: int = 0, **annotations: str) -> JsonObject:
    return {
        "metadata": {
            "name": "d",
            "labels": {K + k: v for k, v in (labels or {}).items()},
            "annotations": {K + k.replace("_", "-"): v for k, v in annotations.items()},
        },
        "spec": {"replicas": 3, "template": template()},
        "status": {"readyReplicas": ready},
    }


def test_pods_of_a_managed_deployment_are_marked() -> None:
    marked: Any = KIND.marked(deployment({"queue-name": "q", "priority-class": "p"}), DEFAULT_GATES)
    assert marked["spec"]["template"]["metadata"] == {
        "labels": {K + "managed": "true", K + "queue-name": "q", K + "priority-class": "p"},
        "annotations": {K + "pod-suspending-parent": "deployment"},
    }
    assert KIND.marked(marked, DEFAULT_GATES) == marked


def test_what_it_does_not_have_is_not_marked() -> None:
    found = deployment({"queue-name": ""})
    found["spec"] = {"template": {"metadata": {"labels": {"app": "a"}}, "spec": {}}}
    marked: Any = KIND.marked(found, DEFAULT_GATES)
    assert marked["spec"]["template"]["metadata"]["labels"] == {"app": "a", K + "managed": "true"}


def test_each_pod_has_a_workload_of_its_own() -> None:
    """Acceptance scenario A26."""
    assert KIND.workloads(deployment({"queue-name": "q"})) == ()
    assert not KIND.grouped
    assert not KIND.foreign(deployment())


def errors(new: JsonObject, old: JsonObject | None = None, around: Circumstances = AROUND) -> list[str]:
    return [f"{e.path.replace(K, '')} {e.kind}" for e in KIND.errors(new, old, around)]


QUEUE = "metadata.labels[queue-name] Invalid value"
PRIORITY = "metadata.labels[priority-class] Invalid value"
GATED = "metadata.annotations[admission-gated-by]"


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (deployment(), []),
        (deployment({"queue-name": "q"}), []),
        (deployment({"queue-name": "Q_"}), [QUEUE]),
        (deployment({"queue-name": ""}), [QUEUE]),
        (deployment(elastic_job="true"), ["metadata.annotations[elastic-job] Forbidden"]),
        (deployment(elastic_job="false"), []),
        (deployment(admission_gated_by="plain"), [f"{GATED} Invalid value"]),
        # Neither a longest run time nor a prebuilt workload means anything to it.
        (deployment({"max-exec-time-seconds": "soon", "prebuilt-workload-name": "_"}), []),
    ],
)
def test_creation(made: JsonObject, expected: list[str]) -> None:
    assert errors(made) == expected


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (deployment(ready=1), deployment(), []),
        (deployment({"queue-name": "a"}), deployment({"queue-name": "b"}), []),
        (deployment(), deployment({"queue-name": "b"}), []),
        (deployment({"queue-name": "a"}, ready=1), deployment({"queue-name": "b"}), [QUEUE]),
        (deployment({"queue-name": "a"}), deployment(), [QUEUE]),
        (deployment({"queue-name": "a"}, ready=1), deployment({"queue-name": "a"}), []),
        (deployment(), deployment({"priority-class": "p"}), []),
        (deployment(ready=1), deployment({"priority-class": "p"}), [PRIORITY]),
        (deployment({"priority-class": "p"}), deployment(), [PRIORITY]),
        (deployment({"priority-class": "p"}, ready=1), deployment({"priority-class": "q"}), []),
        (deployment(), deployment(admission_gated_by="e.com/a"), [f"{GATED} Forbidden"]),
        (deployment(admission_gated_by="e.com/a,e.com/b"), deployment(admission_gated_by="e.com/a"), []),
    ],
)
def test_changes(old: JsonObject, new: JsonObject, expected: list[str]) -> None:
    assert errors(new, old) == expected


def test_gates_of_features() -> None:
    off = Circumstances(gates=resolve({"AdmissionGatedBy": False}))
    assert errors(deployment(admission_gated_by="plain"), around=off) == []
    assert errors(deployment(admission_gated_by="plain"), deployment(), off) == []
    rigid = resolve({"ElasticJobsViaWorkloadSlices": False})
    assert errors(deployment(elastic_job="true"), around=Circumstances(gates=rigid)) == []
