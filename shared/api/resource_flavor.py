"""ResourceFlavor: a variety of nodes (labels, taints, topology) that quota is counted for."""

from typing import Annotated

import msgspec

from shared.api import names
from shared.api.meta import ObjectMeta
from shared.api.pods import TaintItem, TolerationItem
from shared.api.schema_hints import ApiStruct, Name253, always, atomic_list, rules, schema


class ResourceFlavorSpec(ApiStruct, frozen=True, kw_only=True):
    """Which nodes it means and how pods get onto them."""

    node_labels: Annotated[
        dict[str, str],
        schema(
            "Labels of the nodes; become node selectors of the pods.", maxProperties=8, x_kubernetes_map_type="atomic"
        ),
    ] = msgspec.field(default_factory=dict)
    node_taints: Annotated[
        tuple[TaintItem, ...], atomic_list("Taints of the nodes that workloads must tolerate themselves.", maxItems=8)
    ] = ()
    tolerations: Annotated[tuple[TolerationItem, ...], atomic_list("Tolerations added to the pods.", maxItems=8)] = ()
    topology_name: Annotated[Name253, schema("Topology of the nodes, for topology-aware scheduling.")] = ""


ResourceFlavorSpecField = Annotated[
    ResourceFlavorSpec,
    rules(
        (
            "!has(self.topologyName) || (has(self.nodeLabels) && size(self.nodeLabels) > 0)",
            "at least one nodeLabel is required when topologyName is set",
            ".nodeLabels",
        ),
        (
            "!has(oldSelf.topologyName) || (has(self.topologyName) && self.topologyName == oldSelf.topologyName)",
            "topologyName cannot be changed or removed once it is set",
            ".topologyName",
        ),
    ),
]


class ResourceFlavor(ApiStruct, frozen=True, kw_only=True):
    """A variety of nodes that quota is counted for."""

    api_version: str = always(names.GROUP_VERSION)
    kind: str = always(names.RESOURCE_FLAVOR)
    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceFlavorSpecField = ResourceFlavorSpec()
