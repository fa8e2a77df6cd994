"""Objects that a job refers to, carried along in its manifest, so that what is computed of a job stays a function of one value.

They stand under a key that no kind has; it is the same before and after a change, so that no patch holds it.
"""

from collections.abc import Mapping

from shared.jobs.manifest import JsonObject, section
from shared.jobs.protocol import Reference

_KEY = "referred"


def with_referred(job: JsonObject, found: Mapping[Reference, JsonObject | None]) -> JsonObject:
    """The job with the objects that were read for `JobKind.refers_to`; None: there is no such object."""
    return {**job, _KEY: {_name(reference): manifest for reference, manifest in found.items()}} if found else job


def referred(job: JsonObject, reference: Reference) -> JsonObject | None:
    """The object, None if it does not exist or was not read."""
    found = section(job, _KEY).get(_name(reference))
    return found if isinstance(found, dict) else None


def also_referred(job: JsonObject, older: JsonObject) -> JsonObject:
    """The job with what was read for an older state of it."""
    return {**job, _KEY: older[_KEY]} if _KEY in older else job


def _name(reference: Reference) -> str:
    return f"{reference.group}/{reference.kind}/{reference.name}"
