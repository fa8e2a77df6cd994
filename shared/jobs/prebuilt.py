"""A job that names the Workload which somebody else has made for it (job specification 10.5)."""

from shared.api import names
from shared.jobs.manifest import JsonObject, text

_MAX_LABEL = 63


def prebuilt_name(job: JsonObject, *, annotation_first: bool = True) -> str:
    """The name; empty for a job that gets a Workload of its own. `annotation_first`: the feature gate WorkloadIdentifierAnnotations."""
    annotation = text(job, "metadata", "annotations", names.PREBUILT_WORKLOAD)
    label = text(job, "metadata", "labels", names.PREBUILT_WORKLOAD)
    if annotation_first:
        return annotation or label
    return label or (annotation if len(annotation) > _MAX_LABEL else "")
