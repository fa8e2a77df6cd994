"""Validation of the topology annotations of all pod sets of a job together (integration specification 11.3): T1 to T7 for each, T8 for groups of two."""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from shared.api import names
from shared.api.field_errors import FieldError, invalid
from shared.jobs.manifest import JsonObject, texts
from shared.jobs.protocol import Gates
from shared.jobs.validate_topology import topology_errors

_GROUP_SIZE = 2


class TopologyAsked(msgspec.Struct, frozen=True):
    """The annotations at a field path, and how many pods they are for."""

    path: str
    annotations: Mapping[str, str]
    pods: int

    @classmethod
    def of(cls, template: JsonObject, pods: int, path: str) -> "TopologyAsked":
        """Those of a pod template."""
        return cls(path, texts(template, "metadata", "annotations"), pods)


def pod_set_errors(asked: Sequence[TopologyAsked], gates: Gates, *, grouped: bool) -> Iterator[FieldError]:
    """Faults of the annotations of a job's pod sets. `grouped`: the kind knows groups of pod sets; of others, T5 says enough."""
    if not gates["TopologyAwareScheduling"]:
        return
    for one in asked:
        yield from topology_errors(one.path, one.annotations, one.pods, layers=gates["TASMultiLayerTopology"])
    if grouped:
        yield from _group_errors(asked)


def _group_errors(asked: Sequence[TopologyAsked]) -> Iterator[FieldError]:
    groups: dict[str, list[TopologyAsked]] = {}
    for one in asked:
        if name := one.annotations.get(names.PODSET_GROUP_NAME):
            groups.setdefault(name, []).append(one)
    for name, members in groups.items():
        for detail in _faults(members):
            yield from (invalid(f"{one.path}[{names.PODSET_GROUP_NAME}]", name, detail) for one in members)


def _faults(members: Sequence[TopologyAsked]) -> Iterator[str]:
    if len(members) != _GROUP_SIZE:
        yield f"must be shared by exactly {_GROUP_SIZE} pod sets, is by {len(members)}"
        return
    if all(one.pods != 1 for one in members):
        yield "one of its two pod sets must have exactly 1 pod"
    for key in (names.PODSET_REQUIRED_TOPOLOGY, names.PODSET_PREFERRED_TOPOLOGY):
        if len({one.annotations.get(key) for one in members}) > 1:
            yield f"both of its pod sets must have the same {key}"
