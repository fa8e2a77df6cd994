"""LocalQueue of v1beta1: `flavorUsage`, and a description of the flavors that nobody fills any more."""

from typing import Annotated

import msgspec

from shared.api import names
from shared.api.local_queue import LocalQueueSpec, LocalQueueStatusBase, UsageByFlavor
from shared.api.meta import ObjectMeta
from shared.api.pods import TaintItem
from shared.api.schema_hints import ApiStruct, FlavorName, ResourceName, always, atomic_list, list_map, schema, set_list


class TopologyInfo(ApiStruct, frozen=True, kw_only=True):
    """The topology of a flavor."""

    name: Annotated[str, schema("Name of the Topology.")]
    levels: Annotated[tuple[str, ...], atomic_list("Its levels.", minItems=1, maxItems=16)]


class LocalQueueFlavorStatus(ApiStruct, frozen=True, kw_only=True):
    """A flavor that workloads of this queue can be given."""

    name: Annotated[FlavorName, schema("Name of the ResourceFlavor.")]
    resources: Annotated[tuple[ResourceName, ...], set_list("Resources it has quota for.", maxItems=64)] = ()
    node_labels: Annotated[
        dict[str, str], schema("Labels of its nodes.", maxProperties=8, x_kubernetes_map_type="atomic")
    ] = msgspec.field(default_factory=dict)
    node_taints: Annotated[tuple[TaintItem, ...], atomic_list("Taints of its nodes.", maxItems=8)] = ()
    topology: TopologyInfo | None = None


class LocalQueueStatus(LocalQueueStatusBase, frozen=True, kw_only=True):
    """What the queue holds at present."""

    flavor_usage: UsageByFlavor = ()
    flavors: Annotated[tuple[LocalQueueFlavorStatus, ...], list_map("Not filled any more.", "name", maxItems=64)] = ()


class LocalQueue(ApiStruct, frozen=True, kw_only=True):
    """The queue that the jobs of one namespace name."""

    api_version: str = always(names.V1BETA1_GROUP_VERSION)
    kind: str = always(names.LOCAL_QUEUE)
    metadata: ObjectMeta = ObjectMeta()
    spec: LocalQueueSpec = LocalQueueSpec()
    status: LocalQueueStatus = LocalQueueStatus()
