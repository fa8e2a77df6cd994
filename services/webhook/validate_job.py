"""Validation of the labels and annotations that a batch/v1 Job carries for us (integration specification 11 and 13.1). Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from services.webhook.field_errors import FieldError, forbidden, invalid, too_long
from services.webhook.validate_quota import immutable
from shared.api import names
from shared.api.validation import dns_subdomain_errors
from shared.jobs.batch_job import BatchJob
from shared.jobs.manifest import JsonObject, section, text, texts

_QUEUE = f"metadata.labels[{names.QUEUE_NAME_LABEL}]"
_MAX_EXEC = f"metadata.labels[{names.MAX_EXEC_TIME_LABEL}]"
_PRIORITY = f"metadata.labels[{names.PRIORITY_CLASS_LABEL}]"
_GATED_BY = f"metadata.annotations[{names.ADMISSION_GATED_BY}]"
_MIN = f"metadata.annotations[{names.JOB_MIN_PARALLELISM}]"
_EQUAL = f"metadata.annotations[{names.JOB_COMPLETIONS_EQUAL_PARALLELISM}]"
_DOMAIN_PATH = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_./]*[A-Za-z0-9])?", re.ASCII)
_TRUTHS = {"1", "t", "T", "TRUE", "true", "True"}
_FALSEHOODS = {"0", "f", "F", "FALSE", "false", "False"}

_kind = BatchJob()


def created_errors(job: JsonObject) -> Iterator[FieldError]:
    """Faults of a Job that is created."""
    labels, annotations = _labels(job), _annotations(job)
    if names.QUEUE_NAME_LABEL in labels:
        queue = labels[names.QUEUE_NAME_LABEL]
        yield from (invalid(_QUEUE, queue, detail) for detail in dns_subdomain_errors(queue))
    yield from _prebuilt_errors(labels, annotations)
    if names.MAX_EXEC_TIME_LABEL in labels and (seconds := labels[names.MAX_EXEC_TIME_LABEL]) is not None:
        if not re.fullmatch(r"[+-]?\d{1,18}", seconds):
            yield invalid(_MAX_EXEC, seconds, "must be an integer")
        elif int(seconds) <= 0:
            yield invalid(_MAX_EXEC, seconds, "should be greater than 0")
    yield from gate_errors(annotations)
    yield from _partial_errors(job)


def updated_errors(job: JsonObject, old: JsonObject, *, default_queue: bool) -> Iterator[FieldError]:
    """Faults of a change. `default_queue`: the namespace has a LocalQueue named `default`."""
    labels, before = _labels(job), _labels(old)
    suspended, was_suspended = _kind.suspended(job), _kind.suspended(old)
    queue, old_queue = labels.get(names.QUEUE_NAME_LABEL, ""), before.get(names.QUEUE_NAME_LABEL, "")
    if queue != old_queue and not suspended:
        yield immutable(_QUEUE, queue)
    if old_queue and not queue and default_queue:
        yield invalid(_QUEUE, queue, "may not be removed in a namespace with a default LocalQueue")
    if suspended:
        yield from _prebuilt_errors(labels, _annotations(job))
    elif _prebuilt(job) != _prebuilt(old):
        yield immutable(f"metadata.annotations[{names.PREBUILT_WORKLOAD}]", _prebuilt(job))
    if labels.get(names.MAX_EXEC_TIME_LABEL) != before.get(names.MAX_EXEC_TIME_LABEL) and not (
        suspended and was_suspended
    ):
        yield immutable(_MAX_EXEC, labels.get(names.MAX_EXEC_TIME_LABEL, ""))
    yield from _priority_errors(labels, before, suspended)
    yield from _gate_changes(_annotations(job), _annotations(old))
    yield from _partial_changes(job, old, suspended, was_suspended)
    yield from (e for e in created_errors(job) if e.path in (_QUEUE, _MAX_EXEC))


def _priority_errors(labels: dict[str, str], before: dict[str, str], suspended: bool) -> Iterator[FieldError]:
    new, old = labels.get(names.PRIORITY_CLASS_LABEL, ""), before.get(names.PRIORITY_CLASS_LABEL, "")
    if (old and not new) or (new and not old and not suspended):
        yield immutable(_PRIORITY, new)


def gate_errors(annotations: dict[str, str]) -> Iterator[FieldError]:
    """Faults in the form of `admission-gated-by`: a comma list of domain-prefixed paths, each once."""
    if names.ADMISSION_GATED_BY not in annotations:
        return
    value = annotations[names.ADMISSION_GATED_BY]
    if not value:
        return
    gates = [gate.strip() for gate in value.split(",")]
    for gate in gates:
        if not gate:
            yield invalid(_GATED_BY, value, "must not contain an empty name")
        elif len(gate) > 63:
            yield too_long(_GATED_BY, 63)
        elif not _DOMAIN_PATH.fullmatch(gate):
            yield invalid(_GATED_BY, gate, "must be a domain-prefixed path, such as example.com/name")
    if len(set(gates)) < len(gates):
        yield invalid(_GATED_BY, value, "must not contain a name twice")


def _gate_changes(annotations: dict[str, str], before: dict[str, str]) -> Iterator[FieldError]:
    new = {g.strip() for g in annotations.get(names.ADMISSION_GATED_BY, "").split(",") if g.strip()}
    old = {g.strip() for g in before.get(names.ADMISSION_GATED_BY, "").split(",") if g.strip()}
    if new - old:
        yield forbidden(_GATED_BY, "gates can only be set on creation, and removed afterwards")
    yield from gate_errors(annotations)


def _partial_errors(job: JsonObject) -> Iterator[FieldError]:
    annotations, pods = _annotations(job), sum(p.count for p in _kind.pod_sets(job))
    if names.JOB_MIN_PARALLELISM in annotations:
        value = annotations[names.JOB_MIN_PARALLELISM]
        if not re.fullmatch(r"[+-]?\d{1,9}", value):
            yield invalid(_MIN, value, "must be an integer")
        elif not 0 < int(value) < pods:
            yield invalid(_MIN, value, f"should be between 0 and {pods}")
    if names.JOB_COMPLETIONS_EQUAL_PARALLELISM in annotations:
        value = annotations[names.JOB_COMPLETIONS_EQUAL_PARALLELISM]
        if value in _TRUTHS:
            spec = section(job, "spec")
            if text(job, "spec", "completionMode") != "Indexed":
                yield invalid(_EQUAL, value, "should not be enabled for NonIndexed jobs")
            if spec.get("completions") != spec.get("parallelism", 1):
                yield invalid(
                    "spec.completions", spec.get("completions"), "should be equal to parallelism when " + _EQUAL
                )
        elif value not in _FALSEHOODS:
            yield invalid(_EQUAL, value, "must be true or false")


def _partial_changes(job: JsonObject, old: JsonObject, suspended: bool, was_suspended: bool) -> Iterator[FieldError]:
    annotations, before = _annotations(job), _annotations(old)
    changed = {k for k in (names.JOB_MIN_PARALLELISM,) if annotations.get(k) != before.get(k)}
    if changed:
        yield from (e for e in _partial_errors(job) if e.path == _MIN)
    new_spec, old_spec = section(job, "spec"), section(old, "spec")
    if (
        names.JOB_MIN_PARALLELISM in before
        and not was_suspended
        and new_spec.get("parallelism") != old_spec.get("parallelism")
    ):
        # Starting a partially admitted Job changes it together with spec.suspend, while it still was suspended.
        yield forbidden(
            "spec.parallelism", "cannot change when partial admission is enabled and the job is not suspended"
        )
    key = names.JOB_COMPLETIONS_EQUAL_PARALLELISM
    if not suspended and not was_suspended and annotations.get(key) != before.get(key):
        yield forbidden(_EQUAL, "cannot change while the job is not suspended")


def _prebuilt(job: JsonObject) -> str:
    return _annotations(job).get(names.PREBUILT_WORKLOAD, "") or _labels(job).get(names.PREBUILT_WORKLOAD, "")


def _prebuilt_errors(labels: dict[str, str], annotations: dict[str, str]) -> Iterator[FieldError]:
    for kind, values in (("annotations", annotations), ("labels", labels)):
        if values.get(names.PREBUILT_WORKLOAD):
            path, value = f"metadata.{kind}[{names.PREBUILT_WORKLOAD}]", values[names.PREBUILT_WORKLOAD]
            yield from (invalid(path, value, detail) for detail in dns_subdomain_errors(value))
            return


def _labels(job: JsonObject) -> dict[str, str]:
    return texts(job, "metadata", "labels")


def _annotations(job: JsonObject) -> dict[str, str]:
    return texts(job, "metadata", "annotations")
