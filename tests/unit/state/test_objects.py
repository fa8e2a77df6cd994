from __future__ import annotations

import pytest

from shared.bus.interface import ObjectChanged
from shared.events.objects import ClusterQueue, Namespace, Object, Tombstone, Workload
from shared.events.subjects import ObjectName
from shared.state import objects as objects_module
from shared.state.objects import Objects
from tests.unit.state.builders import cluster_queue, namespace, workload

W = ObjectName("workload", "ns", "a")


def at(position: int, object_: Object, name: ObjectName = W) -> ObjectChanged:
    return ObjectChanged(name, object_, position)


def gone(version: int, uid: str = "uid-a") -> Tombstone:
    return Tombstone(namespace="ns", name="a", uid=uid, version=version)


def test_a_first_state_is_taken_in() -> None:
    objects = Objects()
    change = objects.apply(at(1, workload("a", version=5)))
    assert change is not None
    assert change.old is None
    assert change.new == workload("a", version=5)
    assert objects.get(Workload, "ns/a") == workload("a", version=5)
    assert objects.version("workload", "ns/a") == 5


def test_a_newer_state_replaces_and_names_the_one_before() -> None:
    objects = Objects()
    objects.apply(at(1, workload("a", version=5)))
    change = objects.apply(at(2, workload("a", version=6, priority=3)))
    assert change is not None
    assert change.old == workload("a", version=5)
    assert objects.all(Workload)["ns/a"].priority == 3


@pytest.mark.parametrize(
    "late",
    [
        at(1, workload("a", version=5)),
        at(3, workload("a", version=5)),
        at(3, workload("a", version=4)),
        at(2, workload("a", version=9)),
        at(3, gone(4)),
    ],
    ids=["repeated", "same version again", "older version", "older position", "tombstone of an older list"],
)
def test_a_late_state_changes_nothing(late: ObjectChanged) -> None:
    objects = Objects()
    objects.apply(at(1, workload("a", version=4)))
    objects.apply(at(2, workload("a", version=5)))
    assert objects.apply(late) is None
    assert objects.get(Workload, "ns/a") == workload("a", version=5)


def test_a_tombstone_of_the_same_version_deletes() -> None:
    objects = Objects()
    objects.apply(at(1, workload("a", version=5)))
    change = objects.apply(at(2, gone(5)))
    assert change is not None
    assert change.new is None
    assert objects.get(Workload, "ns/a") is None
    assert objects.version("workload", "ns/a") == 5


def test_an_older_state_after_the_tombstone_stays_out() -> None:
    objects = Objects()
    objects.apply(at(1, workload("a", version=5)))
    objects.apply(at(3, gone(7)))
    assert objects.apply(at(2, workload("a", version=6))) is None
    assert objects.apply(at(4, workload("a", version=6))) is None
    assert not objects.all(Workload)


def test_a_new_uid_replaces_whatever_its_version() -> None:
    objects = Objects()
    objects.apply(at(1, workload("a", version=50)))
    change = objects.apply(at(2, workload("a", version=3, uid="other")))
    assert change is not None
    assert objects.get(Workload, "ns/a") == workload("a", version=3, uid="other")


def test_a_new_uid_comes_back_after_a_tombstone() -> None:
    objects = Objects()
    objects.apply(at(1, workload("a", version=5)))
    objects.apply(at(2, gone(6)))
    assert objects.apply(at(3, workload("a", version=8, uid="other"))) is not None


def test_a_tombstone_of_something_unknown_is_remembered() -> None:
    objects = Objects()
    change = objects.apply(at(5, gone(6)))
    assert change is not None
    assert (change.old, change.new) == (None, None)
    assert objects.apply(at(4, workload("a", version=5))) is None


def test_what_stands_in_the_wrong_place_is_left_out_and_remembered() -> None:
    objects = Objects()
    assert objects.apply(at(1, cluster_queue("a"))) is None
    assert "ClusterQueue under kind 'workload'" in objects.misfits[W]
    unknown = ObjectName("dragon", "", "a")
    assert objects.apply(at(2, cluster_queue("a"), unknown)) is None
    assert unknown in objects.misfits
    assert objects.apply(at(3, workload("a"))) is not None
    assert list(objects.misfits) == [unknown]


def test_old_tombstones_are_forgotten_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects_module, "TOMBSTONES_KEPT", 2)
    objects = Objects()
    for position, name in enumerate("abc", start=1):
        objects.apply(at(position, Tombstone(name=name, version=position), ObjectName("workload", "", name)))
    assert objects.version("workload", "a") == 0
    assert objects.version("workload", "c") == 3


def test_kinds_are_apart_and_clear_forgets() -> None:
    objects = Objects()
    objects.apply(at(1, cluster_queue("x"), ObjectName("clusterqueue", "", "x")))
    objects.apply(at(2, namespace("x"), ObjectName("namespace", "", "x")))
    assert objects.get(ClusterQueue, "x") is not None
    assert objects.get(Namespace, "x") is not None
    assert sorted(objects.dump()) == ["clusterqueue", "namespace"]
    objects.clear()
    assert objects.dump() == {}
