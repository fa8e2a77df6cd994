"""The part of a pod template that decisions look at, plus taints and tolerations.

A lean view: resources, placement, gates and labels. Everything else (images, volumes, environment) is ignored when
decoded, so encoding one of these does not give the template back. What must write a template keeps its bytes
(shared.api.raw_workload).
"""

from typing import Annotated

import msgspec

from shared.api.schema_hints import ApiStruct, RawQuantity, ResourceList, rules, schema
from shared.api.selectors import LabelSelector

_EFFECTS = "['NoSchedule', 'PreferNoSchedule', 'NoExecute']"


class Taint(ApiStruct, frozen=True, kw_only=True):
    """Keeps pods off a node unless they tolerate it."""

    key: Annotated[str, schema("Name of the taint, a label key.")]
    value: Annotated[str, schema("Value of the taint.")] = ""
    effect: Annotated[str, schema("NoSchedule, PreferNoSchedule or NoExecute.")]


TaintItem = Annotated[
    Taint,
    rules((f"self.effect in {_EFFECTS}", "effect must be NoSchedule, PreferNoSchedule or NoExecute", ".effect")),
]


class Toleration(ApiStruct, frozen=True, kw_only=True):
    """Lets a pod onto nodes with a matching taint."""

    key: Annotated[str, schema("The taint's key; empty matches all keys.")] = ""
    operator: Annotated[str, schema("Equal (also when unset) or Exists.")] = ""
    value: Annotated[str, schema("The taint's value, with Equal.")] = ""
    effect: Annotated[str, schema("The taint's effect; empty matches all effects.")] = ""
    toleration_seconds: Annotated[
        int | None, schema("How long a NoExecute taint is tolerated; unset means for ever.", format="int64")
    ] = None

    def tolerates(self, taint: Taint) -> bool:
        if self.effect and self.effect != taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        return self.operator == "Exists" or (self.operator in ("", "Equal") and self.value == taint.value)


TolerationItem = Annotated[
    Toleration,
    rules(
        (
            "(has(self.key) && self.key != '') || (has(self.operator) && self.operator == 'Exists')",
            "operator must be Exists when key is empty, which matches every taint",
            ".operator",
        ),
        (
            "!has(self.tolerationSeconds) || (has(self.effect) && self.effect == 'NoExecute')",
            "tolerationSeconds needs effect NoExecute",
            ".effect",
        ),
        (
            "!has(self.operator) || self.operator in ['', 'Equal', 'Exists']",
            "operator must be Equal or Exists, or be left out",
            ".operator",
        ),
        (
            "!has(self.operator) || self.operator != 'Exists' || !has(self.value) || self.value == ''",
            "value must be empty when operator is Exists",
            ".value",
        ),
        (
            f"!has(self.effect) || self.effect == '' || self.effect in {_EFFECTS}",
            "effect must be NoSchedule, PreferNoSchedule or NoExecute, or be left out",
            ".effect",
        ),
    ),
]


class ResourceClaim(ApiStruct, frozen=True, kw_only=True):
    """A container's use of one of the pod's resource claims."""

    name: str
    request: str = ""


class ResourceRequirements(ApiStruct, frozen=True, kw_only=True):
    requests: ResourceList = msgspec.field(default_factory=dict)
    limits: ResourceList = msgspec.field(default_factory=dict)
    claims: tuple[ResourceClaim, ...] = ()


class ContainerPort(ApiStruct, frozen=True, kw_only=True):
    container_port: int
    host_port: int = 0
    host_ip: str = msgspec.field(name="hostIP", default="")
    name: str = ""
    protocol: str = ""


class Container(ApiStruct, frozen=True, kw_only=True):
    name: str = ""
    resources: ResourceRequirements = ResourceRequirements()
    ports: tuple[ContainerPort, ...] = ()
    restart_policy: str = ""

    @property
    def is_sidecar(self) -> bool:
        """Meaningful for init containers: one that keeps running beside the main containers."""
        return self.restart_policy == "Always"


class NodeSelectorRequirement(ApiStruct, frozen=True, kw_only=True):
    """operator: In, NotIn, Exists, DoesNotExist, Gt or Lt."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class NodeSelectorTerm(ApiStruct, frozen=True, kw_only=True):
    match_expressions: tuple[NodeSelectorRequirement, ...] = ()
    match_fields: tuple[NodeSelectorRequirement, ...] = ()


class NodeSelector(ApiStruct, frozen=True, kw_only=True):
    """The terms are alternatives; inside a term everything has to hold."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class PreferredSchedulingTerm(ApiStruct, frozen=True, kw_only=True):
    weight: int
    preference: NodeSelectorTerm


class NodeAffinity(ApiStruct, frozen=True, kw_only=True):
    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    preferred_during_scheduling_ignored_during_execution: tuple[PreferredSchedulingTerm, ...] = ()


class PodAffinityTerm(ApiStruct, frozen=True, kw_only=True):
    topology_key: str
    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()
    mismatch_label_keys: tuple[str, ...] = ()


class WeightedPodAffinityTerm(ApiStruct, frozen=True, kw_only=True):
    weight: int
    pod_affinity_term: PodAffinityTerm


class PodAffinity(ApiStruct, frozen=True, kw_only=True):
    """Affinity or anti-affinity to other pods."""

    required_during_scheduling_ignored_during_execution: tuple[PodAffinityTerm, ...] = ()
    preferred_during_scheduling_ignored_during_execution: tuple[WeightedPodAffinityTerm, ...] = ()


class Affinity(ApiStruct, frozen=True, kw_only=True):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class SchedulingGate(ApiStruct, frozen=True, kw_only=True):
    name: str


class PodResourceClaim(ApiStruct, frozen=True, kw_only=True):
    """A claim of the pod (dynamic resource allocation): by name, or from a template."""

    name: str
    resource_claim_name: str = ""
    resource_claim_template_name: str = ""


class TopologySpreadConstraint(ApiStruct, frozen=True, kw_only=True):
    max_skew: int
    topology_key: str
    when_unsatisfiable: str
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str = ""
    node_taints_policy: str = ""
    match_label_keys: tuple[str, ...] = ()


class PodSpec(ApiStruct, frozen=True, kw_only=True):
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    resources: ResourceRequirements | None = None
    overhead: dict[str, RawQuantity] = msgspec.field(default_factory=dict)
    runtime_class_name: str = ""
    restart_policy: str = ""
    scheduler_name: str = ""
    node_selector: dict[str, str] = msgspec.field(default_factory=dict)
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] = ()
    priority_class_name: str = ""
    priority: int | None = None
    scheduling_gates: tuple[SchedulingGate, ...] = ()
    resource_claims: tuple[PodResourceClaim, ...] = ()


class TemplateMeta(ApiStruct, frozen=True, kw_only=True):
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    annotations: dict[str, str] = msgspec.field(default_factory=dict)


class PodTemplateSpec(ApiStruct, frozen=True, kw_only=True):
    metadata: TemplateMeta = TemplateMeta()
    spec: PodSpec = PodSpec()
