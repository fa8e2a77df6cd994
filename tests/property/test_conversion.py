"""Laws of conversion: there and back is where it began, in either direction; what comes out is what the schema of its version allows."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.webhook.convert import converted
from shared.api import names
from shared.api.cluster_queue import ClusterQueue
from shared.api.cohort import Cohort
from shared.api.decoding import convert
from shared.api.local_queue import LocalQueue
from shared.api.topology_assignment import TopologyAssignment
from shared.api.topology_encoding import Domain, decode, encode
from shared.api.v1beta1 import cluster_queue as old_cluster_queue
from shared.api.v1beta1 import cohort as old_cohort
from shared.api.v1beta1 import local_queue as old_local_queue
from shared.api.workload import Workload
from tests.property.conversion_objects import FROM_V1, FROM_V2, V1, V2, Json, domain_lists, workload_v2

STRUCTS: dict[tuple[str, str], type[msgspec.Struct]] = {
    (V1, names.CLUSTER_QUEUE): old_cluster_queue.ClusterQueue,
    (V1, names.COHORT): old_cohort.Cohort,
    (V1, names.LOCAL_QUEUE): old_local_queue.LocalQueue,
    (V2, names.CLUSTER_QUEUE): ClusterQueue,
    (V2, names.COHORT): Cohort,
    (V2, names.LOCAL_QUEUE): LocalQueue,
    (V2, names.WORKLOAD): Workload,
}


def to(version: str, document: Json) -> Json:
    """As the API server gets it: by way of JSON."""
    sent = msgspec.json.encode(converted(copy.deepcopy(document), version))
    received: Json = msgspec.json.decode(sent)
    return received


def check_round_trip(document: Json) -> None:
    version = document["apiVersion"]
    other = V2 if version == V1 else V1
    there = to(other, document)
    assert there["apiVersion"] == other
    assert {**there["metadata"], "annotations": 0} == {**document["metadata"], "annotations": 0}
    struct = STRUCTS.get((other, document["kind"]))
    if struct is not None:
        convert(struct, there)
    assert to(version, there) == document


@pytest.mark.parametrize("kind", FROM_V1)
@given(data=st.data())
def test_v1beta1_and_back(kind: str, data: st.DataObject) -> None:
    check_round_trip(data.draw(FROM_V1[kind]))


@pytest.mark.parametrize("kind", FROM_V2)
@given(data=st.data())
def test_v1beta2_and_back(kind: str, data: st.DataObject) -> None:
    check_round_trip(data.draw(FROM_V2[kind]))


def compact(assignment: Json) -> Json:
    """As Kueue and we write it."""
    domains = [Domain(tuple(d["values"]), d["count"]) for d in assignment["domains"]]
    encoded: Json = msgspec.json.decode(msgspec.json.encode(encode(assignment["levels"], domains)))
    return encoded


@given(workload_v2(domain_lists().map(compact)))
def test_workloads_of_v1beta2_and_back(workload: Json) -> None:
    check_round_trip(workload)


def _column(values: list[str], universal: bool) -> Json:
    same = universal and values[0] and len(set(values)) == 1
    return {"universal": values[0]} if same else {"individual": {"roots": values}}


@st.composite
def legal(draw: st.DrawFn) -> Json:
    """Any legal compact form: cut where nobody would cut it, without prefixes."""
    assignment = draw(domain_lists())
    rest, slices = assignment["domains"], []
    while rest:
        size = draw(st.integers(1, len(rest)))
        part, rest = rest[:size], rest[size:]
        counts = [d["count"] for d in part]
        same = draw(st.booleans()) and len(set(counts)) == 1
        slices.append(
            {
                "domainCount": size,
                "valuesPerLevel": [
                    _column(list(c), draw(st.booleans())) for c in zip(*(d["values"] for d in part), strict=True)
                ],
                "podCounts": {"universal": counts[0]} if same else {"individual": counts},
            }
        )
    return {"levels": assignment["levels"], "slices": slices}


def placed(workload: Json) -> dict[str, tuple[Any, ...]]:
    """Where its pods are, by pod set, however it is written; and the rest of the workload besides."""
    found = {}
    for assignment in workload.get("status", {}).get("admission", {}).get("podSetAssignments", ()):
        topology = assignment.pop("topologyAssignment", None)
        if topology is not None:
            read = convert(TopologyAssignment, topology)
            found[assignment["name"]] = (read.levels, tuple(decode(read)))
    return found


@given(workload_v2(legal()))
def test_any_legal_form_of_a_topology_says_the_same_afterwards(workload: Json) -> None:
    back = to(V2, to(V1, workload))
    assert placed(back) == placed(workload)
    assert back == workload


@pytest.mark.parametrize(("kind", "wanted"), [(k, V2) for k in FROM_V1] + [(k, V1) for k in FROM_V2])
@given(data=st.data(), spoilt=st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["spec", "podSets", "admission", "x"]), inner, max_size=2),
    max_leaves=6,
))  # fmt: skip
@settings(max_examples=50)
def test_nothing_in_an_object_or_its_annotations_makes_it_fail(
    kind: str, wanted: str, data: st.DataObject, spoilt: object
) -> None:
    """What is stored can be read, whatever it is."""
    document = data.draw((FROM_V1 if wanted == V2 else FROM_V2)[kind])
    part = data.draw(st.sampled_from(["spec", "status", "annotation", "inside"]))
    if part == "annotation":
        fields = names.V1BETA2_FIELDS if wanted == V2 else names.V1BETA1_FIELDS
        text = data.draw(st.sampled_from(["", "{", "[]", msgspec.json.encode(spoilt).decode()]))
        document["metadata"]["annotations"] = {fields: text}
        assert fields not in to(wanted, document)["metadata"].get("annotations", {})
    elif part == "inside":
        for section in ("spec", "status"):
            for field in document.get(section, {}):
                document[section][field] = spoilt
    else:
        document[part] = spoilt
    assert to(wanted, document)["apiVersion"] == wanted
