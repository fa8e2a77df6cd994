"""From an admission to what goes into pods."""

from typing import Any

import pytest

from services.watcher.start_info import pod_set_infos, start_of
from services.watcher.store import Store
from shared.api.decoding import convert
from shared.api.workload import Workload
from shared.jobs.podset_info import MissingFlavor
from tests.unit.watcher.manifests import TIME, flavor, raw, template, workload


def admitted(*, assignment: dict[str, Any] | None = None, **pod_set: Any) -> Workload:
    found = {"name": "main", "flavors": {"cpu": "default", "memory": "default"}, "count": 2, **(assignment or {})}
    status = {
        "admission": {"clusterQueue": "cq", "podSetAssignments": [found]},
        "admissionChecks": [
            {
                "name": "check",
                "state": "Ready",
                "lastTransitionTime": TIME,
                "message": "",
                "podSetUpdates": [{"name": "main", "annotations": {"pr": "x"}}],
            }
        ],
    }
    sets = [{"name": "main", "count": 3, "template": template(), **pod_set}]
    return convert(Workload, workload(status=status, pod_sets=sets))


def test_flavors_count_once() -> None:
    (assigned,) = start_of(admitted()).assigned
    assert (assigned.flavors, assigned.count) == (("default",), 2)


def test_without_a_count_all_pods_are_meant() -> None:
    (assigned,) = start_of(admitted(assignment={"count": None})).assigned
    assert assigned.count == 3


@pytest.mark.parametrize(
    ("request_", "asks"),
    [({"required": "rack"}, True), ({"unconstrained": True}, True), ({"podIndexLabel": "i"}, False)],
)
def test_what_a_pod_set_asks_for_itself(request_: dict[str, Any], asks: bool) -> None:
    (assigned,) = start_of(admitted(topologyRequest=request_)).assigned
    assert assigned.asks_topology is asks


def test_check_updates_only_where_they_are_wanted() -> None:
    store = Store()
    store.upsert("resourceflavor", raw(flavor()))
    (info,) = pod_set_infos(store, admitted())
    assert info.annotations["pr"] == "x"
    assert info.node_selector == {"v": "1"}
    (info,) = pod_set_infos(store, admitted(), with_check_updates=False)
    assert "pr" not in info.annotations


def test_a_flavor_that_is_not_there_yet() -> None:
    with pytest.raises(MissingFlavor):
        pod_set_infos(Store(), admitted())


def test_without_a_reservation_there_is_nothing_to_start() -> None:
    with pytest.raises(ValueError, match="no reservation"):
        start_of(convert(Workload, workload()))
