"""Conditions in the status of a job, as most kinds have them."""

from shared.jobs.manifest import JsonObject, items, text
from shared.jobs.protocol import Finished


def condition(job: JsonObject, type_: str) -> JsonObject | None:
    """The condition of that type, None if the status has none."""
    return next((found for found in items(job, "status", "conditions") if found.get("type") == type_), None)


def holds(job: JsonObject, type_: str) -> bool:
    """There is such a condition, and it is True."""
    found = condition(job, type_)
    return found is not None and found.get("status") == "True"


def told(job: JsonObject, type_: str) -> bool | None:
    """What the condition says, None if there is none."""
    found = condition(job, type_)
    return None if found is None else found.get("status") == "True"


def ended(job: JsonObject, *, success: str, failure: str) -> Finished | None:
    """How the job ended by two conditions; success counts when both are True."""
    for type_ in (success, failure):
        if holds(job, type_):
            return Finished(type_ == success, text(condition(job, type_) or {}, "message"))
    return None
