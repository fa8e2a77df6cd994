import pytest

from shared.jobs.manifest import JsonObject
from shared.jobs.podset_info import PermanentError
from shared.jobs.topology_request import topology_request


def template(**annotations: str) -> JsonObject:
    return {"metadata": {"annotations": {f"kueue.x-k8s.io/{k.replace('_', '-')}": v for k, v in annotations.items()}}}


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        ({}, None),
        ({"podset_required_topology": "rack", "podset_preferred_topology": "block"}, {"required": "rack"}),
        (
            {"podset_preferred_topology": "block", "podset_group_name": "g"},
            {"preferred": "block", "podSetGroupName": "g"},
        ),
        ({"podset_unconstrained_topology": "true"}, {"unconstrained": True}),
        ({"podset_unconstrained_topology": "0"}, {"unconstrained": False}),
        ({"podset_group_name": "g"}, None),
        ({"podset_slice_required_topology": "rack"}, None),
        (
            {"podset_slice_required_topology": "rack", "podset_slice_size": "2"},
            {"podSetSliceRequiredTopology": "rack", "podSetSliceSize": 2},
        ),
        (
            {"podset_slice_required_topology_constraints": '[{"topology": "rack", "size": 2}]'},
            {"podsetSliceRequiredTopologyConstraints": [{"topology": "rack", "size": 2}]},
        ),
    ],
)
def test_annotations(annotations: dict[str, str], expected: JsonObject | None) -> None:
    assert topology_request(template(**annotations)) == expected


def test_the_kind_may_add_labels() -> None:
    assert topology_request({}, index_label="i", subgroup_label="s", subgroup_count=0) == {
        "podIndexLabel": "i",
        "subGroupIndexLabel": "s",
        "subGroupCount": 0,
    }


@pytest.mark.parametrize(
    "annotations",
    [
        {"podset_unconstrained_topology": "maybe"},
        {"podset_slice_required_topology": "rack", "podset_slice_size": "two"},
        {"podset_slice_required_topology_constraints": "[]"},
        {"podset_slice_required_topology_constraints": "{"},
    ],
)
def test_unreadable_annotations(annotations: dict[str, str]) -> None:
    with pytest.raises(PermanentError, match=r"annotation kueue\.x-k8s\.io/"):
        topology_request(template(**annotations))
