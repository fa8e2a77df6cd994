import pytest

from shared.api.decoding import decode, encode
from shared.api.pods import Container, ContainerPort, PodTemplateSpec, Taint, Toleration

TAINT = Taint(key="spot", value="true", effect="NoSchedule")


@pytest.mark.parametrize(
    ("toleration", "expected"),
    [
        (Toleration(key="spot", value="true"), True),
        (Toleration(key="spot", operator="Equal", value="true", effect="NoSchedule"), True),
        (Toleration(key="spot", operator="Equal", value="false"), False),
        (Toleration(key="spot"), False),
        (Toleration(key="spot", operator="Exists"), True),
        (Toleration(operator="Exists"), True),
        (Toleration(key="other", operator="Exists"), False),
        (Toleration(key="spot", operator="Exists", effect="NoExecute"), False),
        (Toleration(key="spot", operator="Near", value="true"), False),
    ],
)
def test_tolerates(toleration: Toleration, expected: bool) -> None:
    assert toleration.tolerates(TAINT) is expected


def test_a_sidecar_is_an_init_container_that_keeps_running() -> None:
    assert Container(restart_policy="Always").is_sidecar
    assert not Container().is_sidecar


TEMPLATE = b"""{
  "metadata": {"labels": {"app": "x"}, "annotations": {"a": "b"}, "creationTimestamp": null},
  "spec": {
    "restartPolicy": "Never", "runtimeClassName": "kata", "overhead": {"cpu": "50m"}, "priorityClassName": "high",
    "schedulingGates": [{"name": "kueue.x-k8s.io/topology"}], "nodeSelector": {"zone": "a"},
    "resources": {"requests": {"cpu": 2}},
    "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}],
    "tolerations": [{"key": "spot", "operator": "Exists", "tolerationSeconds": 30}],
    "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}],
    "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "type", "operator": "In", "values": ["spot"]}]}]}},
      "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 1, "podAffinityTerm": {"topologyKey": "host", "labelSelector": {"matchLabels": {"app": "x"}}}}]}},
    "initContainers": [{"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "100m"}}}],
    "containers": [{"name": "main", "image": "i", "env": [{"name": "SECRET", "value": "v"}],
      "ports": [{"containerPort": 80, "hostPort": 8080, "hostIP": "10.0.0.1"}],
      "resources": {"requests": {"cpu": 0.5, "memory": "1Gi"}, "limits": {"nvidia.com/gpu": 1}, "claims": [{"name": "gpu"}]}}],
    "volumes": [{"name": "v", "emptyDir": {}}]
  }
}"""


def test_the_lean_view_has_what_decides_and_nothing_else() -> None:
    template = decode(PodTemplateSpec, TEMPLATE)
    spec = template.spec
    assert template.metadata.labels == {"app": "x"}
    assert spec.containers[0].resources.requests == {"cpu": 0.5, "memory": "1Gi"}
    assert spec.containers[0].resources.limits == {"nvidia.com/gpu": 1}
    assert spec.containers[0].ports == (ContainerPort(container_port=80, host_port=8080, host_ip="10.0.0.1"),)
    assert spec.init_containers[0].is_sidecar
    assert spec.resources is not None
    assert spec.resources.requests == {"cpu": 2}
    assert spec.overhead == {"cpu": "50m"}
    assert spec.tolerations[0].toleration_seconds == 30
    assert spec.scheduling_gates[0].name == "kueue.x-k8s.io/topology"
    assert spec.resource_claims[0].resource_claim_template_name == "t"
    assert spec.topology_spread_constraints[0].max_skew == 1
    assert spec.affinity is not None
    assert spec.affinity.node_affinity is not None
    required = spec.affinity.node_affinity.required_during_scheduling_ignored_during_execution
    assert required is not None
    assert required.node_selector_terms[0].match_expressions[0].values == ("spot",)
    assert spec.affinity.pod_anti_affinity is not None
    encoded = encode(template)
    for left_out in (b"SECRET", b"image", b"volumes", b"creationTimestamp"):
        assert left_out not in encoded
    assert decode(PodTemplateSpec, encoded) == template
