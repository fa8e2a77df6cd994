import msgspec
import pytest
import yaml

from shared.api import names
from shared.api.cluster_queue import ClusterQueue, ClusterQueueStatus
from shared.api.decoding import convert, decode, encode
from shared.api.quota_groups import FairSharing
from shared.api.schema_hints import LONG_AGO
from shared.api.workload import PodSet, Workload


def test_absent_fields_have_the_defaults_of_the_api() -> None:
    queue = decode(ClusterQueue, b'{"metadata":{"name":"q"},"spec":{}}')
    assert queue.api_version == "kueue.x-k8s.io/v1beta2"
    assert queue.kind == names.CLUSTER_QUEUE
    assert queue.spec.queueing_strategy == "BestEffortFIFO"
    assert queue.spec.stop_policy == "None"
    assert queue.spec.flavor_fungibility.when_can_borrow == "MayStopSearch"
    assert queue.spec.flavor_fungibility.when_can_preempt == "TryNextFlavor"
    assert queue.spec.preemption.reclaim_within_cohort == "Never"
    assert queue.spec.preemption.borrow_within_cohort.policy == "Never"
    assert queue.spec.namespace_selector is None
    assert FairSharing().weight == "1"


def test_an_empty_selector_is_not_an_absent_one() -> None:
    queue = decode(ClusterQueue, b'{"spec":{"namespaceSelector":{}}}')
    assert queue.spec.namespace_selector is not None
    assert b'"namespaceSelector":{}' in encode(queue)


def test_unknown_fields_are_ignored() -> None:
    queue = decode(ClusterQueue, b'{"spec":{"cohortName":"c","future":{"x":1}},"extra":true}')
    assert queue.spec.cohort_name == "c"


def test_null_reads_as_absent_at_any_depth() -> None:
    workload = decode(
        Workload,
        b'{"spec":{"queueName":null,"podSets":[{"template":{"metadata":{"labels":null},'
        b'"spec":{"containers":[{"name":"c","resources":null}],"tolerations":null}}}]},"status":{"conditions":null}}',
    )
    assert workload.spec.queue_name == ""
    assert workload.spec.pod_sets[0].template.spec.containers[0].resources.requests == {}
    assert workload.spec.pod_sets[0].count == 1
    assert workload.status.conditions == ()


@pytest.mark.parametrize(
    ("data", "path"),
    [
        (b'{"spec":{"stopPolicy":"Sometimes"}}', "$.spec.stopPolicy"),
        (b'{"spec":{"admissionScope":{}}}', "$.spec.admissionScope"),
        (b'{"spec":{"resourceGroups":"many"}}', "$.spec.resourceGroups"),
        (b'{"status":{"pendingWorkloads":"three"}}', "$.status.pendingWorkloads"),
    ],
)
def test_a_wrong_shape_is_one_error_that_names_the_path(data: bytes, path: str) -> None:
    with pytest.raises(msgspec.ValidationError) as refused:
        decode(ClusterQueue, data)
    assert path in str(refused.value)


def test_what_is_not_json_is_a_decode_error() -> None:
    with pytest.raises(msgspec.DecodeError):
        decode(ClusterQueue, b"{")


def test_manifests_are_read_as_the_yaml_loader_gives_them() -> None:
    manifest = """
    metadata: {name: q, creationTimestamp: null}
    spec:
      cohortName: all
      resourceGroups:
      - coveredResources: [cpu]
        flavors:
        - name: default
          resources: [{name: cpu, nominalQuota: 9, borrowingLimit: "1500m", lendingLimit: null}]
    """
    queue = convert(ClusterQueue, yaml.safe_load(manifest))
    (quota,) = queue.spec.resource_groups[0].flavors[0].resources
    assert (quota.nominal_quota, quota.borrowing_limit, quota.lending_limit) == (9, "1500m", None)


def test_what_the_api_requires_is_read_leniently_and_always_written() -> None:
    workload = decode(
        Workload, b'{"status":{"conditions":[{"type":"A","status":"True"}],"admissionChecks":[{"name":"c"}]}}'
    )
    (condition,) = workload.status.conditions
    (check,) = workload.status.admission_checks
    assert (condition.reason, condition.message, condition.last_transition_time) == ("", "", LONG_AGO)
    assert (check.state, check.message, check.last_transition_time) == ("Pending", "", LONG_AGO)
    written = msgspec.json.decode(encode(workload))["status"]
    assert written["conditions"][0].keys() == {"type", "status", "reason", "message", "lastTransitionTime"}
    assert written["admissionChecks"][0].keys() == {"name", "state", "message", "lastTransitionTime"}


def test_counts_of_a_status_are_written_even_when_zero() -> None:
    assert encode(ClusterQueueStatus()) == b'{"pendingWorkloads":0,"reservingWorkloads":0,"admittedWorkloads":0}'


def test_identity_and_counts_are_always_written_defaults_never() -> None:
    assert encode(ClusterQueue()) == b'{"apiVersion":"kueue.x-k8s.io/v1beta2","kind":"ClusterQueue"}'
    pod_set = msgspec.json.decode(encode(convert(PodSet, {"template": {}})))
    assert pod_set == {"name": "main", "count": 1, "template": {}}
