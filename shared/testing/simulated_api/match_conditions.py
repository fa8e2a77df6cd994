"""The match conditions of the shipped webhooks, which the API server evaluates as CEL: the same questions in Python.

That both answer alike is what `tests/integration/test_admission.py` and `tests/unit/testing/test_match_conditions.py` ask of the same writes.
"""

from collections.abc import Callable, Mapping

from shared.jobs.manifest import JsonObject, items, section

MatchCondition = Callable[[str, JsonObject | None, JsonObject], bool]
"""(operation, object before, object after) -> whether the webhook is asked."""

_JUDGED = ("reclaimablePods", "admissionChecks", "clusterName")


def _something_to_default(_operation: str, _old: JsonObject | None, new: JsonObject) -> bool:
    return any("minCount" in pod_set for pod_set in items(new, "spec", "podSets"))


def _more_than_conditions(operation: str, old: JsonObject | None, new: JsonObject) -> bool:
    if operation == "CREATE" or old is None:
        return True
    if new.get("spec") != old.get("spec"):
        return True
    if section(new, "metadata").get("annotations") != section(old, "metadata").get("annotations"):
        return True
    status, before = section(new, "status"), section(old, "status")
    if "admission" in status and status["admission"] != before.get("admission"):
        return True
    if _reserved(status) and ("admission" not in status or not _reserved(before)):
        return True
    return any(status.get(field) != before.get(field) for field in _JUDGED)


def _reserved(status: JsonObject) -> bool:
    return any(c.get("type") == "QuotaReserved" and c.get("status") == "True" for c in items(status, "conditions"))


MATCH_CONDITIONS: Mapping[str, MatchCondition] = {
    "object.?spec.?podSets.orValue([]).exists(p, has(p.minCount))": _something_to_default,
    'request.operation == "CREATE" || object.?spec != oldObject.?spec'
    " || object.metadata.?annotations != oldObject.metadata.?annotations"
    " || (object.?status.?admission.hasValue() && object.?status.?admission != oldObject.?status.?admission)"
    ' || (object.?status.?conditions.orValue([]).exists(c, c.type == "QuotaReserved" && c.status == "True")'
    " && (!object.?status.?admission.hasValue()"
    ' || !oldObject.?status.?conditions.orValue([]).exists(c, c.type == "QuotaReserved" && c.status == "True")))'
    " || object.?status.?reclaimablePods != oldObject.?status.?reclaimablePods"
    " || object.?status.?admissionChecks != oldObject.?status.?admissionChecks"
    " || object.?status.?clusterName != oldObject.?status.?clusterName": _more_than_conditions,
}
"""By the expression, its white space made one: one that is changed is not answered as before."""


def condition_of(expression: str) -> MatchCondition:
    """What an expression asks. Raises ValueError for one that is not simulated."""
    found = MATCH_CONDITIONS.get(" ".join(expression.split()))
    if found is None:
        raise ValueError(f"this match condition is not simulated: {expression!r}")
    return found
