"""The watch copy: newer wins whatever the order, deletes stay, indexes follow, readers hear of each change once."""

import json
from typing import Any

import msgspec
import pytest

from services.watcher.kinds import read, without_managed_fields
from services.watcher.store import Change, MalformedObject, Store
from shared.api.decoding import decode
from shared.api.raw_workload import RawWorkload
from shared.api.workload import Workload
from tests.unit.watcher.manifests import condition, flavor, job, metadata, raw, template, workload


class Listener:
    def __init__(self, store: Store) -> None:
        self.changes: list[Change] = []
        store.subscribe(self.changes.append)

    def versions(self) -> list[tuple[int | None, int | None]]:
        return [(c.old.version if c.old else None, c.new.version if c.new else None) for c in self.changes]


def test_a_newer_state_replaces_and_an_older_or_equal_one_does_not() -> None:
    store = Store()
    heard = Listener(store)
    assert store.upsert("resourceflavor", raw(flavor(version=5)))
    assert not store.upsert("resourceflavor", raw(flavor(version=5)))
    assert not store.upsert("resourceflavor", raw(flavor(version=4)))
    assert store.upsert("resourceflavor", raw(flavor(version=6)))
    found = store.get("resourceflavor", "", "default")
    assert found is not None
    assert (found.version, found.uid, found.key) == (6, "uid-default", "default")
    assert heard.versions() == [(None, 5), (5, 6)]


def test_versions_are_compared_as_numbers() -> None:
    store = Store()
    store.upsert("resourceflavor", raw(flavor(version=9)))
    assert store.upsert("resourceflavor", raw(flavor(version=10)))


def test_an_object_made_anew_under_the_same_name_is_one_change_from_one_uid_to_another() -> None:
    store = Store()
    heard = Listener(store)
    store.upsert("resourceflavor", raw(flavor(version=5, uid="first")))
    store.upsert("resourceflavor", raw(flavor(version=9, uid="second")))
    last = heard.changes[-1]
    assert last.old is not None
    assert last.new is not None
    assert (last.old.uid, last.new.uid) == ("first", "second")


def test_a_late_deletion_of_the_former_object_leaves_the_new_one() -> None:
    store = Store()
    store.upsert("resourceflavor", raw(flavor(version=9, uid="second")))
    assert not store.remove("resourceflavor", "", "default", version=7)
    assert store.get("resourceflavor", "", "default") is not None


def test_a_state_from_before_its_deletion_does_not_come_back() -> None:
    store = Store()
    heard = Listener(store)
    store.upsert("resourceflavor", raw(flavor(version=5)))
    assert store.remove("resourceflavor", "", "default", version=8)
    assert not store.upsert("resourceflavor", raw(flavor(version=7)))
    store.observed("resourceflavor", 9)
    assert not store.upsert("resourceflavor", raw(flavor(version=7)))
    assert store.upsert("resourceflavor", raw(flavor(version=10)))
    assert heard.versions() == [(None, 5), (5, None), (None, 10)]
    assert heard.changes[1].version == 8


def test_a_deletion_that_comes_before_the_last_state_counts() -> None:
    store = Store()
    assert not store.remove("resourceflavor", "", "default", version=8)
    assert not store.upsert("resourceflavor", raw(flavor(version=7)))
    assert store.get("resourceflavor", "", "default") is None


def test_a_response_for_an_object_that_the_watch_has_already_seen_go_is_ignored() -> None:
    store = Store()
    store.replace("resourceflavor", (), 20)
    assert not store.upsert("resourceflavor", raw(flavor(version=15)))
    assert store.upsert("resourceflavor", raw(flavor(version=21)))


def test_a_list_removes_what_it_does_not_hold_and_keeps_what_is_newer() -> None:
    store = Store()
    store.upsert("resourceflavor", raw(flavor("stays", version=5)))
    store.upsert("resourceflavor", raw(flavor("goes", version=6)))
    store.upsert("resourceflavor", raw(flavor("made-meanwhile", version=30)))
    heard = Listener(store)
    store.replace("resourceflavor", [read("resourceflavor", raw(flavor("stays", version=5)))], 20)
    assert {found.name for found in store.of_kind("resourceflavor")} == {"stays", "made-meanwhile"}
    assert [(c.subject.name, c.version, c.new) for c in heard.changes] == [("goes", 20, None)]
    assert store.version_of("resourceflavor") == 20


def test_a_list_does_not_bring_back_what_was_deleted_after_it_began() -> None:
    store = Store()
    store.upsert("resourceflavor", raw(flavor(version=5)))
    store.remove("resourceflavor", "", "default", version=25)
    store.replace("resourceflavor", [read("resourceflavor", raw(flavor(version=5)))], 20)
    assert store.get("resourceflavor", "", "default") is None


def test_an_object_that_is_listed_but_unreadable_keeps_its_last_good_state() -> None:
    store = Store()
    store.upsert("resourceflavor", raw(flavor("bad", version=5)))
    store.replace("resourceflavor", (), 20, keep=[("", "bad"), ("", "never-good")])
    assert store.get("resourceflavor", "", "bad") is not None
    assert store.is_unreadable("resourceflavor", "", "never-good")
    store.upsert("resourceflavor", raw(flavor("never-good", version=21)))
    assert not store.is_unreadable("resourceflavor", "", "never-good")
    store.remove("resourceflavor", "", "bad", version=22)
    assert not store.is_unreadable("resourceflavor", "", "bad")


