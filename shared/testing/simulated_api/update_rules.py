"""Which changes the API server refuses as invalid: what our definitions' rules and the validation of Jobs make immutable, and when.

Only rules that a write of ours or of a user could break; schemas and value ranges are not checked. The text of a fault ends in a 422.
"""

from __future__ import annotations

from collections.abc import Callable

from shared.api import names
from shared.jobs.manifest import JsonObject, items, section, text

Rule = Callable[[JsonObject | None, JsonObject], str]
"""(old or None on create, new) -> the fault, or an empty text."""

_JOB_IMMUTABLE = (
    "selector",
    "completionMode",
    "podFailurePolicy",
    "backoffLimitPerIndex",
    "managedBy",
    "successPolicy",
)
_SCHEDULING = ("nodeSelector", "tolerations", "schedulingGates", "affinity")


def immutable(field: str, old: JsonObject | None, new: JsonObject) -> str:
    """One field of the spec that never changes."""
    if old is None or section(old, "spec").get(field) == section(new, "spec").get(field):
        return ""
    return f"spec.{field}: Invalid value: field is immutable"


def job(old: JsonObject | None, new: JsonObject) -> str:
    """Scheduling directives of the pods may change while the Job is suspended and was not started; most else never."""
    if old is None:
        return ""
    before, after = section(old, "spec"), section(new, "spec")
    if before is after or before == after:
        return ""
    for field in _JOB_IMMUTABLE:
        if before.get(field) != after.get(field):
            return f"spec.{field}: Invalid value: field is immutable"
    if before.get("completions") != after.get("completions"):
        elastic = after.get("completionMode") == "Indexed" and after.get("completions") == after.get("parallelism")
        if not elastic:
            return "spec.completions: Invalid value: field is immutable"
    first, second = section(before, "template"), section(after, "template")
    if before.get("suspend") and not text(old, "status", "startTime"):
        first, second = _without_directives(first), _without_directives(second)
    return "" if first == second else "spec.template: Invalid value: field is immutable"


def workload(old: JsonObject | None, new: JsonObject) -> str:
    """The rules of shared.api.workload_rules, in Python."""
    spec, admission = section(new, "spec"), section(new, "status", "admission")
    reserved = _is_true(new, names.QUOTA_RESERVED)
    if reserved and admission and len(items(new, "spec", "podSets")) != len(items(admission, "podSetAssignments")):
        return "podSetAssignments must be as many as podSets"
    was = {} if old is None else section(old, "spec")
    if old is None or was is spec or not _is_true(old, names.QUOTA_RESERVED):
        return ""
    before, after = section(was, "priorityClassRef"), section(spec, "priorityClassRef")
    if bool(before) != bool(after):
        return "priorityClassRef cannot be set or removed while quota is reserved"
    if (before.get("group"), before.get("kind")) != (after.get("group"), after.get("kind")):
        return "priorityClassRef group and kind are immutable while quota is reserved"
    if before.get("kind") == names.PRIORITY_CLASS and before.get("name") != after.get("name"):
        return "the name of a PriorityClass is immutable while quota is reserved"
    if reserved and was.get("queueName") != spec.get("queueName"):
        return "queueName is immutable while quota is reserved"
    limit = "maximumExecutionTimeSeconds"
    both_admitted = _is_true(old, names.ADMITTED) and _is_true(new, names.ADMITTED)
    if both_admitted and (was.get(limit) or 0) != (spec.get(limit) or 0):
        return f"{limit} is immutable while the workload is admitted"
    return ""


def _without_directives(template: JsonObject) -> JsonObject:
    metadata = {
        key: value for key, value in section(template, "metadata").items() if key not in ("labels", "annotations")
    }
    spec = {key: value for key, value in section(template, "spec").items() if key not in _SCHEDULING}
    affinity = section(template, "spec", "affinity")
    kept = {key: value for key, value in affinity.items() if key != "nodeAffinity"}
    return {"metadata": metadata, "spec": {**spec, "affinity": kept}}


def _is_true(document: JsonObject, type_: str) -> bool:
    return any(
        condition.get("type") == type_ and condition.get("status") == "True"
        for condition in items(document, "status", "conditions")
    )
