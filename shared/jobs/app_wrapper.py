"""workload.codeflare.dev/v1beta2 AppWrapper: any objects, wrapped so that they start and stop together.

Which pods its components will have is declared in them, known to its controller (then the status says so), or told from what kind they are. What a start
injects is handed to the controller in `podSetInfos`, which merges it itself.
"""

import re
from collections.abc import Iterator

from shared.jobs import merge_patch
from shared.jobs.jobset import pods_of_each, replicas
from shared.jobs.manifest import JsonObject, items, number, section, text, texts
from shared.jobs.places import Place, at, nested, put
from shared.jobs.podset_info import PermanentError, PodSetInfo, info_fields
from shared.jobs.protocol import Finished, JobPodSet, KindDefaults, ManagedBy, StopStep
from shared.jobs.status_conditions import holds
from shared.jobs.topology_request import topology_request

_HINTS = "workload.codeflare.dev.appwrapper/tas-"
_COUNTED = (
    "nodeSelector",
    "affinity",
    "tolerations",
    "topologySpreadConstraints",
    "priorityClassName",
    "overhead",
    "resources",
    "resourceClaims",
    "runtimeClassName",
    "schedulingGates",
    "restartPolicy",
)
_COUNTED_OF_CONTAINERS = ("name", "image", "resources", "restartPolicy")
_STEP = re.compile(r"([^.\[\]]+)((?:\[[0-9]+\])*)")
_TEMPLATE = ("template", "spec", "template")
_SUSPEND = ("spec", "suspend")

PodSetPlace = tuple[Place, int, dict[str, str]]
"""Where in a component a pod template stands, how many pods it has, and hints about their topology."""


class AppWrapper(KindDefaults):
    """See shared.jobs.protocol.JobKind."""

    group = "workload.codeflare.dev"
    version = "v1beta2"
    kind = "AppWrapper"
    plural = "appwrappers"
    framework = "workload.codeflare.dev/appwrapper"
    managed_by = ManagedBy(("spec", "managedBy"), "workload.codeflare.dev/appwrapper-controller")
    rechecked = False

    def suspended(self, job: JsonObject) -> bool:
        return section(job, "spec").get("suspend") is True

    def suspend(self, job: JsonObject) -> JsonObject:
        return {} if self.suspended(job) else nested(_SUSPEND, True)

    def pod_sets(self, job: JsonObject) -> tuple[JobPodSet, ...]:
        name = text(job, "metadata", "name")
        places = [
            (component, place)
            for component, places in zip(_components(job), _places(job), strict=True)
            for place in places
        ]
        return tuple(_pod_set(f"{name}-{i}", component, place) for i, (component, place) in enumerate(places))

    def start(self, job: JsonObject, infos: tuple[PodSetInfo, ...]) -> JsonObject:
        counts = [len(places) for places in _places(job)]
        if sum(counts) != len(infos):
            raise PermanentError(
                f"invalid pod set infos: the AppWrapper has {sum(counts)} pod sets, the workload {len(infos)}"
            )
        rest = iter(infos)
        given = [[_as_json(next(rest)) for _ in range(count)] for count in counts]
        return merge_patch.diff(job, put(_with_infos(job, given), _SUSPEND, False))

    def stop(self, job: JsonObject, restore: tuple[JobPodSet, ...]) -> StopStep | None:
        if self.suspended(job):
            return None
        stopped = _with_infos(job, [[] for _ in _components(job)])
        return StopStep(patch=merge_patch.diff(job, put(stopped, _SUSPEND, True)), stopped_now=True)

    def finished(self, job: JsonObject) -> Finished | None:
        phase = text(job, "status", "phase")
        if phase == "Succeeded":
            return Finished(True, "AppWrapper finished successfully")
        # What it has deployed is still being taken away otherwise.
        if phase == "Failed" and not holds(job, "ResourcesDeployed"):
            return Finished(False, "AppWrapper failed")
        return None

    def active(self, job: JsonObject) -> bool:
        return holds(job, "QuotaReserved")

    def held(self, job: JsonObject) -> bool | None:
        phase = text(job, "status", "phase")
        return phase == "Suspended" if phase else None

    def pods_ready(self, job: JsonObject) -> bool:
        return holds(job, "PodsReady")


def _components(job: JsonObject) -> list[JsonObject]:
    return items(job, "spec", "components")


def _places(job: JsonObject) -> list[list[PodSetPlace]]:
    """By component. Raises PermanentError on a path that is none."""
    components = _components(job)
    computed = items(job, "status", "componentStatus")
    complete = bool(computed) and len(computed) == len(components)
    return [
        _declared(computed[i]) if complete else _declared(component) or list(_inferred(section(component, "template")))
        for i, component in enumerate(components)
    ]


