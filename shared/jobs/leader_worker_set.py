"""leaderworkerset.x-k8s.io/v1 LeaderWorkerSet: groups of a leader and its workers. A workload for each group, known by the group's index."""

from collections.abc import Iterator

from shared.api import names
from shared.api.field_errors import FieldError, immutable, invalid
from shared.api.meta import ObjectMeta
from shared.jobs.manifest import JsonObject, number, section, text
from shared.jobs.places import at
from shared.jobs.protocol import Circumstances, Gates, JobPodSet
from shared.jobs.queueing_parent import (
    GroupWorkload,
    group_name,
    is_outdated,
    is_over,
    marks,
    names_workload,
    pod_patch,
    ungated,
    with_metadata,
)
from shared.jobs.serving_rules import common_errors, shape_errors
from shared.jobs.stateful_set import replicas
from shared.jobs.topology_request import topology_request
from shared.jobs.topology_rules import TopologyAsked, pod_set_errors

NAME_LABEL = "leaderworkerset.sigs.k8s.io/name"
_PREFIX = "leaderworkerset.sigs.k8s.io"
_GROUP_INDEX = f"{_PREFIX}/group-index"
_WORKER_INDEX = f"{_PREFIX}/worker-index"
_LEADER_NAME = f"{_PREFIX}/leader-name"
_MAX_REPLICAS = 1_000_000
_LEADER = ("spec", "leaderWorkerTemplate", "leaderTemplate")
_WORKER = ("spec", "leaderWorkerTemplate", "workerTemplate")


class LeaderWorkerSet:
    """See shared.jobs.queueing_parent.GroupedParent."""

    group = "leaderworkerset.x-k8s.io"
    version = "v1"
    kind = "LeaderWorkerSet"
    plural = "leaderworkersets"
    framework = "leaderworkerset.x-k8s.io/leaderworkerset"
    grouped = True
    copies_labels = True
    released_stay = False
    sheds = True

    def foreign(self, parent: JsonObject) -> bool:
        return False

    def marked(self, parent: JsonObject, gates: Gates) -> JsonObject:
        labels = marks(parent, names.QUEUE_NAME_LABEL, names.PRIORITY_CLASS_LABEL)
        annotations = {names.POD_SUSPENDING_PARENT: self.framework, names.POD_GROUP_SERVING: "true"}
        if not _has_leader(parent):
            return with_metadata(parent, _WORKER, labels=labels, annotations=annotations)
        parent = with_metadata(parent, _LEADER, labels=labels, annotations=annotations)
        own = section(at(parent, _WORKER), "metadata", "annotations")
        if gates["TopologyAwareScheduling"] and names.PODSET_GROUP_NAME not in own:
            annotations[names.POD_INDEX_OFFSET] = "1"
        return with_metadata(parent, _WORKER, labels=labels, annotations=annotations)

    def workloads(self, parent: JsonObject) -> tuple[GroupWorkload, ...]:
        pod_sets = self._pod_sets(parent)
        return tuple(
            GroupWorkload(name=self._name(parent, str(i)), index=str(i), pod_sets=pod_sets)
            for i in range(_groups(parent))
        )

    def set_of(self, pod: ObjectMeta) -> str:
        return pod.labels.get(NAME_LABEL, "")

    def controls(self, parent: JsonObject, stateful_set: ObjectMeta) -> bool:
        return stateful_set.labels.get(NAME_LABEL, "") == text(parent, "metadata", "name")

    def kept(self, parent: JsonObject) -> tuple[str, ...]:
        return ()

    def pod_patch(self, parent: JsonObject, pod: JsonObject, gates: Gates, workload: str = "") -> JsonObject:
        index = text(pod, "metadata", "labels", _GROUP_INDEX)
        if is_over(pod) or not index:
            return {}
        queue = marks(parent, names.QUEUE_NAME_LABEL) if ungated(pod) else {}
        if names.MANAGED_LABEL in section(pod, "metadata", "labels"):
            return pod_patch(queue, {}, pod)
        labels, annotations = names_workload(self._name(parent, index), gates)
        annotations |= {names.POD_GROUP_TOTAL_COUNT: str(_size(parent)), names.ROLE_HASH: _role(parent, pod)}
        return pod_patch({names.MANAGED_LABEL: "true", **queue, **labels}, annotations, pod)

    def released(self, parent: JsonObject | None, stateful_set: JsonObject | None, pod: JsonObject) -> bool:
        return parent is None or stateful_set is None or is_outdated(stateful_set, pod)

    def resumed(self, parent: JsonObject, old: JsonObject) -> tuple[str, ...]:
        return ()

    def errors(self, parent: JsonObject, old: JsonObject | None, around: Circumstances) -> Iterator[FieldError]:
        yield from common_errors(parent, old, around)
        if not 0 <= replicas(parent) <= _MAX_REPLICAS:
            yield invalid("spec.replicas", replicas(parent), f"must be from 0 to {_MAX_REPLICAS}")
        asked = [
            TopologyAsked.of(at(parent, place), count, f"{'.'.join(place)}.metadata.annotations")
            for place, count in _roles(parent).values()
        ]
        yield from pod_set_errors(asked, around.gates, grouped=True)
        if old is not None and around.managed:
            yield from self._change_errors(parent, old, around)

    def _change_errors(self, parent: JsonObject, old: JsonObject, around: Circumstances) -> Iterator[FieldError]:
        if _has_leader(parent) != _has_leader(old):
            yield immutable(".".join(_LEADER), at(parent, _LEADER) or None)
        for place in (_LEADER, _WORKER):
            if place == _WORKER or (_has_leader(parent) and _has_leader(old)):
                specs = [section(at(one, place), "spec") for one in (parent, old)]
                yield from shape_errors(f"{'.'.join(place)}.spec", *specs)
        if around.gates["LWSImmutableGroupSize"] and _size(parent) != _size(old):
            yield immutable("spec.leaderWorkerTemplate.size", _size(parent))

    def _pod_sets(self, parent: JsonObject) -> tuple[JobPodSet, ...]:
        return tuple(
            JobPodSet(
                name=name,
                count=count,
                template=_without_its_own(at(parent, place)),
                topology_request=topology_request(
                    at(parent, place), index_label="" if name == "leader" else _WORKER_INDEX
                ),
            )
            for name, (place, count) in _roles(parent).items()
        )

    def _name(self, parent: JsonObject, index: str) -> str:
        return group_name(parent, kind=self.kind, group=self.group, index=index)


