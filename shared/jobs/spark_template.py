"""A role of a SparkApplication as a pod template: the one that is counted, and the part of it in which starts and stops change something."""

import re

from shared.api.quantity import QuantityError, parse
from shared.jobs.manifest import JsonObject, items, section, text
from shared.jobs.places import Place, at, put
from shared.jobs.podset_info import PermanentError

CONTAINERS = {"driver": "spark-kubernetes-driver", "executor": "spark-kubernetes-executor"}
"""The roles, and what the container of their pods is called."""
_LOCAL = "spark-local-dir-"
_MEMORY = re.compile(r"(.*?)([kmgtp])b?", re.ASCII)
_AS_IT_IS = ("priorityClassName", "nodeSelector", "affinity", "tolerations", "initContainers")
_META = ("labels", "annotations")
_PLACED = ("nodeSelector", "tolerations")


def pod_template(job: JsonObject, role: str) -> JsonObject:
    """The pod that the operator will make for a role, as far as it is counted. Raises PermanentError on an amount of memory that is none."""
    own = section(job, "spec", role)
    mounts = [mount for mount in items(own, "volumeMounts") if not text(mount, "name").startswith(_LOCAL)]
    container: JsonObject = {"name": CONTAINERS[role], "resources": _resources(own)}
    if mounts:
        container["volumeMounts"] = mounts
    spec: JsonObject = {key: own[key] for key in _AS_IT_IS if key in own}
    spec["containers"] = [container, *items(own, "sidecars")]
    mounted = {mount.get("name") for mount in mounts}
    if volumes := [volume for volume in items(job, "spec", "volumes") if volume.get("name") in mounted]:
        spec["volumes"] = volumes
    if "schedulingGates" in (template := section(own, "template", "spec")):
        spec["schedulingGates"] = template["schedulingGates"]
    below = section(own, "template", "metadata")
    metadata = {key: {**section(below, key), **section(own, key)} for key in _META if key in below or key in own}
    return {"metadata": metadata, "spec": spec} if metadata else {"spec": spec}


def as_template(job: JsonObject, role: str) -> JsonObject:
    """Labels, annotations, node selector, tolerations and gates of a role, in the form of a pod template; a node selector for all roles comes first."""
    own = section(job, "spec", role)
    spec: JsonObject = {key: own[key] for key in _PLACED if key in own}
    if common := section(job, "spec", "nodeSelector"):
        spec["nodeSelector"] = common
    if "schedulingGates" in (template := section(own, "template", "spec")):
        spec["schedulingGates"] = template["schedulingGates"]
    return {"metadata": {key: own[key] for key in _META if key in own}, "spec": spec}


def with_template(job: JsonObject, role: str, template: JsonObject) -> JsonObject:
    """The application with these instead. Labels and annotations that the role's own pod template has anyway are not said twice."""
    metadata, spec = section(template, "metadata"), section(template, "spec")
    for key in _META:
        job = put(job, ("spec", role, key), _own_part(job, role, key, metadata.get(key)))
    for key in _PLACED:
        job = put(job, ("spec", role, key), spec.get(key))
    return _with_gates(job, ("spec", role, "template"), CONTAINERS[role], spec.get("schedulingGates"))


def _own_part(job: JsonObject, role: str, key: str, wanted: object) -> object:
    own = section(job, "spec", role)
    below = section(own, "template", "metadata", key)
    if not isinstance(wanted, dict) or not below:
        return wanted
    present = section(own, key)
    return {k: v for k, v in wanted.items() if k in present or below.get(k) != v} or None


def _with_gates(job: JsonObject, place: Place, container: str, gates: object) -> JsonObject:
    made: JsonObject = {"spec": {"containers": [{"name": container}]}}
    if gates is None:
        job = put(job, (*place, "spec", "schedulingGates"), None) if at(job, place) else job
        return put(job, place, None) if at(job, place) == made else job
    if not at(job, place):
        job = put(job, place, made)
    return put(job, (*place, "spec", "schedulingGates"), gates)


def _resources(own: JsonObject) -> JsonObject:
    requests: JsonObject = {}
    limits: JsonObject = {}
    for into, core, memory in ((requests, "coreRequest", "memory"), (limits, "coreLimit", "memoryLimit")):
        if amount := text(own, core):
            into["cpu"] = amount
        if amount := text(own, memory):
            into["memory"] = _bytes(amount)
    gpu = section(own, "gpu")
    quantity = gpu.get("quantity")
    if isinstance(quantity, int) and quantity > 0 and (name := text(gpu, "name")):
        limits[name] = str(quantity)
    return {key: part for key, part in (("requests", requests), ("limits", limits)) if part}


def _bytes(java: str) -> str:
    """Java's `512m` as a quantity; it counts in powers of 1024."""
    match = _MEMORY.fullmatch(java)
    amount = f"{match[1]}{match[2].upper()}i" if match else java
    try:
        parse(amount)
    except QuantityError as error:
        raise PermanentError(f"{java!r} is no amount of memory") from error
    if not match and java[-1:].lower() in "kmgtpb":
        # Upper-case letters mean other units to Kubernetes than to Java; whoever counted them would count wrong.
        raise PermanentError(f"{java!r} is no amount of memory: its unit must be in lower case")
    return amount
