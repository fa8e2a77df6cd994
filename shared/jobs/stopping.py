"""The annotation of a job that is held back already and still being stopped: as long as it is there, the job counts as running.

A stop that takes several writes leaves it at the first and takes it away at the last. So a gateway that dies in between finds the rest of them to do.
"""

from shared.api import names
from shared.jobs.manifest import JsonObject, section, text
from shared.jobs.places import put

_ANNOTATIONS = ("metadata", "annotations")


def is_stopping(job: JsonObject) -> bool:
    """The last write of a stop is still to come."""
    return text(job, *_ANNOTATIONS, names.STOPPING) == "true"


def first_write() -> JsonObject:
    """The patch that holds a job back (its field is `spec.suspend`) and says that it is being stopped."""
    return {"spec": {"suspend": True}, "metadata": {"annotations": {names.STOPPING: "true"}}}


def unmarked(job: JsonObject) -> JsonObject:
    """The job when it has been stopped."""
    if not is_stopping(job):
        return job
    left = {key: value for key, value in section(job, *_ANNOTATIONS).items() if key != names.STOPPING}
    return put(job, _ANNOTATIONS, left or None)