def _roles(parent: JsonObject) -> dict[str, tuple[tuple[str, ...], int]]:
    """Pod set -> where its template is, how many pods a group has of it."""
    if not _has_leader(parent):
        return {names.DEFAULT_PODSET: (_WORKER, _size(parent))}
    return {"leader": (_LEADER, 1), "worker": (_WORKER, _size(parent) - 1)}


def _role(parent: JsonObject, pod: JsonObject) -> str:
    if not _has_leader(parent):
        return names.DEFAULT_PODSET
    return "worker" if _LEADER_NAME in section(pod, "metadata", "annotations") else "leader"


def _groups(parent: JsonObject) -> int:
    """How many groups there are to be, those of a rollout that surges included."""
    wanted = replicas(parent)
    surge = section(parent, "spec", "rolloutStrategy", "rollingUpdateConfiguration").get("maxSurge")
    # A percentage counts as none.
    if not isinstance(surge, int) or surge <= 0 or number(parent, "status", "updatedReplicas", default=0) >= wanted:
        return wanted
    return max(wanted, number(parent, "status", "replicas", default=0))


def _has_leader(parent: JsonObject) -> bool:
    return isinstance(section(parent, *_LEADER[:-1]).get(_LEADER[-1]), dict)


def _size(parent: JsonObject) -> int:
    return number(parent, "spec", "leaderWorkerTemplate", "size", default=1)


def _without_its_own(template: JsonObject) -> JsonObject:
    """The template without the labels and annotations that the set's controller gives pods; only its name stays."""
    metadata: JsonObject = {}
    for key in ("labels", "annotations"):
        kept = {
            name: value
            for name, value in section(template, "metadata", key).items()
            if name == NAME_LABEL or not name.startswith(_PREFIX)
        }
        if kept:
            metadata[key] = kept
    spec: JsonObject = {"spec": section(template, "spec")}
    return {"metadata": metadata, **spec} if metadata else spec
