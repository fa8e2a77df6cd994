"""What the API server fills in when a field was left out: the defaults of our definitions' schemas, and those of a Job.

For a Job also what its controller needs: the selector and the labels of its pods, made from its uid. Quantities are kept as they were written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from shared.api.crd import Schema
from shared.jobs.manifest import JsonObject, items, section, text, texts

Fill = Callable[[JsonObject, JsonObject | None], JsonObject]
"""(document, the one before it or None) -> the document with its defaults; parts that both share are taken to have theirs."""
_FillPart = Callable[[object], object]

_CONTAINER: JsonObject = {
    "resources": {},
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
}
_POD: JsonObject = {
    "dnsPolicy": "ClusterFirst",
    "schedulerName": "default-scheduler",
    "securityContext": {},
    "terminationGracePeriodSeconds": 30,
}
_JOB: JsonObject = {
    "backoffLimit": 6,
    "completionMode": "NonIndexed",
    "manualSelector": False,
    "podReplacementPolicy": "TerminatingOrFailed",
    "suspend": False,
}


def filler(schema: Schema) -> Fill | None:
    """What fills in the defaults of an object's structural schema; None when it has none."""
    properties = schema.get("properties")
    parts = {
        name: fill
        for name, field in (properties if isinstance(properties, dict) else {}).items()
        if (fill := _of(field)) is not None
    }
    if not parts:
        return None

    def fill_document(document: JsonObject, old: JsonObject | None) -> JsonObject:
        for name, fill in parts.items():
            part = document.get(name)
            if part is not None and (old is None or old.get(name) is not part):
                filled = fill(part)
                if filled is not part:
                    document = {**document, name: filled}
        return document

    return fill_document


def _of(schema: Schema) -> _FillPart | None:
    return _of_object(schema) if schema.get("type") == "object" else _of_list(schema)


def _of_object(schema: Schema) -> _FillPart | None:
    properties = schema.get("properties")
    values: JsonObject = {}
    inner: dict[str, _FillPart] = {}
    for name, field in (properties if isinstance(properties, dict) else {}).items():
        if "default" in field:
            values[name] = field["default"]
        fill = _of(field)
        if fill is not None:
            inner[name] = fill
    if not values and not inner:
        return None

    def fill_object(found: object) -> object:
        if not isinstance(found, dict):
            return found
        changed: JsonObject = {name: value for name, value in values.items() if found.get(name) is None}
        for name, fill in inner.items():
            value = changed.get(name, found.get(name))
            if value is not None:
                filled = fill(value)
                if filled is not value:
                    changed[name] = filled
        return {**found, **changed} if changed else found

    return fill_object


def _of_list(schema: Schema) -> _FillPart | None:
    item = schema.get("items")
    fill = _of(item) if isinstance(item, dict) else None
    if fill is None:
        return None

    def fill_list(found: object) -> object:
        if not isinstance(found, list):
            return found
        filled = [fill(one) for one in found]
        return found if all(new is old for new, old in zip(filled, found, strict=True)) else filled

    return fill_list


def fill_job(job: JsonObject, old: JsonObject | None) -> JsonObject:
    """A Job with the defaults of batch/v1 and core/v1; the same object if there is nothing to add."""
    spec = section(job, "spec")
    if old is not None and old.get("spec") is spec:
        return job
    filled: JsonObject = _filled(spec, _JOB)
    if "parallelism" not in spec and "completions" not in spec:
        filled = {**filled, "parallelism": 1, "completions": 1}
    filled = _filled(filled, {"parallelism": 1})
    template = section(spec, "template")
    pod = section(template, "spec")
    filled_pod = _filled(pod, _POD)
    for part in ("containers", "initContainers"):
        present = items(pod, part)
        full = [_filled(container, {**_CONTAINER, "imagePullPolicy": _pull_policy(container)}) for container in present]
        if full != present:
            filled_pod = {**filled_pod, part: full}
    if filled_pod is not pod:
        filled = {**filled, "template": {**template, "spec": filled_pod}}
    return job if filled is spec else {**job, "spec": filled}


def own_pods(job: JsonObject) -> JsonObject:
    """A new Job with the selector and the pod labels that the API server makes of its uid."""
    metadata, spec = section(job, "metadata"), section(job, "spec")
    if spec.get("manualSelector"):
        return job
    uid, name = metadata["uid"], metadata["name"]
    template = section(spec, "template")
    labels = {
        **texts(template, "metadata", "labels"),
        "batch.kubernetes.io/controller-uid": uid,
        "batch.kubernetes.io/job-name": name,
        "controller-uid": uid,
        "job-name": name,
    }
    template = {**template, "metadata": {**section(template, "metadata"), "labels": labels}}
    selector = {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
    return {**job, "spec": {**spec, "template": template, "selector": selector}}


def _pull_policy(container: JsonObject) -> str:
    _, _, tag = text(container, "image").rpartition("/")[2].partition(":")
    return "Always" if tag in ("", "latest") else "IfNotPresent"


def _filled(found: JsonObject, defaults: Mapping[str, object]) -> JsonObject:
    missing = {name: value for name, value in defaults.items() if found.get(name) is None}
    return {**found, **missing} if missing else found
