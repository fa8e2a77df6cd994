"""Topology: the levels (block, rack, host ...) by which the nodes of a flavor are grouped."""

from typing import Annotated

from shared.api import names
from shared.api.meta import ObjectMeta
from shared.api.schema_hints import LABEL_KEY, ApiStruct, always, atomic_list, rules, schema

_HOSTNAME = f"'{names.HOSTNAME_LABEL}'"


class TopologyLevel(ApiStruct, frozen=True, kw_only=True):
    """One level of the hierarchy."""

    node_label: Annotated[
        str, schema("Label whose values name the domains of this level.", minLength=1, maxLength=316, pattern=LABEL_KEY)
    ]


UNIQUE_LEVELS_RULE = (
    "self.all(level, self.exists_one(other, other.nodeLabel == level.nodeLabel))",
    "levels must be unique",
)
HOSTNAME_LAST_RULE = (
    f"self.all(level, level.nodeLabel != {_HOSTNAME}) || "
    f"(self[size(self) - 1].nodeLabel == {_HOSTNAME} && "
    f"self.exists_one(level, level.nodeLabel == {_HOSTNAME}))",
    "kubernetes.io/hostname can only be the last level",
)
LEVELS = atomic_list("Levels from the widest to the narrowest.", minItems=1, maxItems=16)


class TopologySpec(ApiStruct, frozen=True, kw_only=True):
    """How the nodes are grouped."""

    levels: Annotated[
        tuple[TopologyLevel, ...],
        LEVELS,
        rules(
            UNIQUE_LEVELS_RULE,
            HOSTNAME_LAST_RULE,
            (
                "self == oldSelf || "
                f"(self[size(self) - 1].nodeLabel == {_HOSTNAME} && "
                f"oldSelf[size(oldSelf) - 1].nodeLabel == {_HOSTNAME})",
                "levels can only be changed if kubernetes.io/hostname is the last one before and after",
            ),
        ),
    ]


class Topology(ApiStruct, frozen=True, kw_only=True):
    """A hierarchy of node groups."""

    api_version: str = always(names.GROUP_VERSION)
    kind: str = always(names.TOPOLOGY)
    metadata: ObjectMeta = ObjectMeta()
    spec: TopologySpec
