"""Quota on the command line."""

from __future__ import annotations

import pytest

from cli.ctl.cluster import CommandError
from cli.ctl.quota_flags import amounts, resource_groups


def test_flavors_with_the_same_resources_share_a_group() -> None:
    nominal = amounts(["alpha:cpu=9;memory=36Gi,beta:cpu=1;memory=4Gi", "gpu:nvidia.com/gpu=4"])
    groups = resource_groups(nominal, amounts(["alpha:cpu=5;memory=2Gi"]), {})
    assert [(g["coveredResources"], [f["name"] for f in g["flavors"]]) for g in groups] == [
        (["cpu", "memory"], ["alpha", "beta"]),
        (["nvidia.com/gpu"], ["gpu"]),
    ]
    assert groups[0]["flavors"][0]["resources"] == [
        {"name": "cpu", "nominalQuota": "9", "borrowingLimit": "5"},
        {"name": "memory", "nominalQuota": "36Gi", "borrowingLimit": "2Gi"},
    ]
    assert groups[0]["flavors"][1]["resources"][0] == {"name": "cpu", "nominalQuota": "1"}


def test_entries_of_one_flavor_are_merged() -> None:
    assert amounts(["alpha:cpu=1;memory=1Gi;", "alpha:cpu=2;memory=3Gi"]) == {"alpha": {"cpu": "2", "memory": "3Gi"}}


def test_only_a_limit_means_no_quota_of_its_own() -> None:
    (group,) = resource_groups({}, {}, amounts(["alpha:cpu=2"]))
    assert group["flavors"][0]["resources"] == [{"name": "cpu", "nominalQuota": "0", "lendingLimit": "2"}]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("alpha", "invalid resources specification"),
        ("alpha:", "invalid resources specification"),
        ("Alpha:cpu=1", "invalid resources specification"),
        ("alpha:cpu", "invalid resources specification"),
        ("alpha:cpu=1:memory=2", "invalid resources specification"),
        ("alpha:cpu=many", "invalid resource quota"),
        ("alpha:cpu=1,alpha:memory=2", "invalid flavor"),
    ],
)
def test_what_is_no_quota(text: str, error: str) -> None:
    with pytest.raises(CommandError, match=error):
        amounts([text])


def test_flags_must_name_the_same_resources_of_a_flavor() -> None:
    with pytest.raises(CommandError, match="invalid flavor"):
        resource_groups(amounts(["alpha:cpu=1;memory=1Gi"]), amounts(["alpha:cpu=1"]), {})


def test_a_resource_belongs_to_one_group() -> None:
    with pytest.raises(CommandError, match="invalid resource group: cpu"):
        resource_groups(amounts(["alpha:cpu=1;memory=1Gi", "beta:cpu=1"]), {}, {})
