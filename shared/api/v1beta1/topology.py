"""Topology of v1beta1: its levels never change."""

from typing import Annotated

from shared.api import names
from shared.api.meta import ObjectMeta
from shared.api.schema_hints import ApiStruct, always, rules
from shared.api.topology import HOSTNAME_LAST_RULE, LEVELS, UNIQUE_LEVELS_RULE, TopologyLevel


class TopologySpec(ApiStruct, frozen=True, kw_only=True):
    """How the nodes are grouped."""

    levels: Annotated[
        tuple[TopologyLevel, ...],
        LEVELS,
        rules(UNIQUE_LEVELS_RULE, HOSTNAME_LAST_RULE, ("self == oldSelf", "levels are immutable")),
    ]


class Topology(ApiStruct, frozen=True, kw_only=True):
    """A hierarchy of node groups."""

    api_version: str = always(names.V1BETA1_GROUP_VERSION)
    kind: str = always(names.TOPOLOGY)
    metadata: ObjectMeta = ObjectMeta()
    spec: TopologySpec
