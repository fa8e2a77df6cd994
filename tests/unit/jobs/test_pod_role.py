"""Role hashes, byte for byte: the vectors of the job specification (20.1) and what is, and is not, part of a role."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.jobs.pod_role import hashed_text, role_hash

ONE_CPU = (
    '{"spec":{"affinity":null,"containers":[{"ports":null,"resources":{"requests":{"cpu":"1"}}}],"initContainers":null,'
    '"nodeSelector":null,"overhead":null,"priority":null,"resourceClaims":null,"runtimeClassName":null,"tolerations":null,'
    '"topologySpreadConstraints":null}}'
)


def pod(requests: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    resources = {} if requests is None else {"requests": requests}
    return {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "resources": resources}], **spec}}


@pytest.mark.parametrize(("requests", "expected"), [({}, "a9f06f3a"), ({"cpu": "1"}, "dc85db45")])
def test_vectors(requests: dict[str, str], expected: str) -> None:
    assert role_hash(pod(requests)) == expected


def test_what_is_hashed() -> None:
    assert hashed_text(pod({"cpu": "1"})) == ONE_CPU
    assert hashed_text(pod({"cpu": "1"}, resources={"requests": {"cpu": "2"}})) == ONE_CPU.replace(
        '"runtimeClassName"', '"resources":{"cpu":"2"},"runtimeClassName"'
    )
    assert hashed_text(pod({"cpu": "1"}, resources={})) == ONE_CPU.replace(
        '"runtimeClassName"', '"resources":null,"runtimeClassName"'
    )
    assert '"requests":null' in hashed_text(pod())
    assert hashed_text({"spec": {}}).startswith('{"spec":{"affinity":null,"containers":null,')


def test_texts_are_escaped_as_go_does() -> None:
    written = hashed_text(pod(tolerations=[{"key": "<a>&\u2028é"}]))
    assert '"tolerations":[{"key":"\\u003ca\\u003e\\u0026\\u2028é"}]' in written


def test_maps_are_sorted_and_structs_keep_their_order() -> None:
    written = hashed_text(pod(nodeSelector={"b": "1", "a": "2"}, tolerations=[{"operator": "Exists", "key": "k"}]))
    assert '"nodeSelector":{"a":"2","b":"1"}' in written
    assert '"tolerations":[{"operator":"Exists","key":"k"}]' in written


@pytest.mark.parametrize(
    "change",
    [
        {"affinity": {"nodeAffinity": {}}},
        {"initContainers": [{"name": "i"}]},
        {"nodeSelector": {"a": "b"}},
        {"overhead": {"cpu": "1"}},
        {"priority": 0},
        {"resourceClaims": [{"name": "c"}]},
        {"runtimeClassName": "r"},
        {"tolerations": [{"key": "k"}]},
        {"topologySpreadConstraints": [{"maxSkew": 1}]},
        {"resources": {"requests": {"cpu": "1"}}},
        {"containers": [{"name": "c", "ports": [{"containerPort": 80}]}]},
    ],
    ids=lambda change: next(iter(change)),
)
def test_what_makes_another_role(change: dict[str, Any]) -> None:
    assert role_hash(pod(**change)) != role_hash(pod())


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "volumes": st.just([{"name": "v"}]),
            "serviceAccountName": st.text(),
            "schedulerName": st.text(),
            "schedulingGates": st.just([{"name": "g"}]),
            "restartPolicy": st.text(),
            "hostname": st.text(),
            "tolerations": st.just([]),
        },
    ),
    st.fixed_dictionaries(
        {},
        optional={
            "image": st.text(),
            "command": st.just(["x"]),
            "args": st.just(["y"]),
            "env": st.just([{"name": "E"}]),
        },
    ),
)
def test_what_does_not(spec: dict[str, Any], container: dict[str, Any]) -> None:
    changed = pod({"cpu": "1"}, **spec)
    changed["spec"]["containers"][0] |= container
    changed["spec"]["containers"][0]["resources"]["limits"] = {"cpu": "9"}
    assert role_hash(changed) == role_hash(pod({"cpu": "1"}))