def test_a_list_from_the_past_is_refused_until_the_kind_is_forgotten() -> None:
    store = Store()
    store.replace("resourceflavor", [read("resourceflavor", raw(flavor(version=50)))], 60)
    restored = [read("resourceflavor", raw(flavor(version=10)))]
    with pytest.raises(ValueError, match="older"):
        store.replace("resourceflavor", restored, 20)
    heard = Listener(store)
    store.forget("resourceflavor")
    store.replace("resourceflavor", restored, 20)
    assert heard.versions() == [(50, None), (None, 10)]
    assert store.version_of("resourceflavor") == 20


def test_objects_are_found_by_namespace_and_by_owner() -> None:
    store = Store()
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "job-uid", "controller": True}
    store.upsert("workload", raw(workload("a", version=1, meta={"ownerReferences": [owner]})))
    store.upsert("workload", raw(workload("b", version=2)))
    assert [found.name for found in store.in_namespace("workload", "team")] == ["a", "b"]
    assert [found.name for found in store.owned_by("workload", "job-uid")] == ["a"]
    store.upsert("workload", raw(workload("a", version=3)))
    assert store.owned_by("workload", "job-uid") == []
    store.upsert("workload", raw(workload("b", version=4, meta={"ownerReferences": [owner]})))
    assert [found.name for found in store.owned_by("workload", "job-uid")] == ["b"]
    store.remove("workload", "team", "b", version=5)
    assert store.owned_by("workload", "job-uid") == []
    assert [found.name for found in store.in_namespace("workload", "team")] == ["a"]
    assert store.in_namespace("workload", "elsewhere") == []


def test_kinds_keep_apart() -> None:
    store = Store()
    store.replace("cohort", (), 100)
    assert store.upsert("resourceflavor", raw(flavor(version=5)))
    assert store.get("topology", "", "default") is None


def test_of_kind_is_a_snapshot() -> None:
    store = Store()
    store.upsert("resourceflavor", raw(flavor("a", version=1)))
    for found in store.of_kind("resourceflavor"):
        store.remove("resourceflavor", "", found.name, version=9)
    assert list(store.of_kind("resourceflavor")) == []


def test_a_workload_keeps_its_templates_whole_and_drops_managed_fields() -> None:
    store = Store()
    store.upsert(
        "workload", raw(workload(meta={"managedFields": [{"manager": "kubectl", "fieldsV1": {"f:spec": {}}}]}))
    )
    found = store.get("workload", "team", "w")
    assert found is not None
    assert b"managedFields" not in found.raw
    (pod_set,) = decode(RawWorkload, found.raw).spec.pod_sets
    assert json.loads(bytes(pod_set.template)) == template()


def test_workloads_of_one_shape_share_their_template() -> None:
    store = Store()
    store.upsert("workload", raw(workload("a")))
    store.upsert("workload", raw(workload("b")))
    first, second = store.of_kind("workload")
    assert isinstance(first.object, Workload)
    assert isinstance(second.object, Workload)
    assert first.object.spec.pod_sets[0].template is second.object.spec.pod_sets[0].template


def test_what_is_finished_is_trimmed() -> None:
    store = Store()
    store.upsert("workload", raw(workload(status={"conditions": [condition("Finished")]})))
    store.upsert("job", raw(job(status={"conditions": [{"type": "Complete", "status": "True"}]})))
    store.upsert("job", raw(job("runs")))
    finished, done, runs = (
        store.get("workload", "team", "w"), store.get("job", "team", "j"), store.get("job", "team", "runs"),
    )  # fmt: skip
    assert finished is not None
    assert done is not None
    assert runs is not None
    assert isinstance(finished.object, Workload)
    assert (finished.raw, done.raw, finished.object.spec.pod_sets) == (b"", b"", ())
    assert json.loads(runs.raw)["spec"]["template"] == template()


@pytest.mark.parametrize(
    ("kind", "document"),
    [
        ("workload", {"metadata": metadata("w", namespace="team"), "spec": {"podSets": "none"}}),
        ("resourceflavor", {"metadata": metadata("f"), "spec": {"nodeLabels": [1]}}),
        ("resourceflavor", {"metadata": {"name": "f", "uid": "u", "resourceVersion": "new"}}),
        ("resourceflavor", {"metadata": {"name": "f", "resourceVersion": "1"}}),
        ("job", {"spec": {}}),
        ("workload", {"metadata": metadata("w"), "spec": {"podSets": [{"template": {"spec": {"containers": 3}}}]}}),
    ],
)
def test_a_malformed_object_is_one_error_and_changes_nothing(kind: str, document: dict[str, Any]) -> None:
    store = Store()
    with pytest.raises(MalformedObject):
        store.upsert(kind, raw(document))
    assert list(store.of_kind(kind)) == []


def test_bytes_that_are_no_json_are_malformed_too() -> None:
    with pytest.raises(MalformedObject):
        Store().upsert("job", b"<html>")


def test_a_null_where_nothing_is_meant_does_no_harm() -> None:
    store = Store()
    sets = [
        {
            "name": "main",
            "count": 1,
            "template": {"metadata": {"creationTimestamp": None}, "spec": {"containers": None}},
        }
    ]
    assert store.upsert("workload", raw(workload(pod_sets=sets)))


def test_without_managed_fields_leaves_all_else_byte_for_byte() -> None:
    plain = raw(workload())
    assert without_managed_fields(plain) is plain
    stripped = without_managed_fields(raw(workload(meta={"managedFields": []})))
    assert msgspec.json.decode(stripped) == msgspec.json.decode(plain)
