"""Records of ownership, from updated to applied: what changes, what does not, and that nothing owned is lost."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.hand_back import MANAGERS, as_applied, union
from shared.api import names

Entry = dict[str, Any]


def entry(operation: str, *fields: str, manager: str = names.ADMISSION_MANAGER, subresource: str = "status") -> Entry:
    return {
        "manager": manager,
        "operation": operation,
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "fieldsType": "FieldsV1",
        "subresource": subresource,
        "fieldsV1": {"f:status": {f"f:{field}": {} for field in fields}},
    }


@pytest.mark.parametrize("manager", MANAGERS)
def test_what_was_updated_counts_as_applied(manager: str) -> None:
    assert as_applied([entry("Update", "admission", manager=manager)]) == [entry("Apply", "admission", manager=manager)]


def test_what_kueue_applied_before_is_kept_in_the_one_record_of_it() -> None:
    both = as_applied([entry("Apply", "requeueState"), entry("Update", "admission")])
    assert both == [entry("Apply", "admission", "requeueState")]


def test_each_manager_keeps_its_own() -> None:
    ready = {"manager": names.PODS_READY_MANAGER}
    both = as_applied([entry("Apply", "conditions", **ready), entry("Update", "admission")])
    assert both == [entry("Apply", "conditions", **ready), entry("Apply", "admission")]


@pytest.mark.parametrize(
    "other",
    [
        entry("Apply", "admission"),
        entry("Update", "admission", manager="somebody"),
        entry("Update", "labels", subresource=""),
    ],
)
def test_what_others_own_and_what_is_applied_already_stays(other: Entry) -> None:
    assert as_applied([other]) is None
    assert as_applied([other, entry("Update", "x", manager=names.RECLAIMABLE_PODS_MANAGER)]) is not None
    kept = as_applied([deepcopy(other), entry("Update", "x", manager=names.RECLAIMABLE_PODS_MANAGER)])
    assert kept is not None
    assert other in kept


fields: st.SearchStrategy[dict[str, Any]] = st.recursive(
    st.just({}),
    lambda inner: st.dictionaries(st.sampled_from([".", "f:a", "f:b", 'k:{"type":"x"}', "v:1"]), inner, max_size=3),
    max_leaves=8,
)
entries = st.lists(
    st.builds(
        lambda manager, operation, subresource, owned: {
            "manager": manager, "operation": operation, "subresource": subresource, "fieldsV1": owned,
        },
        st.sampled_from([*MANAGERS, "kubectl"]),
        st.sampled_from(["Apply", "Update"]),
        st.sampled_from(["status", ""]),
        fields,
    ),
    max_size=6,
    unique_by=lambda e: (e["manager"], e["operation"], e["subresource"]),
)  # fmt: skip


def paths(owned: dict[str, Any], prefix: tuple[str, ...] = ()) -> set[tuple[str, ...]]:
    found: set[tuple[str, ...]] = set()
    for key, below in owned.items():
        found |= {(*prefix, key)} | paths(below, (*prefix, key))
    return found


def owners(records: list[Entry]) -> dict[tuple[str, str], set[tuple[str, ...]]]:
    owned: dict[tuple[str, str], set[tuple[str, ...]]] = {}
    for one in records:
        owned.setdefault((one["manager"], one["subresource"]), set()).update(paths(one["fieldsV1"]))
    return owned


@given(entries)
def test_nobody_gains_or_loses_a_field_and_a_second_time_changes_nothing(before: list[Entry]) -> None:
    given_ = json.dumps(before)
    after = as_applied(before)
    assert json.dumps(before) == given_
    if after is None:
        return
    assert owners(after) == owners(before)
    assert as_applied(after) is None
    identities = [(e["manager"], e["operation"], e["subresource"]) for e in after]
    assert len(identities) == len(set(identities))


@given(fields, fields)
def test_union_holds_exactly_what_either_holds(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert paths(union(one, other)) == paths(one) | paths(other)
    assert union(one, other) == union(other, one)
