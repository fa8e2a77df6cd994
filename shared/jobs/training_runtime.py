"""The JobSet that Kubeflow's Trainer makes of a TrainJob: the template of its runtime, patched, with the job's own numbers and resources.

Only what quota and comparison look at is computed: replicated jobs, their pods, resources and images; networking and files of the ML policies are not.
Source: the Trainer's documentation of runtimes and runtime patches.
"""

from shared.jobs.manifest import JsonObject, items, number, section, text
from shared.jobs.places import put
from shared.jobs.strategic_merge import strategic_merge

_STEP = "trainer.kubeflow.org/trainjob-ancestor-step"
_INITIALIZERS = {"dataset-initializer": "dataset", "model-initializer": "model"}
_NODE = "node"
_CONTAINERS = ("spec", "template", "spec", "containers")


def jobset_spec(job: JsonObject, runtime: JsonObject, *, without: str = "") -> JsonObject:
    """`spec` of the JobSet for a TrainJob and its (Cluster)TrainingRuntime. `without`: whose runtime patch is left out."""
    spec = section(runtime, "spec", "template", "spec")
    jobs = items(spec, "replicatedJobs")
    for entry in items(job, "spec", "runtimePatches"):
        if not without or entry.get("manager") != without:
            patches = items(entry, "trainingRuntimeSpec", "template", "spec", "replicatedJobs")
            jobs = [_patched(one, patches) for one in jobs]
    policy = section(runtime, "spec", "mlPolicy")
    return {**spec, "replicatedJobs": [_with_numbers(one, job, policy) for one in jobs]}


def _patched(replicated_job: JsonObject, patches: list[JsonObject]) -> JsonObject:
    for patch in patches:
        if patch.get("name") == replicated_job.get("name"):
            merged = strategic_merge(section(replicated_job, "template"), section(patch, "template"))
            replicated_job = {**replicated_job, "template": merged}
    return replicated_job


def _with_numbers(replicated_job: JsonObject, job: JsonObject, policy: JsonObject) -> JsonObject:
    step = text(replicated_job, "template", "metadata", "labels", _STEP)
    if step in _INITIALIZERS:
        env = items(job, "spec", "initializer", _INITIALIZERS[step], "env")
        return _with_container({**replicated_job, "replicas": 1}, step, {"env": env} if env else {})
    trains = step == "trainer"
    if trains:
        nodes = number(job, "spec", "trainer", "numNodes", default=number(policy, "numNodes", default=1))
        replicated_job = {**replicated_job, "replicas": 1}
        for key in ("parallelism", "completions"):
            replicated_job = put(replicated_job, ("template", "spec", key), nodes)
    launcher_works = section(policy, "mpi").get("runLauncherAsNode") is True
    if trains or (launcher_works and replicated_job.get("name") == _NODE):
        return _with_container(replicated_job, _NODE, _own(section(job, "spec", "trainer")))
    return replicated_job


def _own(trainer: JsonObject) -> JsonObject:
    """What a TrainJob says about the container that trains."""
    patch = {key: trainer[key] for key in ("image", "command", "args", "env") if trainer.get(key)}
    resources = section(trainer, "resourcesPerNode")
    return {**patch, "resources": resources} if resources else patch


def _with_container(replicated_job: JsonObject, name: str, patch: JsonObject) -> JsonObject:
    """With `patch` merged onto the container of that name, if there is one."""
    containers = items(section(replicated_job, "template"), *_CONTAINERS)
    if not patch or all(container.get("name") != name for container in containers):
        return replicated_job
    changed = [strategic_merge(one, patch) if one.get("name") == name else one for one in containers]
    return put(replicated_job, ("template", *_CONTAINERS), changed)
