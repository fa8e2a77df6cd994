"""Refused LocalQueues, cohorts, flavors, checks, topologies and settings."""

from __future__ import annotations

from tests.integration.refused.objects import (
    DUPLICATE,
    INVALID,
    REQUIRED,
    TOO_LONG,
    TOO_MANY,
    UNSUPPORTED,
    Refusal,
    cohort,
    flavor,
    group,
    kind,
    priority_class,
    quota,
)

GROUP = "spec.resourceGroups[0]"
QUOTA = f"{GROUP}.flavors[0].resources[0]"

OTHER_KINDS = (
    Refusal(document=kind("LocalQueue", clusterQueue="A"), path="spec.clusterQueue", kind=INVALID, value='"A"'),
    Refusal(document=kind("LocalQueue", stopPolicy="Soon"), path="spec.stopPolicy", kind=UNSUPPORTED),
    Refusal(
        document=kind("LocalQueue", clusterQueue="a"),
        change={"spec": {"clusterQueue": "b"}},
        path="spec.clusterQueue",
        kind=INVALID,
        value='"b"',
    ),
    Refusal(document=cohort(parentName="-"), path="spec.parentName", kind=INVALID, value='"-"'),
    Refusal(document=cohort(group(("a", [quota()]), covered=("cpu", "memory"))), path=f"{GROUP}.flavors", kind=INVALID),
    Refusal(
        document=cohort(group(("a", [quota(borrowingLimit="1")]))),
        path=f"{QUOTA}.borrowingLimit",
        kind=INVALID,
        code=403,
    ),
    Refusal(
        document=cohort(group(("a", [quota()])), group(("b", [quota()]))),
        path="spec.resourceGroups[1].coveredResources[0]",
        kind=DUPLICATE,
        code=403,
    ),
    Refusal(document=cohort(fairSharing={"weight": "-2"}), path="spec.fairSharing", kind=INVALID, code=403),
    Refusal(document=flavor(nodeLabels={f"l{i}": "" for i in range(9)}), path="spec.nodeLabels", kind=TOO_MANY),
    Refusal(document=flavor(topologyName="t"), path="spec.nodeLabels", kind=INVALID),
    Refusal(
        document=flavor(nodeTaints=[{"key": "a", "effect": "Never"}]), path="spec.nodeTaints[0].effect", kind=INVALID
    ),
    Refusal(document=flavor(tolerations=[{"key": ""}]), path="spec.tolerations[0].operator", kind=INVALID),
    Refusal(
        document=flavor(tolerations=[{"key": "a", "operator": "Exists", "value": "b"}]),
        path="spec.tolerations[0].value",
        kind=INVALID,
    ),
    Refusal(
        document=flavor(tolerations=[{"key": "a", "operator": "Exists", "tolerationSeconds": 3}]),
        path="spec.tolerations[0].effect",
        kind=INVALID,
    ),
    Refusal(
        document=flavor(nodeLabels={"a": "b"}, topologyName="t"),
        change={"spec": {"topologyName": "u"}},
        path="spec.topologyName",
        kind=INVALID,
    ),
    Refusal(document=flavor(nodeLabels={"@": "b"}), path="spec.nodeLabels", kind=INVALID, code=403, value='"@"'),
    Refusal(
        document=flavor(nodeTaints=[{"key": "a b", "effect": "NoSchedule"}]),
        path="spec.nodeTaints[0].key",
        kind=INVALID,
        code=403,
    ),
    Refusal(
        document=flavor(
            nodeTaints=[{"key": "a", "effect": "NoSchedule"}, {"key": "a", "value": "v", "effect": "NoSchedule"}]
        ),
        path="spec.nodeTaints[1]",
        kind=DUPLICATE,
        code=403,
    ),
    Refusal(
        document=flavor(tolerations=[{"key": "@", "operator": "Exists"}]),
        path="spec.tolerations[0].key",
        kind=INVALID,
        code=403,
    ),
    Refusal(document=kind("AdmissionCheck"), path="spec.controllerName", kind=REQUIRED),
    Refusal(
        document=kind("AdmissionCheck", controllerName="c", parameters={"apiGroup": "g", "kind": "K/L", "name": "n"}),
        path="spec.parameters.kind",
        kind=INVALID,
        value='"K/L"',
    ),
    Refusal(
        document=kind("AdmissionCheck", controllerName="c"),
        change={"spec": {"controllerName": "d"}},
        path="spec.controllerName",
        kind=INVALID,
    ),
    Refusal(document=kind("Topology", levels=[]), path="spec.levels", kind=INVALID),
    Refusal(
        document=kind("Topology", levels=[{"nodeLabel": "a"}, {"nodeLabel": "a"}]), path="spec.levels", kind=INVALID
    ),
    Refusal(
        document=kind("Topology", levels=[{"nodeLabel": "kubernetes.io/hostname"}, {"nodeLabel": "a"}]),
        path="spec.levels",
        kind=INVALID,
    ),
    Refusal(
        document=kind("Topology", levels=[{"nodeLabel": "a"}]),
        change={"spec": {"levels": [{"nodeLabel": "b"}]}},
        path="spec.levels",
        kind=INVALID,
    ),
    Refusal(
        document=kind("ProvisioningRequestConfig", provisioningClassName="A"),
        path="spec.provisioningClassName",
        kind=INVALID,
    ),
    Refusal(
        document=kind("ProvisioningRequestConfig", provisioningClassName="a", parameters={"p": "v" * 256}),
        path="spec.parameters.p",
        kind=TOO_LONG,
    ),
    Refusal(
        document=kind("ProvisioningRequestConfig", provisioningClassName="a", podSetMergePolicy="All"),
        path="spec.podSetMergePolicy",
        kind=UNSUPPORTED,
    ),
    Refusal(document=priority_class(), path="value", kind=REQUIRED),
    Refusal(document=priority_class(value=1, description="d" * 2049), path="description", kind=TOO_LONG),
    Refusal(document=kind("MultiKueueConfig", clusters=[]), path="spec.clusters", kind=INVALID),
    Refusal(document=kind("MultiKueueConfig", clusters=["a", "a"]), path="spec.clusters", kind=INVALID),
    Refusal(document=kind("MultiKueueCluster", clusterSource={}), path="spec.clusterSource", kind=INVALID),
    Refusal(
        document=kind("MultiKueueCluster", clusterSource={"kubeConfig": {"location": "s", "locationType": "Disk"}}),
        path="spec.clusterSource.kubeConfig.locationType",
        kind=UNSUPPORTED,
    ),
)
