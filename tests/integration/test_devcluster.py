"""The local control plane, whole: pods that run, fail and go as told, users with limited rights, parts that die."""

import asyncio
import json
import os
import signal
import socket
from pathlib import Path

import msgspec
import psutil
import pytest

from devcluster.audit import Write, count_writes
from devcluster.cluster import DevCluster
from devcluster.components import Ports
from devcluster.kubectl import KubectlError
from devcluster.options import ClusterOptions, NodeGroup, Taint
from devcluster.ports import free_ports
from devcluster.processes import ProcessDiedError

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="session")]

API_ONLY = ClusterOptions(with_controllers=False, with_scheduler=False, with_kwok=False)


def job(name: str, *, pods: int = 3, **annotations: str) -> str:
    """A Job as JSON; annotations are those of `sluice.dev/`, with underscores for dashes."""
    pod_annotations = {f"sluice.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
    container = {"name": "main", "image": "example.com/main", "resources": {"requests": {"cpu": "1"}}}
    template = {
        "metadata": {"annotations": pod_annotations},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }
    spec = {"parallelism": pods, "completions": pods, "backoffLimit": 0, "template": template}
    return json.dumps({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec})


async def create_job(cluster: DevCluster, name: str, *, pods: int = 3, **annotations: str) -> None:
    await cluster.kubectl("create", "-f", "-", stdin=job(name, pods=pods, **annotations))


async def wait(cluster: DevCluster, condition: str, *what: str) -> None:
    await cluster.kubectl("wait", f"--for={condition}", *what, "--timeout=30s")


async def read(cluster: DevCluster, path: str, *what: str) -> str:
    return await cluster.kubectl("get", *what, f"--output=jsonpath={path}")


async def test_a_job_runs_to_complete_through_all_parts(control_plane: DevCluster) -> None:
    await create_job(control_plane, "three-pods")
    await wait(control_plane, "condition=Complete", "job/three-pods")
    assert await read(control_plane, "{.status.succeeded}", "job/three-pods") == "3"
    pods = ("pods", "--selector=job-name=three-pods")
    assert await read(control_plane, "{.items[*].status.phase}", *pods) == "Succeeded Succeeded Succeeded"
    assert "" not in (await read(control_plane, "{range .items[*]}{.spec.nodeName} {end}", *pods)).split(" ")[:-1]


async def test_pods_run_as_long_as_their_annotation_says(control_plane: DevCluster) -> None:
    await create_job(control_plane, "two-seconds", pods=1, run_seconds="2")
    await wait(control_plane, "condition=Complete", "job/two-seconds")
    path = "{.items[0].status.containerStatuses[0].state.terminated}"
    ended = json.loads(await read(control_plane, path, "pods", "--selector=job-name=two-seconds"))
    # Whole seconds, as kubelets report them.
    ran = _seconds(ended["finishedAt"]) - _seconds(ended["startedAt"])
    assert 1 <= ran <= 4


async def test_a_pod_told_to_fail_fails_its_job(control_plane: DevCluster) -> None:
    await create_job(control_plane, "failing", fail="true")
    await wait(control_plane, "condition=Failed", "job/failing")
    reason = await read(control_plane, "{.status.conditions[?(@.type=='Failed')].reason}", "job/failing")
    assert reason == "BackoffLimitExceeded"


async def test_a_pod_that_runs_forever_goes_when_its_job_is_suspended(control_plane: DevCluster) -> None:
    await create_job(control_plane, "forever", run_seconds="forever")
    await wait(control_plane, "jsonpath={.status.ready}=3", "job/forever")
    await control_plane.kubectl("patch", "job/forever", "--type=merge", '--patch={"spec":{"suspend":true}}')
    await wait(control_plane, "delete", "pods", "--selector=job-name=forever")
    await wait(control_plane, "condition=Suspended", "job/forever")
    await wait(control_plane, "jsonpath={.status.terminating}=0", "job/forever")
    assert await read(control_plane, "{.status.active}", "job/forever") in ("", "0")
    await control_plane.kubectl("delete", "job/forever", "--cascade=foreground", "--timeout=30s")


async def test_a_pod_that_is_never_ready_stays_pending_and_can_be_deleted(control_plane: DevCluster) -> None:
    await create_job(control_plane, "unready", pods=1, ready_seconds="never")
    pods = ("pods", "--selector=job-name=unready")
    await wait(control_plane, "condition=PodScheduled", *pods)
    assert await read(control_plane, "{.items[*].status.phase}", *pods) == "Pending"
    await control_plane.kubectl("delete", "job/unready", "--cascade=foreground", "--timeout=30s")
    assert await read(control_plane, "{.items}", *pods) == "[]"


async def test_node_groups_become_nodes_with_resources_labels_and_taints(control_plane: DevCluster) -> None:
    group = NodeGroup(
        name="tainted", count=2, resources={"example.com/tpu": "4"}, labels={"zone": "a"}, taints=(Taint("tpu"),)
    )
    await control_plane.add_nodes(group)
    nodes = ("nodes", "--selector=zone=a")
    assert await read(control_plane, "{.items[*].metadata.name}", *nodes) == "tainted-0 tainted-1"
    assert await read(control_plane, r"{.items[*].status.allocatable.example\.com/tpu}", *nodes) == "4 4"
    assert await read(control_plane, "{.items[*].spec.taints[*].key}", *nodes) == "tpu tpu"
    await control_plane.kubectl("delete", *nodes)


async def test_a_service_account_may_do_what_its_role_says_and_no_more(control_plane: DevCluster) -> None:
    for command in (
        ("create", "namespace", "limited"),
        ("create", "serviceaccount", "reader", "--namespace=limited"),
        ("create", "role", "reader", "--namespace=limited", "--verb=get,list", "--resource=configmaps"),
        ("create", "rolebinding", "reader", "--namespace=limited", "--role=reader", "--serviceaccount=limited:reader"),
        ("create", "configmap", "seen", "--namespace=limited"),
    ):
        await control_plane.kubectl(*command)
    reader = await control_plane.service_account_kubeconfig("limited", "reader")
    # The kubeconfig's own namespace is the account's.
    assert "configmap/seen" in await control_plane.kubectl("get", "configmaps", "--output=name", kubeconfig=reader)
    for refused in (
        ("delete", "configmap", "seen"),
        ("get", "secrets"),
        ("get", "configmaps", "--namespace=default"),
    ):
        with pytest.raises(KubectlError, match=r'Forbidden.*"system:serviceaccount:limited:reader" cannot'):
            await control_plane.kubectl(*refused, kubeconfig=reader)


async def test_a_service_account_that_does_not_exist_gets_no_kubeconfig(control_plane: DevCluster) -> None:
    with pytest.raises(KubectlError, match="not found"):
        await control_plane.service_account_kubeconfig("default", "nobody")


async def test_any_user_can_be_given_a_certificate(control_plane: DevCluster) -> None:
    alice = control_plane.user_kubeconfig("alice@example.com", "dev")
    shown = await control_plane.kubectl("auth", "whoami", "--output=json", kubeconfig=alice)
    user = json.loads(shown)["status"]["userInfo"]
    assert user["username"] == "alice@example.com"
    assert "dev" in user["groups"]


async def test_the_audit_log_tells_who_wrote_what(control_plane: DevCluster) -> None:
    log = control_plane.audit_log
    assert log is not None
    write = Write("bob", "create", "configmaps")
    assert count_writes(log)[write] == 0
    bob = control_plane.user_kubeconfig("bob", "system:masters")
    for name in ("one", "two"):
        await control_plane.kubectl("create", "configmap", name, kubeconfig=bob)
    await control_plane.kubectl("get", "configmaps", kubeconfig=bob)
    assert count_writes(log)[write] == 2
    assert {found.verb for found in count_writes(log) if found.user == "bob"} == {"create"}


async def test_two_clusters_at_once_share_nothing() -> None:
    async with DevCluster(API_ONLY) as one, DevCluster(API_ONLY) as two:
        assert one.server != two.server
        await one.kubectl("create", "namespace", "only-in-one")
        await two.kubectl("create", "namespace", "only-in-two")
        assert "only-in-two" not in await one.kubectl("get", "namespaces")
        with pytest.raises(KubectlError):
            await one.kubectl("get", "namespaces", f"--server={two.server}")


@pytest.mark.parametrize("lost", ["etcd", "apiserver"])
async def test_a_port_that_was_taken_meanwhile_is_replaced(monkeypatch: pytest.MonkeyPatch, lost: str) -> None:
    index = Ports.__struct_fields__.index(lost)
    with socket.create_server(("127.0.0.1", 0)) as taker:
        taken = taker.getsockname()[1]
        chosen: list[list[int]] = []

        def choose(count: int) -> list[int]:
            ports = free_ports(count)
            if not chosen:
                ports[index] = taken
            chosen.append(ports)
            return ports

        monkeypatch.setattr("devcluster.cluster.free_ports", choose)
        async with DevCluster(API_ONLY) as cluster:
            assert len(chosen) == 2
            assert taken not in msgspec.structs.astuple(cluster.ports)
            assert await cluster.kubectl("get", "--raw", "/readyz") == "ok"


async def test_parts_can_be_killed_and_started_again_with_their_data() -> None:
    async with DevCluster(API_ONLY) as cluster:
        await cluster.kubectl("create", "namespace", "kept")
        for name in ("kube-apiserver", "etcd"):
            old = cluster.pids[name]
            cluster.kill(name, signal.SIGKILL)
            assert await asyncio.wait_for(cluster.first_exit(), 10) == name
            assert name not in cluster.pids
            await cluster.restart(name)
            assert cluster.pids[name] != old
        assert "kept" in await cluster.kubectl("get", "namespaces")


async def test_the_end_leaves_no_process_and_no_file() -> None:
    cluster = DevCluster(API_ONLY)
    await cluster.start()
    pids, folder = cluster.pids, cluster.data_dir
    assert sorted(pids) == ["etcd", "kube-apiserver"]
    await cluster.stop()
    assert [pid for pid in pids.values() if psutil.pid_exists(pid)] == []
    assert not folder.exists()


async def test_a_part_that_dies_at_start_is_told_with_the_end_of_its_log(tmp_path: Path) -> None:
    options = ClusterOptions(apiserver_flags=("--no-such-flag",), data_dir=tmp_path)
    with pytest.raises(ProcessDiedError, match=r"(?s)kube-apiserver ended with exit code 1.*no-such-flag"):
        await DevCluster(options).start()
    mine = psutil.Process(os.getpid()).children(recursive=True)
    assert [child for child in mine if str(tmp_path) in " ".join(child.cmdline())] == []


def _seconds(timestamp: str) -> int:
    hours, minutes, seconds = timestamp.rstrip("Z").partition("T")[2].split(":")
    return int(hours) * 3600 + int(minutes) * 60 + int(seconds)
