"""The contract of writes: what is made of an object, by whom it cannot be changed, and when a write is refused."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest

from shared.kube import errors
from shared.kube.client import JSON_PATCH
from shared.kube.resources import JOBS, LEASES, LOCAL_QUEUES, RESOURCE_FLAVORS, WORKLOADS
from tests.contract.kube.server import (
    CONFIG_MAPS,
    Caller,
    Server,
    condition,
    config_map,
    job,
    local_queue,
    version,
    workload,
)


@pytest.fixture
def api(server: Server) -> Caller:
    return Caller(server)


class Creating:
    async def test_a_new_object_has_an_identity(self, api: Caller) -> None:
        made = await api.create(LOCAL_QUEUES, local_queue("a", labels={"x": "y"}))
        metadata = made["metadata"]
        assert (metadata["name"], metadata["namespace"], metadata["labels"]) == ("a", api.namespace, {"x": "y"})
        assert len(metadata["uid"]) == 36
        assert metadata["generation"] == 1
        datetime.strptime(metadata["creationTimestamp"], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
        assert (made["apiVersion"], made["kind"]) == ("kueue.x-k8s.io/v1beta2", "LocalQueue")
        got = await api.get(LOCAL_QUEUES, "a")
        assert got == made

    async def test_one_counter_gives_the_versions_of_all_kinds(self, api: Caller) -> None:
        first = await api.create(CONFIG_MAPS, config_map("a"))
        second = await api.create(LOCAL_QUEUES, local_queue("a"))
        third = await api.create(CONFIG_MAPS, config_map("b"))
        assert version(first) < version(second) < version(third)
        assert version(await api.list(LOCAL_QUEUES)) >= version(third)

    async def test_config_maps_count_no_generations(self, api: Caller) -> None:
        made = await api.create(CONFIG_MAPS, config_map("a"))
        assert "generation" not in made["metadata"]

    async def test_a_taken_name(self, api: Caller) -> None:
        await api.create(CONFIG_MAPS, config_map("a"))
        with pytest.raises(errors.AlreadyExists):
            await api.create(CONFIG_MAPS, config_map("a"))

    async def test_a_name_that_the_server_makes(self, api: Caller) -> None:
        made = await api.create(CONFIG_MAPS, {"metadata": {"generateName": "made-"}})
        assert made["metadata"]["name"].startswith("made-")
        assert len(made["metadata"]["name"]) == len("made-") + 5

    @pytest.mark.parametrize("name", ["", "UPPER", "a_b", "-a", "a" * 254])
    async def test_a_name_that_is_none(self, api: Caller, name: str) -> None:
        with pytest.raises(errors.Invalid):
            await api.create(CONFIG_MAPS, config_map(name))

    async def test_a_namespace_that_is_not_there(self, server: Server, api: Caller) -> None:
        with pytest.raises(errors.NotFound):
            await server.client.create(CONFIG_MAPS, "nowhere", b'{"metadata":{"name":"a"}}')

    async def test_a_body_for_another_kind(self, api: Caller) -> None:
        with pytest.raises(errors.Invalid):
            await api.create(LOCAL_QUEUES, {**local_queue("a"), "kind": "Workload"})
        with pytest.raises(errors.Refused) as caught:
            await api.create(CONFIG_MAPS, {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}})
        assert caught.value.status == 400

    async def test_a_new_object_has_no_version_yet(self, api: Caller) -> None:
        with pytest.raises(errors.ServerTimeout):
            await api.create(CONFIG_MAPS, config_map("a", resourceVersion="5"))

    async def test_a_namespace_that_is_not_that_of_the_path(self, api: Caller) -> None:
        with pytest.raises(errors.Refused) as caught:
            await api.create(CONFIG_MAPS, config_map("a", namespace="default"))
        assert caught.value.status == 400

    async def test_a_status_is_not_taken_on_creation(self, api: Caller) -> None:
        made = await api.create(LOCAL_QUEUES, {**local_queue("a"), "status": {"pendingWorkloads": 3}})
        assert "status" not in made

    async def test_what_the_server_decides_cannot_be_given(self, api: Caller) -> None:
        given = {
            "uid": "mine",
            "generation": 7,
            "creationTimestamp": "2020-01-01T00:00:00Z",
            "deletionTimestamp": "2020-01-01T00:00:00Z",
        }
        metadata = (await api.create(LOCAL_QUEUES, local_queue("a", **given)))["metadata"]
        assert metadata["generation"] == 1
        assert metadata["uid"] != "mine"
        assert not metadata["creationTimestamp"].startswith("2020")
        assert "deletionTimestamp" not in metadata

    async def test_defaults_of_a_definition(self, api: Caller) -> None:
        document = workload("a")
        del document["spec"]["podSets"][0]["name"]
        made = await api.create(WORKLOADS, document)
        assert made["spec"]["active"] is True
        assert made["spec"]["podSets"][0]["name"] == "main"

    async def test_defaults_of_a_job(self, api: Caller) -> None:
        made = await api.create(JOBS, job("a"))
        uid = made["metadata"]["uid"]
        spec = made["spec"]
        template = spec.pop("template")
        labels = {
            "batch.kubernetes.io/controller-uid": uid,
            "batch.kubernetes.io/job-name": "a",
            "controller-uid": uid,
            "job-name": "a",
        }
        assert template["metadata"]["labels"] == labels
        assert spec == {
            "suspend": True,
            "parallelism": 1,
            "completions": 1,
            "backoffLimit": 6,
            "completionMode": "NonIndexed",
            "manualSelector": False,
            "podReplacementPolicy": "TerminatingOrFailed",
            "selector": {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}},
        }
        assert template["spec"] == {
            "restartPolicy": "Never",
            "dnsPolicy": "ClusterFirst",
            "schedulerName": "default-scheduler",
            "securityContext": {},
            "terminationGracePeriodSeconds": 30,
            "containers": [
                {
                    "name": "c",
                    "image": "registry.k8s.io/pause:3.10",
                    "imagePullPolicy": "IfNotPresent",
                    "resources": {"requests": {"cpu": "1"}},
                    "terminationMessagePath": "/dev/termination-log",
                    "terminationMessagePolicy": "File",
                }
            ],
        }


class Patching:
    async def test_a_merge_patch_sets_removes_and_replaces_lists(self, api: Caller) -> None:
        made = await api.create(
            CONFIG_MAPS, config_map("a", labels={"x": "1", "y": "2"}, finalizers=["a.b/c", "a.b/d"])
        )
        patch = {"metadata": {"labels": {"x": None, "z": "3"}, "finalizers": ["a.b/e"]}, "data": {"b": "2"}}
        patched = await api.patch(CONFIG_MAPS, "a", patch)
        assert patched["metadata"]["labels"] == {"y": "2", "z": "3"}
        assert patched["metadata"]["finalizers"] == ["a.b/e"]
        assert patched["data"] == {"a": "1", "b": "2"}
        assert version(patched) > version(made)
        await api.patch(CONFIG_MAPS, "a", {"metadata": {"finalizers": None}})

    async def test_a_patch_that_changes_nothing_writes_nothing(self, api: Caller) -> None:
        made = await api.create(LOCAL_QUEUES, local_queue("a"))
        again = await api.patch(LOCAL_QUEUES, "a", {"spec": {"clusterQueue": "cq"}})
        assert version(again) == version(made)
        status = {"status": {"pendingWorkloads": 1}}
        written = await api.patch(LOCAL_QUEUES, "a", status, subresource="status")
        again = await api.patch(LOCAL_QUEUES, "a", status, subresource="status")
        assert version(again) == version(written) > version(made)

    async def test_a_version_is_a_precondition(self, api: Caller) -> None:
        made = await api.create(LOCAL_QUEUES, local_queue("a"))
        guard = {"metadata": {"uid": made["metadata"]["uid"], "resourceVersion": made["metadata"]["resourceVersion"]}}
        patched = await api.patch(LOCAL_QUEUES, "a", {**guard, "status": {"pendingWorkloads": 1}}, subresource="status")
        for subresource in ("status", ""):
            with pytest.raises(errors.Conflict) as caught:
                await api.patch(LOCAL_QUEUES, "a", {**guard, "status": {}}, subresource=subresource)
            assert not isinstance(caught.value, errors.AlreadyExists)
        assert await api.get(LOCAL_QUEUES, "a") == patched

    async def test_a_stale_version_is_a_conflict_even_if_nothing_would_change(self, api: Caller) -> None:
        made = await api.create(CONFIG_MAPS, config_map("a"))
        await api.patch(CONFIG_MAPS, "a", {"data": {"b": "2"}})
        stale = {"metadata": {"resourceVersion": made["metadata"]["resourceVersion"]}, "data": {"b": "2"}}
        with pytest.raises(errors.Conflict):
            await api.patch(CONFIG_MAPS, "a", stale)

    async def test_the_uid_of_an_earlier_object_of_that_name(self, api: Caller) -> None:
        first = await api.create(LOCAL_QUEUES, local_queue("a"))
        await api.delete(LOCAL_QUEUES, "a")
        second = await api.create(LOCAL_QUEUES, local_queue("a"))
        assert first["metadata"]["uid"] != second["metadata"]["uid"]
        guard = {"uid": first["metadata"]["uid"], "resourceVersion": first["metadata"]["resourceVersion"]}
        patch = {"metadata": guard, "status": {"pendingWorkloads": 1}}
        with pytest.raises(errors.Conflict):
            await api.patch(LOCAL_QUEUES, "a", patch, subresource="status")
        with pytest.raises(errors.Conflict):
            await api.patch(LOCAL_QUEUES, "a", patch)

    async def test_a_foreign_uid_alone(self, api: Caller) -> None:
        """It is no precondition by itself: a patch is invalid, and the status of a custom object is written all the same."""
        made = await api.create(LOCAL_QUEUES, local_queue("a"))
        patch = {"metadata": {"uid": "foreign"}, "status": {"pendingWorkloads": 1}}
        with pytest.raises(errors.Invalid):
            await api.patch(LOCAL_QUEUES, "a", patch)
        patched = await api.patch(LOCAL_QUEUES, "a", patch, subresource="status")
        assert patched["status"] == {"pendingWorkloads": 1}
        assert patched["metadata"]["uid"] == made["metadata"]["uid"]
        patched["metadata"]["uid"] = "foreign"
        with pytest.raises(errors.Conflict):
            await api.put(LOCAL_QUEUES, "a", patched)

    async def test_status_and_the_rest_are_written_apart(self, api: Caller) -> None:
        await api.create(LOCAL_QUEUES, local_queue("a"))
        both = {"metadata": {"labels": {"x": "y"}}, "spec": {"stopPolicy": "Hold"}, "status": {"pendingWorkloads": 1}}
        patched = await api.patch(LOCAL_QUEUES, "a", both, subresource="status")
        assert patched["status"] == {"pendingWorkloads": 1}
        assert patched["metadata"]["generation"] == 1
        assert "labels" not in patched["metadata"]
        assert patched["spec"]["stopPolicy"] == "None"
        both["status"] = {"pendingWorkloads": 2}
        patched = await api.patch(LOCAL_QUEUES, "a", both)
        assert patched["status"] == {"pendingWorkloads": 1}
        assert patched["metadata"]["generation"] == 2
        assert patched["metadata"]["labels"] == {"x": "y"}
        assert patched["spec"]["stopPolicy"] == "Hold"

    async def test_the_generation_does_not_count_metadata(self, api: Caller) -> None:
        await api.create(LOCAL_QUEUES, local_queue("a"))
        patched = await api.patch(LOCAL_QUEUES, "a", {"metadata": {"annotations": {"x": "y"}}})
        assert patched["metadata"]["generation"] == 1

    async def test_a_status_patch_may_change_the_metadata_of_a_job(self, api: Caller) -> None:
        await api.create(JOBS, job("a"))
        patch = {"metadata": {"annotations": {"x": "y"}}, "spec": {"parallelism": 5}, "status": {"ready": 0}}
        patched = await api.patch(JOBS, "a", patch, subresource="status")
        assert patched["metadata"]["annotations"]["x"] == "y"
        assert patched["spec"]["parallelism"] == 1

    async def test_a_kind_without_the_status_subresource(self, api: Caller) -> None:
        name = f"flavor-{api.namespace}"
        document = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": name}}
        await api.create(RESOURCE_FLAVORS, document)
        with pytest.raises(errors.NotFound):
            await api.patch(RESOURCE_FLAVORS, name, {"status": {}}, subresource="status")
        await api.delete(RESOURCE_FLAVORS, name)

    async def test_what_no_patch_changes(self, api: Caller) -> None:
        made = await api.create(LOCAL_QUEUES, local_queue("a"))
        metadata = {
            "creationTimestamp": "2020-01-01T00:00:00Z",
            "generation": 9,
            "annotations": {"x": "y"},
        }
        patched = await api.patch(LOCAL_QUEUES, "a", {"metadata": metadata})
        for field in ("creationTimestamp", "generation", "uid"):
            assert patched["metadata"][field] == made["metadata"][field]
        with pytest.raises(errors.Invalid, match="immutable"):
            await api.patch(LOCAL_QUEUES, "a", {"metadata": {"deletionTimestamp": "2020-01-01T00:00:00Z"}})

    async def test_nobody_can_be_renamed(self, api: Caller) -> None:
        await api.create(CONFIG_MAPS, config_map("a"))
        with pytest.raises(errors.Refused) as caught:
            await api.patch(CONFIG_MAPS, "a", {"metadata": {"name": "b"}})
        assert caught.value.status == 400

    async def test_what_is_not_there(self, api: Caller) -> None:
        for subresource in ("", "status"):
            with pytest.raises(errors.NotFound):
                await api.patch(LOCAL_QUEUES, "a", {}, subresource=subresource)

    async def test_a_json_patch(self, api: Caller) -> None:
        document = config_map("a", finalizers=["a.b/c", "a.b/d"], annotations={"a.b/x": "1"})
        await api.create(CONFIG_MAPS, document)
        operations = [
            {"op": "test", "path": "/metadata/finalizers/1", "value": "a.b/d"},
            {"op": "remove", "path": "/metadata/finalizers/1"},
            {"op": "add", "path": "/metadata/finalizers/-", "value": "a.b/e"},
            {"op": "add", "path": "/metadata/annotations/a.b~1x", "value": "2"},
            {"op": "replace", "path": "/data/a", "value": "3"},
            {"op": "copy", "from": "/data/a", "path": "/data/b"},
            {"op": "move", "from": "/data/b", "path": "/data/c"},
        ]
        patched = await api.patch(CONFIG_MAPS, "a", operations, content_type=JSON_PATCH)
        assert patched["metadata"]["finalizers"] == ["a.b/c", "a.b/e"]
        assert patched["metadata"]["annotations"] == {"a.b/x": "2"}
        assert patched["data"] == {"a": "3", "c": "3"}
        await api.patch(CONFIG_MAPS, "a", {"metadata": {"finalizers": None}})

    async def test_a_json_patch_whose_test_fails(self, api: Caller) -> None:
        made = await api.create(CONFIG_MAPS, config_map("a"))
        for operation in (
            {"op": "test", "path": "/data/a", "value": "2"},
            {"op": "remove", "path": "/data/none"},
            {"op": "add", "path": "/none/a", "value": "2"},
        ):
            with pytest.raises(errors.Invalid):
                await api.patch(CONFIG_MAPS, "a", [operation], content_type=JSON_PATCH)
        assert version(await api.get(CONFIG_MAPS, "a")) == version(made)


class Putting:
    async def test_it_replaces_everything_but_the_identity(self, api: Caller) -> None:
        made = await api.create(CONFIG_MAPS, config_map("a", labels={"x": "y"}))
        put = await api.put(CONFIG_MAPS, "a", {"metadata": {"name": "a"}, "data": {"b": "2"}})
        assert put["data"] == {"b": "2"}
        assert "labels" not in put["metadata"]
        assert put["metadata"]["uid"] == made["metadata"]["uid"]
        assert put["metadata"]["creationTimestamp"] == made["metadata"]["creationTimestamp"]

    async def test_a_custom_object_has_to_name_its_version(self, api: Caller) -> None:
        made = await api.create(LOCAL_QUEUES, local_queue("a"))
        with pytest.raises(errors.Invalid):
            await api.put(LOCAL_QUEUES, "a", local_queue("a"))
        put = await api.put(LOCAL_QUEUES, "a", made)
        assert version(put) == version(made)
        await api.patch(LOCAL_QUEUES, "a", {"metadata": {"labels": {"x": "y"}}})
        with pytest.raises(errors.Conflict):
            await api.put(LOCAL_QUEUES, "a", made)

    async def test_a_lease_changes_hands_once(self, api: Caller) -> None:
        lease = {"metadata": {"name": "a"}, "spec": {"holderIdentity": "one", "leaseDurationSeconds": 3}}
        made = await api.create(LEASES, lease)
        claim = {
            "metadata": {"resourceVersion": made["metadata"]["resourceVersion"]},
            "spec": {"holderIdentity": "two"},
        }
        taken = await api.patch(LEASES, "a", claim)
        assert taken["spec"] == {"holderIdentity": "two", "leaseDurationSeconds": 3}
        claim["spec"] = {"holderIdentity": "three"}
        with pytest.raises(errors.Conflict):
            await api.patch(LEASES, "a", claim)
        assert "generation" not in taken["metadata"]


class DryRuns:
    async def test_everything_but_the_storing(self, api: Caller) -> None:
        client, namespace = api.client, api.namespace
        body = msgspec.json.encode(local_queue("a"))
        shown = msgspec.json.decode(await client.create(LOCAL_QUEUES, namespace, body, dry_run=True))
        assert shown["spec"]["stopPolicy"] == "None"
        assert not await api.exists(LOCAL_QUEUES, "a")
        made = await api.create(LOCAL_QUEUES, local_queue("a"))
        with pytest.raises(errors.AlreadyExists):
            await client.create(LOCAL_QUEUES, namespace, body, dry_run=True)
        patch = b'{"spec":{"stopPolicy":"Hold"}}'
        shown = msgspec.json.decode(await client.patch(LOCAL_QUEUES, namespace, "a", patch, dry_run=True))
        assert shown["spec"]["stopPolicy"] == "Hold"
        with pytest.raises(errors.Invalid):
            await client.patch(LOCAL_QUEUES, namespace, "a", b'{"spec":{"clusterQueue":"other"}}', dry_run=True)
        await client.delete(LOCAL_QUEUES, namespace, "a", dry_run=True)
        assert await api.get(LOCAL_QUEUES, "a") == made
        await api.patch(LOCAL_QUEUES, "a", {"metadata": {"finalizers": ["a.b/c"]}})
        await client.delete(LOCAL_QUEUES, namespace, "a", dry_run=True)
        assert "deletionTimestamp" not in (await api.get(LOCAL_QUEUES, "a"))["metadata"]
        await api.patch(LOCAL_QUEUES, "a", {"metadata": {"finalizers": None}})


class Applying:
    async def test_it_creates_takes_over_and_gives_up(self, api: Caller) -> None:
        document = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "a", "labels": {"x": "1"}},
            "data": {"a": "1", "b": "1"},
        }
        made = await api.apply(CONFIG_MAPS, "a", document, manager="one")
        assert made["data"] == {"a": "1", "b": "1"}
        await api.patch(CONFIG_MAPS, "a", {"data": {"b": "2", "c": "2"}})
        document["data"] = {"b": "3"}
        applied = await api.apply(CONFIG_MAPS, "a", document, manager="one")
        assert applied["data"] == {"b": "3", "c": "2"}
        assert applied["metadata"]["uid"] == made["metadata"]["uid"]
        again = await api.apply(CONFIG_MAPS, "a", document, manager="one")
        assert version(again) == version(applied)


class Rules:
    async def test_a_local_queue_keeps_its_cluster_queue(self, api: Caller) -> None:
        await api.create(LOCAL_QUEUES, local_queue("a"))
        with pytest.raises(errors.Invalid, match="immutable"):
            await api.patch(LOCAL_QUEUES, "a", {"spec": {"clusterQueue": "other"}})

    async def test_a_workload_with_quota_keeps_its_queue(self, api: Caller) -> None:
        await api.create(WORKLOADS, workload("a"))
        await api.patch(WORKLOADS, "a", {"spec": {"queueName": "second"}})
        await api.patch(WORKLOADS, "a", {"status": {"conditions": [condition("QuotaReserved")]}}, subresource="status")
        with pytest.raises(errors.Invalid, match="queueName"):
            await api.patch(WORKLOADS, "a", {"spec": {"queueName": "third"}})
        reference = {"group": "scheduling.k8s.io", "kind": "PriorityClass", "name": "p"}
        with pytest.raises(errors.Invalid, match="priorityClassRef"):
            await api.patch(WORKLOADS, "a", {"spec": {"priorityClassRef": reference}})
        lost = {"status": {"conditions": [condition("QuotaReserved", "False")]}}
        await api.patch(WORKLOADS, "a", lost, subresource="status")
        assert (await api.patch(WORKLOADS, "a", {"spec": {"queueName": "third"}}))["spec"]["queueName"] == "third"

    async def test_assignments_are_as_many_as_pod_sets(self, api: Caller) -> None:
        await api.create(WORKLOADS, workload("a"))
        admission = {"clusterQueue": "cq", "podSetAssignments": []}
        reserved = {"status": {"admission": admission, "conditions": [condition("QuotaReserved")]}}
        with pytest.raises(errors.Invalid):
            await api.patch(WORKLOADS, "a", reserved, subresource="status")

    async def test_a_suspended_job_may_be_told_where_to_run(self, api: Caller) -> None:
        await api.create(JOBS, job("a"))
        template: dict[str, object] = {"spec": {"nodeSelector": {"pool": "spot"}}, "metadata": {"labels": {"x": "y"}}}
        patched = await api.patch(JOBS, "a", {"spec": {"template": template}})
        assert patched["spec"]["template"]["spec"]["nodeSelector"] == {"pool": "spot"}
        assert patched["metadata"]["generation"] == 2
        with pytest.raises(errors.Invalid, match=r"spec\.template: Invalid value"):
            await api.patch(JOBS, "a", {"spec": {"template": {"spec": {"terminationGracePeriodSeconds": 5}}}})
        with pytest.raises(errors.Invalid, match=r"spec\.completions: Invalid value"):
            await api.patch(JOBS, "a", {"spec": {"completions": 3}})
        assert (await api.patch(JOBS, "a", {"spec": {"parallelism": 2}}))["spec"]["parallelism"] == 2

    async def test_a_job_that_runs_keeps_its_template(self, api: Caller) -> None:
        await api.create(JOBS, job("a"))
        template = {"spec": {"nodeSelector": {"pool": "spot"}}}
        patched = await api.patch(JOBS, "a", {"spec": {"suspend": False, "template": template}})
        assert patched["spec"]["suspend"] is False
        with pytest.raises(errors.Invalid, match=r"spec\.template: Invalid value"):
            await api.patch(JOBS, "a", {"spec": {"template": {"spec": {"nodeSelector": None}}}})