def _declared(component: JsonObject) -> list[PodSetPlace]:
    return [
        (_parsed(text(one, "path")), number(one, "replicas", default=1), texts(one, "annotations"))
        for one in items(component, "podSets")
    ]


def _parsed(path: str) -> Place:
    """`template.spec.jobs[0].template` as a place in a component."""
    place: list[str | int] = []
    for part in path.split("."):
        match = _STEP.fullmatch(part)
        if match is None:
            raise PermanentError(f"{path!r} is no path of a pod template")
        place.append(match[1])
        place += [int(index) for index in re.findall(r"[0-9]+", match[2])]
    if place[0] != "template":
        raise PermanentError(f"the path {path!r} of a pod template does not begin with 'template'")
    return tuple(place)


def _inferred(wrapped: JsonObject) -> Iterator[PodSetPlace]:
    """From the kind of the object; of others nothing can be told."""
    match (text(wrapped, "apiVersion"), text(wrapped, "kind")):
        case ("v1", "Pod"):
            yield ("template",), 1, {}
        case ("apps/v1", "Deployment" | "StatefulSet"):
            yield _TEMPLATE, number(wrapped, "spec", "replicas", default=1), {}
        case ("batch/v1", "Job"):
            yield _TEMPLATE, pods_of_each({"template": wrapped}), {}
        case ("jobset.x-k8s.io/v1alpha2", "JobSet"):
            for i, one in enumerate(items(wrapped, "spec", "replicatedJobs")):
                yield ("template", "spec", "replicatedJobs", i, *_TEMPLATE), replicas(one) * pods_of_each(one), {}
        case ("kubeflow.org/v1", "PyTorchJob"):
            specs = section(wrapped, "spec", "pytorchReplicaSpecs")
            for type_ in ("Master", "Worker"):
                if isinstance(specs.get(type_), dict):
                    count = number(section(specs, type_), "replicas", default=1)
                    yield ("template", "spec", "pytorchReplicaSpecs", type_, "template"), count, {}
        case ("ray.io/v1", "RayCluster"):
            yield from _cluster(section(wrapped, "spec"), ("template", "spec"))
        case ("ray.io/v1", "RayJob"):
            yield from _cluster(section(wrapped, "spec", "rayClusterSpec"), ("template", "spec", "rayClusterSpec"))


def _cluster(spec: JsonObject, place: Place) -> Iterator[PodSetPlace]:
    yield (*place, "headGroupSpec", "template"), 1, {}
    for i, group in enumerate(items(spec, "workerGroupSpecs")):
        count = number(group, "replicas", default=1) * max(number(group, "numOfHosts", default=1), 1)
        yield (*place, "workerGroupSpecs", i, "template"), count, {}


def _pod_set(name: str, component: JsonObject, found: PodSetPlace) -> JobPodSet:
    place, count, hints = found
    template = _counted(at(component, place))
    try:
        subgroups = int(hints[f"{_HINTS}sub-group-count"])
    except (KeyError, ValueError):
        subgroups = None
    return JobPodSet(
        name=name.lower(),
        count=count,
        template=template,
        topology_request=topology_request(
            template,
            index_label=hints.get(f"{_HINTS}pod-index-label", ""),
            subgroup_label=hints.get(f"{_HINTS}sub-group-index-label", ""),
            subgroup_count=subgroups,
        ),
    )


def _counted(template: JsonObject) -> JsonObject:
    """The parts of a pod template, which no schema has looked at, that quota and placement depend on."""
    own = section(template, "spec")
    spec = {key: own[key] for key in _COUNTED if own.get(key) is not None}
    for key in ("initContainers", "containers"):
        if containers := items(own, key):
            spec[key] = [
                {part: one[part] for part in _COUNTED_OF_CONTAINERS if one.get(part) is not None} for one in containers
            ]
    kept = ("labels", "annotations")
    metadata = {key: found for key in kept if (found := section(template, "metadata", key))}
    return {"metadata": metadata, "spec": spec} if metadata else {"spec": spec}


def _as_json(info: PodSetInfo) -> JsonObject:
    metadata, spec = info_fields(info)
    return metadata | spec


def _with_infos(job: JsonObject, infos: list[list[JsonObject]]) -> JsonObject:
    components = [put(one, ("podSetInfos",), given or None) for one, given in zip(_components(job), infos, strict=True)]
    return put(job, ("spec", "components"), components)
