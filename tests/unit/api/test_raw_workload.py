"""The gateway's Workloads keep every byte of a template; the lean view of one equals what decisions decode."""

import msgspec
import pytest

from shared.api.decoding import convert, decode, encode
from shared.api.meta import ObjectMeta
from shared.api.raw_workload import RawPodSet, RawWorkload, RawWorkloadSpec
from shared.api.workload import PodSetTopologyRequest, PreemptionGate, PriorityClassRef, Workload

TEMPLATE = (
    b'{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i","env":[{"name":"E","value":"\\u00e9"}],'
    b'"resources":{"requests":{"cpu":"1"}}}],"volumes":[{"name":"v"}],"x-unknown":{"deep":[1,2.50]}}}'
)


def raw_workload() -> RawWorkload:
    return RawWorkload(
        metadata=ObjectMeta(name="job-a-12345", namespace="team"),
        spec=RawWorkloadSpec(
            queue_name="lq",
            priority=7,
            priority_class_ref=PriorityClassRef(group="kueue.x-k8s.io", kind="WorkloadPriorityClass", name="high"),
            pod_sets=(
                RawPodSet(
                    name="workers",
                    count=3,
                    min_count=1,
                    topology_request=PodSetTopologyRequest(required="rack"),
                    template=msgspec.Raw(TEMPLATE),
                ),
            ),
            maximum_execution_time_seconds=60,
            preemption_gates=(PreemptionGate(name="kueue.x-k8s.io/multikueue"),),
            active=False,
        ),
    )


def test_templates_survive_byte_for_byte() -> None:
    encoded = encode(raw_workload())
    assert TEMPLATE in encoded
    again = decode(RawWorkload, encoded)
    assert bytes(again.spec.pod_sets[0].template) == TEMPLATE
    assert encode(again) == encoded


def test_the_lean_view_is_what_a_decision_decodes() -> None:
    raw = raw_workload()
    assert raw.lean() == decode(Workload, encode(raw))


def test_every_field_of_the_spec_is_carried_over() -> None:
    """A field added to the spec but forgotten in `lean` would fall back to its default unnoticed."""
    lean = raw_workload().lean()
    for field in RawWorkloadSpec.__struct_fields__:
        if field != "pod_sets":
            assert getattr(lean.spec, field) == getattr(raw_workload().spec, field)
    assert set(RawWorkloadSpec.__struct_fields__) == set(type(lean.spec).__struct_fields__)
    assert set(RawPodSet.__struct_fields__) == set(type(lean.spec.pod_sets[0]).__struct_fields__)


def test_a_template_that_is_none_is_an_error_of_its_workload() -> None:
    broken = RawWorkload(
        spec=RawWorkloadSpec(pod_sets=(RawPodSet(template=msgspec.Raw(b'{"spec":{"containers":1}}')),))
    )
    with pytest.raises(msgspec.ValidationError, match="containers"):
        broken.lean()


def test_nulls_and_loaded_manifests_work_for_raw_workloads_too() -> None:
    data = b'{"spec":{"queueName":null,"podSets":[{"template":{"spec":{"containers":[{"name":"c","image":"i"}]}}}]}}'
    from_json = decode(RawWorkload, data)
    from_yaml = convert(RawWorkload, msgspec.json.decode(data))
    for workload in (from_json, from_yaml):
        assert workload.spec.queue_name == ""
        template = msgspec.json.decode(workload.spec.pod_sets[0].template)
        assert template == {"spec": {"containers": [{"name": "c", "image": "i"}]}}
