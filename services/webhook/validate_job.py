"""Validation of the labels and annotations that a job carries for us (integration specification 11), and of what only a batch/v1 Job has (13.1). Pure."""

from __future__ import annotations

from collections.abc import Iterator

from shared.api import names
from shared.api.field_errors import FieldError, forbidden, immutable, invalid
from shared.api.validation import dns_subdomain_errors, int32
from shared.jobs.batch_job import BatchJob
from shared.jobs.manifest import JsonObject, section, text, texts
from shared.jobs.podset_info import PermanentError
from shared.jobs.protocol import Circumstances, Gates, JobKind
from shared.jobs.topology_request import FALSE, TRUE
from shared.jobs.validate_annotations import gate_change_errors, gate_errors
from shared.jobs.validate_topology import topology_errors

_QUEUE = f"metadata.labels[{names.QUEUE_NAME_LABEL}]"
_MAX_EXEC = f"metadata.labels[{names.MAX_EXEC_TIME_LABEL}]"
_PRIORITY = f"metadata.labels[{names.PRIORITY_CLASS_LABEL}]"
_MIN = f"metadata.annotations[{names.JOB_MIN_PARALLELISM}]"
_EQUAL = f"metadata.annotations[{names.JOB_COMPLETIONS_EQUAL_PARALLELISM}]"
_ELASTIC = f"metadata.annotations[{names.ELASTIC_JOB}]"
_TEMPLATE = "spec.template.metadata.annotations"
_MAX_LABEL_LENGTH = 63

_kind = BatchJob()


def created_errors(kind: JobKind, job: JsonObject, around: Circumstances) -> Iterator[FieldError]:
    """Faults of a job that is created."""
    gates = around.gates
    if kind.unchecked(job):
        return
    yield from _common_errors(kind, job, gates)
    if isinstance(kind, BatchJob):
        yield from _min_parallelism_errors(job, gates)
        yield from _sync_errors(job)
        yield from _topology_errors(job, gates)
    yield from kind.errors(job, None, around)


def updated_errors(kind: JobKind, job: JsonObject, old: JsonObject, around: Circumstances) -> Iterator[FieldError]:
    """Faults of a change."""
    gates = around.gates
    if kind.unchecked(job):
        return
    if kind.checked_if_queued and not (around.manages(job) or around.manages(old)):
        return
    labels, before = _labels(job), _labels(old)
    suspended, was_suspended = kind.suspended(job), kind.suspended(old)
    if kind.rechecked:
        yield from _common_errors(kind, job, gates, prebuilt=suspended or _elastic(old, gates))
    queue, old_queue = labels.get(names.QUEUE_NAME_LABEL, ""), before.get(names.QUEUE_NAME_LABEL, "")
    if queue != old_queue and not suspended:
        yield immutable(_QUEUE, queue)
    if old_queue and not queue and around.default_queue:
        yield invalid(_QUEUE, queue, "may not be removed in a namespace with a default LocalQueue")
    source, name = _prebuilt(job, gates)
    if not suspended and not _elastic(old, gates) and name != _prebuilt(old, gates)[1]:
        yield immutable(f"metadata.{source}[{names.PREBUILT_WORKLOAD}]", name)
    if labels.get(names.MAX_EXEC_TIME_LABEL) != before.get(names.MAX_EXEC_TIME_LABEL) and not (
        suspended and was_suspended
    ):
        yield immutable(_MAX_EXEC, labels.get(names.MAX_EXEC_TIME_LABEL, ""))
    yield from _priority_errors(labels, before, suspended)
    if _elastic(job, gates) != _elastic(old, gates):
        yield immutable(_ELASTIC, _annotations(job).get(names.ELASTIC_JOB, ""))
    if gates["AdmissionGatedBy"]:
        yield from gate_change_errors(_annotations(job), _annotations(old))
    if isinstance(kind, BatchJob):
        yield from _partial_changes(job, old, gates, suspended, was_suspended)
        yield from _topology_errors(job, gates)
    yield from kind.errors(job, old, around)


def _common_errors(kind: JobKind, job: JsonObject, gates: Gates, *, prebuilt: bool = True) -> Iterator[FieldError]:
    """The rules C1 to C6; all of them hold for a change of a Job too."""
    labels = _labels(job)
    if names.QUEUE_NAME_LABEL in labels:
        queue = labels[names.QUEUE_NAME_LABEL]
        yield from (invalid(_QUEUE, queue, detail) for detail in dns_subdomain_errors(queue))
    source, name = _prebuilt(job, gates)
    if prebuilt and name:
        path = f"metadata.{source}[{names.PREBUILT_WORKLOAD}]"
        yield from (invalid(path, name, detail) for detail in dns_subdomain_errors(name))
        if not kind.prebuilt:
            yield forbidden(path, f"a {kind.kind} may not name its workload")
    if _elastic(job, gates) and not kind.may_be_elastic:
        yield forbidden(_ELASTIC, f"a {kind.kind} cannot be elastic")
    if names.MAX_EXEC_TIME_LABEL in labels:
        seconds = labels[names.MAX_EXEC_TIME_LABEL]
        if (number := int32(seconds)) is None:
            yield invalid(_MAX_EXEC, seconds, "must be an integer")
        elif number <= 0:
            yield invalid(_MAX_EXEC, seconds, "should be greater than 0")
    if gates["AdmissionGatedBy"]:
        yield from gate_errors(_annotations(job))


