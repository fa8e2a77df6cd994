"""The reviews that the shape `webhook` sends: what an API server asks while Jobs come in, Workloads change and clients of v1beta1 read. Sends nothing itself.

Each has the answer that is right, so that a fast webhook cannot be a wrong one.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

Json = dict[str, Any]
NAMESPACE, QUEUE = "reviews", "queue"
LISTED = 100
"""Objects in a list of v1beta1 that a client reads."""
GROUP = "kueue.x-k8s.io"
TIME = "2026-01-02T03:04:05Z"
JOB_MUTATION, JOB_VALIDATION = "/mutate-batch-v1-job", "/validate-batch-v1-job"
WORKLOAD_MUTATION = "/mutate-kueue-x-k8s-io-v1beta2-workload"
WORKLOAD_VALIDATION = "/validate-kueue-x-k8s-io-v1beta2-workload"
QUEUE_VALIDATION = "/validate-kueue-x-k8s-io-v1beta2-clusterqueue"
CONVERSION = "/convert"


class Review(msgspec.Struct, frozen=True):
    """`what` groups durations: mutate, validate, convert, convert_list. `allowed`: the right answer."""

    what: str
    path: str
    body: bytes
    allowed: bool = True

    def is_answered(self, answer: bytes) -> bool:
        """Whether the answer is the right one."""
        response = msgspec.json.decode(answer)["response"]
        if self.path == CONVERSION:
            return bool(response["result"]["status"] == "Success") is self.allowed
        return bool(response["allowed"]) is self.allowed


def reviews() -> Iterator[Review]:
    """Without end, by turns. Of 20 are 8 of new Jobs (one without a queue, one refused), 2 of changed Jobs, 5 of Workloads, 1 of a
    ClusterQueue, 4 conversions; once in 200 a conversion is of a whole list."""
    makers: list[Callable[[int], Review]] = [
        *(_job_defaulted, _job_checked) * 3,
        _job_without_queue,
        _job_refused,
        *(_job_changed,) * 2,
        *(_workload_defaulted, _workload_checked),
        *(_workload_status,) * 3,
        _queue_checked,
        *(_to_v1beta1, _to_v1beta2) * 2,
    ]
    for number in itertools.count():
        yield _list_to_v1beta1(number) if number % 200 == 199 else makers[number % len(makers)](number)


def _admission(path: str, number: int, document: Json, old: Json | None = None, *, allowed: bool = True) -> Review:
    group, _, version = document["apiVersion"].rpartition("/")
    request = {
        "uid": f"review-{number}",
        "kind": {"group": group, "version": version, "kind": document["kind"]},
        "name": document["metadata"]["name"],
        "namespace": document["metadata"].get("namespace", ""),
        "operation": "CREATE" if old is None else "UPDATE",
        "userInfo": {"username": "somebody", "groups": ["system:authenticated"]},
        "object": document,
        "oldObject": old,
    }
    body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    what = "mutate" if path.startswith("/mutate") else "validate"
    return Review(what, path, msgspec.json.encode(body), allowed)


def _conversion(number: int, wanted: str, documents: list[Json], what: str = "convert") -> Review:
    request = {"uid": f"review-{number}", "desiredAPIVersion": f"{GROUP}/{wanted}", "objects": documents}
    body = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "request": request}
    return Review(what, CONVERSION, msgspec.json.encode(body))


def _template() -> Json:
    container = {
        "name": "main",
        "image": "example.com/trainer:1",
        "args": ["--epochs", "10"],
        "env": [{"name": f"SETTING_{n}", "value": "x" * 20} for n in range(20)],
        "resources": {"requests": {"cpu": "1", "memory": "2Gi"}, "limits": {"cpu": "1", "memory": "2Gi"}},
    }
    return {"metadata": {"labels": {"app": "trainer"}}, "spec": {"restartPolicy": "Never", "containers": [container]}}


def job(number: int, *, queue: str = QUEUE, suspend: bool = False) -> Json:
    """A batch/v1 Job of three pods; `queue` empty: none."""
    labels = {f"{GROUP}/queue-name": queue} if queue else {}
    metadata = {"name": f"job-{number}", "namespace": NAMESPACE, "uid": f"uid-{number}", "labels": labels}
    spec = {"parallelism": 3, "completions": 3, "suspend": suspend, "template": _template()}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


def workload(number: int, *, reserved: bool = False) -> Json:
    """A v1beta2 Workload of two pod sets, of a Job."""
    owner = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": f"job-{number}",
        "uid": f"uid-{number}",
        "controller": True,
    }
    metadata = {
        "name": f"job-{number}",
        "namespace": NAMESPACE,
        "uid": f"workload-{number}",
        "generation": 1,
        "ownerReferences": [owner],
        "finalizers": [f"{GROUP}/resource-in-use"],
    }
    pod_sets = [{"name": name, "count": 3, "template": _template()} for name in ("driver", "worker")]
    found: Json = {
        "apiVersion": f"{GROUP}/v1beta2",
        "kind": "Workload",
        "metadata": metadata,
        "spec": {"queueName": QUEUE, "active": True, "podSets": pod_sets},
    }
    if reserved:
        assignments = [
            {"name": p["name"], "count": 3, "flavors": {"cpu": "default"}, "resourceUsage": {"cpu": "3"}}
            for p in pod_sets
        ]
        conditions = [
            {"type": t, "status": "True", "reason": t, "message": "", "lastTransitionTime": TIME}
            for t in ("QuotaReserved", "Admitted")
        ]
        found["status"] = {
            "admission": {"clusterQueue": "queue", "podSetAssignments": assignments},
            "conditions": conditions,
        }
    return found


def cluster_queue(*, version: str = "v1beta2") -> Json:
    """One group of two resources in four flavors, in a cohort."""
    quotas = [{"name": name, "nominalQuota": "100"} for name in ("cpu", "memory")]
    group = {
        "coveredResources": ["cpu", "memory"],
        "flavors": [{"name": name, "resources": quotas} for name in ("default", "spot", "large", "old")],
    }
    spec = {
        "cohort" if version == "v1beta1" else "cohortName": "all",
        "namespaceSelector": {},
        "resourceGroups": [group],
    }
    return {"apiVersion": f"{GROUP}/{version}", "kind": "ClusterQueue", "metadata": {"name": "queue"}, "spec": spec}


def _job_defaulted(number: int) -> Review:
    return _admission(JOB_MUTATION, number, job(number))


def _job_checked(number: int) -> Review:
    return _admission(JOB_VALIDATION, number, job(number, suspend=True))


def _job_without_queue(number: int) -> Review:
    return _admission(JOB_MUTATION, number, job(number, queue=""))


def _job_refused(number: int) -> Review:
    return _admission(JOB_VALIDATION, number, job(number, queue="No_Name"), allowed=False)


def _job_changed(number: int) -> Review:
    return _admission(JOB_VALIDATION, number, job(number), job(number, suspend=True))


def _workload_defaulted(number: int) -> Review:
    return _admission(WORKLOAD_MUTATION, number, workload(number))


def _workload_checked(number: int) -> Review:
    return _admission(WORKLOAD_VALIDATION, number, workload(number))


def _workload_status(number: int) -> Review:
    return _admission(WORKLOAD_VALIDATION, number, workload(number, reserved=True), workload(number))


def _queue_checked(number: int) -> Review:
    return _admission(QUEUE_VALIDATION, number, cluster_queue())


def _to_v1beta1(number: int) -> Review:
    return _conversion(number, "v1beta1", [workload(number, reserved=True)])


def _to_v1beta2(number: int) -> Review:
    return _conversion(number, "v1beta2", [cluster_queue(version="v1beta1")])


def _list_to_v1beta1(number: int) -> Review:
    documents = [workload(number + place, reserved=True) for place in range(LISTED)]
    return _conversion(number, "v1beta1", documents, "convert_list")
