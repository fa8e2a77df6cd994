"""Elastic jobs (integration specification 10.7), as far as the job itself goes: which are, and the gate that holds their new pods."""

from shared.api import names
from shared.jobs.manifest import JsonObject, items, text
from shared.jobs.places import put
from shared.jobs.protocol import Gates


def says_elastic(job: JsonObject) -> bool:
    """Its annotation asks for it."""
    return text(job, "metadata", "annotations", names.ELASTIC_JOB) == "true"


def is_elastic(job: JsonObject, gates: Gates) -> bool:
    """It asks for it, and may."""
    return gates["ElasticJobsViaWorkloadSlices"] and says_elastic(job)


def is_gated(template: JsonObject) -> bool:
    """Pods of this template wait until there is quota for them."""
    return any(gate.get("name") == names.ELASTIC_JOB for gate in items(template, "spec", "schedulingGates"))


def gated(template: JsonObject) -> JsonObject:
    """The pod template with that gate."""
    if is_gated(template):
        return template
    present = items(template, "spec", "schedulingGates")
    return put(template, ("spec", "schedulingGates"), [*present, {"name": names.ELASTIC_JOB}])