def _priority_errors(labels: dict[str, str], before: dict[str, str], suspended: bool) -> Iterator[FieldError]:
    new, old = labels.get(names.PRIORITY_CLASS_LABEL, ""), before.get(names.PRIORITY_CLASS_LABEL, "")
    if (old and not new) or (new and not old and not suspended):
        yield immutable(_PRIORITY, new)


def _min_parallelism_errors(job: JsonObject, gates: Gates) -> Iterator[FieldError]:
    annotations = _annotations(job)
    if names.JOB_MIN_PARALLELISM not in annotations:
        return
    value, pods = annotations[names.JOB_MIN_PARALLELISM], _pods(job)
    number = int32(value)
    if number is None:
        yield invalid(_MIN, value, "must be an integer")
    elif not 0 < number < pods:
        yield invalid(_MIN, value, f"should be between 0 and {pods}")
    if _elastic(job, gates):
        yield invalid(_MIN, value, "may not be set on an elastic job")


def _sync_errors(job: JsonObject) -> Iterator[FieldError]:
    value = _annotations(job).get(names.JOB_COMPLETIONS_EQUAL_PARALLELISM)
    if value is None or value in FALSE:
        return
    if value not in TRUE:
        yield invalid(_EQUAL, value, "must be true or false")
        return
    spec = section(job, "spec")
    if text(job, "spec", "completionMode") != "Indexed":
        yield invalid(_EQUAL, value, "should not be enabled for NonIndexed jobs")
    if spec.get("completions", 1) != spec.get("parallelism", 1):
        yield invalid("spec.completions", spec.get("completions"), f"should be equal to parallelism when {_EQUAL}")


def _partial_changes(
    job: JsonObject, old: JsonObject, gates: Gates, suspended: bool, was_suspended: bool
) -> Iterator[FieldError]:
    annotations, before = _annotations(job), _annotations(old)
    if annotations.get(names.JOB_MIN_PARALLELISM) != before.get(names.JOB_MIN_PARALLELISM):
        yield from _min_parallelism_errors(job, gates)
    parallelism, old_parallelism = (section(one, "spec").get("parallelism", 1) for one in (job, old))
    if names.JOB_MIN_PARALLELISM in before and not was_suspended and parallelism != old_parallelism:
        # Starting a partially admitted Job changes it together with spec.suspend, while it still was suspended.
        yield forbidden(
            "spec.parallelism", "cannot change when partial admission is enabled and the job is not suspended"
        )
    key = names.JOB_COMPLETIONS_EQUAL_PARALLELISM
    if annotations.get(key) != before.get(key):
        if not suspended and not was_suspended:
            yield forbidden(_EQUAL, "cannot change while the job is not suspended")
        yield from _sync_errors(job)


def _topology_errors(job: JsonObject, gates: Gates) -> Iterator[FieldError]:
    if not gates["TopologyAwareScheduling"]:
        return
    annotations = texts(job, "spec", "template", "metadata", "annotations")
    yield from topology_errors(_TEMPLATE, annotations, _pods(job), layers=gates["TASMultiLayerTopology"])
    for key in (names.PODSET_REQUIRED_TOPOLOGY, names.PODSET_PREFERRED_TOPOLOGY):
        if key in annotations and _elastic(job, gates):
            yield forbidden(f"{_TEMPLATE}[{key}]", "may not be set on an elastic job")


def _pods(job: JsonObject) -> int:
    try:
        return sum(pod_set.count for pod_set in _kind.pod_sets(job))
    except PermanentError:
        # Annotations of its template that cannot be read: they are an error of their own.
        return sum(pod_set.count for pod_set in _kind.pod_sets({"spec": {**section(job, "spec"), "template": {}}}))


def _elastic(job: JsonObject, gates: Gates) -> bool:
    return gates["ElasticJobsViaWorkloadSlices"] and _annotations(job).get(names.ELASTIC_JOB) == "true"


def _prebuilt(job: JsonObject, gates: Gates) -> tuple[str, str]:
    """(annotations or labels, the name of the prebuilt workload) by what counts (10.5); the name is empty when there is none."""
    annotation, label = (where.get(names.PREBUILT_WORKLOAD, "") for where in (_annotations(job), _labels(job)))
    annotation_first = gates["WorkloadIdentifierAnnotations"]
    if annotation and (annotation_first or (not label and len(annotation) > _MAX_LABEL_LENGTH)):
        return "annotations", annotation
    return ("labels", label) if label else ("annotations" if annotation_first else "labels", "")


def _labels(job: JsonObject) -> dict[str, str]:
    return texts(job, "metadata", "labels")


def _annotations(job: JsonObject) -> dict[str, str]:
    return texts(job, "metadata", "annotations")
