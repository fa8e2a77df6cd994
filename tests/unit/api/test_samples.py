"""Manifests as users have them decode, lose nothing they say, and survive being written again.

The collection of published samples is used where it lies beside the repository; a few of our own always are.
"""

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import msgspec
import pytest
import yaml

from shared.api import names
from shared.api.crd_kinds import KINDS
from shared.api.decoding import convert, decode, encode
from shared.api.meta import parse_time

SAMPLES = Path(__file__).parents[3].parent / "shared" / "samples"
STRUCTS = {crd.kind: crd.versions[-1].struct for crd in KINDS}

OWN = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: team}
spec:
  cohortName: all
  queueingStrategy: StrictFIFO
  namespaceSelector: {matchExpressions: [{key: kubernetes.io/metadata.name, operator: In, values: [a, b]}]}
  flavorFungibility: {whenCanBorrow: TryNextFlavor, whenCanPreempt: TryNextFlavor, preference: PreemptionOverBorrowing}
  preemption: {reclaimWithinCohort: Any, borrowWithinCohort: {policy: LowerPriority, maxPriorityThreshold: 100}}
  resourceGroups:
  - coveredResources: [cpu, memory]
    flavors:
    - name: spot
      resources: [{name: cpu, nominalQuota: 9, borrowingLimit: 1500m}, {name: memory, nominalQuota: 36Gi, lendingLimit: 0}]
  admissionChecksStrategy: {admissionChecks: [{name: prov, onFlavors: [spot]}]}
  stopPolicy: Hold
  fairSharing: {weight: "0.5"}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: lq, namespace: a}
spec: {clusterQueue: team, fairSharing: {weight: 2}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: Cohort
metadata: {name: all}
spec:
  parentName: root
  resourceGroups: [{coveredResources: [cpu], flavors: [{name: spot, resources: [{name: cpu, nominalQuota: 1}]}]}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: MultiKueueCluster
metadata: {name: far}
spec: {clusterSource: {kubeConfig: {location: far-secret, locationType: Path}}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: MultiKueueConfig
metadata: {name: anywhere}
spec: {clusters: [far, near], quotaManagement: Automated}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: spot}
spec:
  nodeLabels: {type: spot}
  nodeTaints: [{key: spot, value: "true", effect: NoSchedule}]
  tolerations: [{key: spot, operator: Exists, effect: NoExecute, tolerationSeconds: 5}]
  topologyName: racks
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: Topology
metadata: {name: racks}
spec: {levels: [{nodeLabel: example.com/rack}, {nodeLabel: kubernetes.io/hostname}]}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: AdmissionCheck
metadata: {name: prov}
spec:
  controllerName: kueue.x-k8s.io/provisioning-request
  parameters: {apiGroup: kueue.x-k8s.io, kind: ProvisioningRequestConfig, name: prov}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ProvisioningRequestConfig
metadata: {name: prov}
spec:
  provisioningClassName: check-capacity.autoscaling.x-k8s.io
  parameters: {key: value}
  managedResources: [nvidia.com/gpu]
  retryStrategy: {backoffLimitCount: 0, backoffBaseSeconds: 1, backoffMaxSeconds: 2}
  podSetUpdates: {nodeSelector: [{key: pool, valueFromProvisioningClassDetail: Pool}]}
  podSetMergePolicy: IdenticalPodTemplates
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: WorkloadPriorityClass
metadata: {name: high}
value: 0
description: the usual
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: Workload
metadata: {name: job-x, namespace: a}
spec:
  queueName: lq
  priority: 3
  priorityClassRef: {group: kueue.x-k8s.io, kind: WorkloadPriorityClass, name: high}
  podSets:
  - name: main
    count: 3
    minCount: 1
    template: {spec: {containers: [{name: c, resources: {requests: {cpu: "1"}}}], restartPolicy: Never}}
    topologyRequest: {podsetSliceRequiredTopologyConstraints: [{topology: rack, size: 2}], unconstrained: false}
status:
  conditions:
  - {type: QuotaReserved, status: "True", reason: QuotaReserved, message: "", lastTransitionTime: "2026-01-02T03:04:05Z"}
  admission:
    clusterQueue: team
    podSetAssignments:
    - name: main
      flavors: {cpu: spot}
      resourceUsage: {cpu: "3"}
      count: 3
      topologyAssignment:
        levels: [kubernetes.io/hostname]
        slices:
        - domainCount: 2
          valuesPerLevel: [{individual: {prefix: node-, roots: ["1", "2"]}}]
          podCounts: {individual: [1, 2]}
  admissionChecks:
  - name: prov
    state: Ready
    message: ""
    lastTransitionTime: "2026-01-02T03:04:05Z"
    podSetUpdates: [{name: main, nodeSelector: {pool: p}, tolerations: [{operator: Exists}]}]
  requeueState: {count: 1, requeueAt: "2026-01-02T03:04:05Z"}
  schedulingStats: {evictions: [{reason: Preempted, underlyingCause: "", count: 1}]}
"""

Manifest = dict[str, object]


def manifests(text: str) -> Iterator[Manifest]:
    for document in yaml.safe_load_all(text):
        if document and str(document.get("apiVersion", "")).startswith(names.GROUP + "/"):
            yield document


def published() -> list[Manifest]:
    if not SAMPLES.is_dir():
        return []
    return [manifest for path in sorted(SAMPLES.rglob("*.yaml")) for manifest in manifests(path.read_text())]


ALL = [*manifests(OWN), *published()]


def assert_said(part: object, value: object, path: str) -> None:
    """`value` holds all that the manifest says at `path`; null says nothing."""
    if isinstance(value, msgspec.Struct):
        assert isinstance(part, dict), path
        fields = {field.encode_name: getattr(value, field.name) for field in msgspec.structs.fields(value)}
        for key, child in part.items():
            if child is not None:
                assert key in fields, f"{path}.{key} is not a field"
                assert_said(child, fields[key], f"{path}.{key}")
    elif isinstance(value, dict):
        assert isinstance(part, dict), path
        assert part.keys() == value.keys(), path
        for key, child in part.items():
            assert_said(child, value[key], f"{path}.{key}")
    elif isinstance(value, tuple):
        assert isinstance(part, list), path
        assert len(part) == len(value), path
        for index, child in enumerate(part):
            assert_said(child, value[index], f"{path}[{index}]")
    elif isinstance(value, datetime):
        assert parse_time(str(part)) == value, path
    else:
        assert part == value, path


@pytest.mark.parametrize("manifest", ALL, ids=[f"{m['kind']}-{i}" for i, m in enumerate(ALL)])
def test_decodes_and_keeps_all_that_is_said(manifest: Manifest) -> None:
    struct = STRUCTS[str(manifest["kind"])]
    decoded = convert(struct, manifest)
    again = decode(struct, encode(decoded))
    assert again == decoded
    assert_said(manifest, decoded, "")


def test_every_kind_has_a_sample() -> None:
    assert {manifest["kind"] for manifest in manifests(OWN)} == set(STRUCTS)


@pytest.mark.skipif(not SAMPLES.is_dir(), reason="the published samples are not beside the repository")
def test_the_published_samples_were_found() -> None:
    assert len(published()) > 10
