"""The shape `pod-groups`: 5,000 plain pods in groups of 50, submitted at once, until the last one has ended; what each of them costs, by the audit log.

1. A whole Sluice with the integration of pods, fake nodes, and quota for a tenth of the groups at a time.
2. All pods are created as fast as the API server takes them, group after group.
3. Over when every group's Workload has finished and no pod has a finalizer left.

Groups are admitted in the order in which their Workloads were made. The objects tell in whole seconds, so that is what can be checked: none is admitted
more than a second after one that was made later. The report is the common one.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
from rich.console import Console

from devcluster.audit import AuditEvent, read_events
from devcluster.options import ClusterOptions, NodeGroup
from devcluster.stack import NAMESPACE, Stack
from loadtest import report as reports
from loadtest.processes import ProcessUsage, busy_s
from loadtest.shape import Threshold
from loadtest.thresholds import check
from loadtest.writes import count_writes, resource_of
from shared.api import names
from shared.api.meta import parse_time
from shared.kube.client import KubeClient, connect
from shared.kube.resources import CLUSTER_QUEUES, LOCAL_QUEUES, PODS, RESOURCE_FLAVORS, WORKLOADS, Resource

NAME = "pod-groups"
PODS_IN_ALL = 5_000
SIZE = 50
"""Pods of a group."""
AT_ONCE = 10
"""Groups that there is quota for."""
CLIENTS = 20
RUN_SECONDS = "1"
QUEUE = "groups"
SPACE = "default"
GATEWAY = f"system:serviceaccount:{NAMESPACE}:sluice-watcher"
TIMEOUT_S = 420.0
LOOK_S = 1.0
THRESHOLDS = (
    Threshold(figure="unfinished", max=0),
    Threshold(figure="out_of_order", max=0),
    Threshold(figure="api_writes_per_pod", max=2),
    Threshold(figure="api_writes_per_group", max=6),
    Threshold(figure="peak_mib.watcher", max=381),
)
"""The last one is 400 MB."""


class _Meta(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    creation_timestamp: str = ""
    finalizers: tuple[str, ...] = ()


class _Condition(msgspec.Struct, frozen=True, rename="camel"):
    type: str
    status: str
    last_transition_time: str


class _Status(msgspec.Struct, frozen=True):
    conditions: tuple[_Condition, ...] = ()


class Seen(msgspec.Struct, frozen=True):
    """As much of a Workload or Pod as is looked at."""

    metadata: _Meta
    status: _Status = _Status()

    def since(self, type_: str) -> str:
        """When a condition became true (it sorts as text); empty if it is not."""
        found = (c for c in self.status.conditions if c.type == type_ and c.status == "True")
        return next((c.last_transition_time for c in found), "")


class _Page(msgspec.Struct, frozen=True):
    items: tuple[Seen, ...] = ()


_pages = msgspec.json.Decoder(_Page)


def pod(group: int, member: int, size: int) -> dict[str, Any]:
    """One pod of a group, as a user writes it."""
    container = {"name": "c", "image": "registry.k8s.io/pause:3.10", "resources": {"requests": {"cpu": "1"}}}
    annotations = {
        names.POD_GROUP_NAME: f"group-{group:03}",
        names.POD_GROUP_TOTAL_COUNT: str(size),
        "sluice.dev/run-seconds": RUN_SECONDS,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"group-{group:03}-{member:02}",
            "labels": {names.QUEUE_NAME_LABEL: QUEUE},
            "annotations": annotations,
        },
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }


def out_of_order(workloads: Iterable[Seen]) -> int:
    """Groups that were admitted more than a second after one whose Workload was made later. Those that were not admitted do not count."""
    admitted = [
        (_seconds(w.metadata.creation_timestamp), _seconds(at)) for w in workloads if (at := w.since("Admitted"))
    ]
    return sum(any(made < later and at > earlier + 1 for later, earlier in admitted) for made, at in admitted)


def _seconds(text: str) -> float:
    return parse_time(text).timestamp()


def costs(events: Iterable[AuditEvent], pods: int, groups: int) -> dict[str, float]:
    """The gateway's writes of pods and of Workloads, refused ones included: per pod, per group, and of the one that cost most."""
    written: dict[str, Counter[str]] = {"pods": Counter(), "workloads": Counter()}
    failed = 0
    for event in events:
        resource = resource_of(event).partition("/")[0]
        if event.user.username == GATEWAY and resource in written:
            written[resource][event.object_ref.name] += 1
            failed += event.response_status.code >= 400
    of_pods, of_groups = written["pods"], written["workloads"]
    return {
        "api_writes_per_pod": of_pods.total() / pods,
        "api_writes_per_pod.max": float(max(of_pods.values(), default=0)),
        "api_writes_per_group": of_groups.total() / groups,
        "api_writes_per_group.max": float(max(of_groups.values(), default=0)),
        "api_writes.failed": float(failed),
    }


@contextlib.asynccontextmanager
async def _stack(console: Console) -> AsyncIterator[Stack]:
    document = {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "integrations": {"frameworks": ["batch/job", "pod"]},
    }
    options = ClusterOptions(audit=True, nodes=(NodeGroup(name="node", count=4, cpu="1000", pods="10000"),))
    with TemporaryDirectory() as folder:
        file = Path(folder) / "configuration.yaml"
        file.write_text(json.dumps(document))
        settings = {"SLUICE_CONFIGURATION": str(file)}
        async with Stack(options, console=console, settings=settings, integrations=("pod",)) as stack:
            yield stack


async def _prepare(client: KubeClient, size: int) -> None:
    api = names.GROUP_VERSION
    quota = {"name": "cpu", "nominalQuota": str(AT_ONCE * size)}
    group = {"coveredResources": ["cpu"], "flavors": [{"name": QUEUE, "resources": [quota]}]}
    spec = {"namespaceSelector": {}, "queueingStrategy": "StrictFIFO", "resourceGroups": [group]}
    documents: dict[Resource, dict[str, Any]] = {
        RESOURCE_FLAVORS: {"apiVersion": api, "kind": "ResourceFlavor", "metadata": {"name": QUEUE}},
        CLUSTER_QUEUES: {"apiVersion": api, "kind": "ClusterQueue", "metadata": {"name": QUEUE}, "spec": spec},
        LOCAL_QUEUES: {
            "apiVersion": api,
            "kind": "LocalQueue",
            "metadata": {"name": QUEUE},
            "spec": {"clusterQueue": QUEUE},
        },
    }
    for resource, document in documents.items():
        await client.create(resource, SPACE if resource.namespaced else "", msgspec.json.encode(document))


async def _listed(client: KubeClient, resource: Resource) -> list[Seen]:
    found: list[Seen] = []
    async for body in client.pages(resource, SPACE):
        found += _pages.decode(body).items
    return found


async def _submit(client: KubeClient, groups: int, size: int) -> None:
    room = asyncio.Semaphore(CLIENTS)

    async def one(body: bytes) -> None:
        try:
            await client.create(PODS, SPACE, body)
        finally:
            room.release()

    async with asyncio.TaskGroup() as creating:
        for group in range(groups):
            for member in range(size):
                await room.acquire()
                creating.create_task(one(msgspec.json.encode(pod(group, member, size))))


async def _ended(client: KubeClient, groups: int, console: Console) -> None:
    """Returns when all have finished, and all pods may go."""
    told = -1
    while True:
        workloads = await _listed(client, WORKLOADS)
        finished = sum(bool(w.since("Finished")) for w in workloads)
        if finished != told:
            told = finished
            console.print(f"{len(workloads)} groups complete, {finished} of {groups} finished")
        if finished == groups and not any(p.metadata.finalizers for p in await _listed(client, PODS)):
            return
        await asyncio.sleep(LOOK_S)


async def measure(console: Console, *, pods: int = PODS_IN_ALL, size: int = SIZE) -> reports.Report:
    """Start everything, submit, wait, end everything. `pods`: rounded to whole groups, at least one."""
    groups = max(1, pods // size)
    problems: list[str] = []
    async with _stack(console) as stack:

        def pids() -> Mapping[str, int]:
            own = {name: s.process.pid for name, s in stack.services.items() if s.process.running}
            return {**stack.cluster.pids, **own, "load runner": os.getpid()}

        usage = ProcessUsage(pids, tree=tuple(stack.services))
        async with await connect(str(stack.cluster.kubeconfig), user_agent="sluice-loadtest", timeout_s=30.0) as client:
            await _prepare(client, size)
            load_before, busy_before = os.getloadavg()[0], busy_s()
            usage.look()
            began = time.time()
            sampling = asyncio.create_task(usage.run())
            submitted = began
            try:
                async with asyncio.timeout(TIMEOUT_S):
                    await _submit(client, groups, size)
                    submitted = time.time()
                    await _ended(client, groups, console)
            except TimeoutError:
                problems.append(f"not done after {TIMEOUT_S:g} s")
            finally:
                sampling.cancel()
            usage.look()
            wall_s = time.time() - began
            workloads = await _listed(client, WORKLOADS)
        log = stack.cluster.audit_log
        events = list(read_events(log)) if log is not None else []
        used = usage.usage()
    figures = {
        "wall_s": wall_s,
        "submitted_s": submitted - began,
        "groups": float(groups),
        "unfinished": float(groups - sum(bool(w.since("Finished")) for w in workloads)),
        "out_of_order": float(out_of_order(workloads)),
        **costs(events, groups * size, groups),
        **{f"cpu_s.{process.name}": process.cpu_s for process in used},
        **{f"peak_mib.{process.name}": process.peak_mib for process in used},
    }
    others = busy_s() - busy_before - sum(process.cpu_s for process in used)
    return reports.Report(
        shape=NAME,
        title=f"{groups * size:,} plain pods in groups of {size}, submitted at once",
        target="sluice",
        kind="Pod",
        items=groups * size,
        began=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(began)),
        machine=reports.machine(load_before, max(0.0, others / wall_s)),
        figures=figures,
        durations={},
        steps={},
        writes=count_writes(events, groups * size),
        writes_on_path={},
        processes=used,
        checks=check(figures, THRESHOLDS),
        problems=tuple(problems),
    )


async def run(arguments: argparse.Namespace, console: Console) -> int:
    """Measure, write the report, show it. Exit code: 1 if groups are unfinished, or with `--check` for a threshold that was missed."""
    report = await measure(console, pods=arguments.count or PODS_IN_ALL)
    _, as_text = reports.write(report)
    for one in report.checks:
        value = "missing" if one.value is None else f"{one.value:.2f}"
        console.print(f"{'[green]✓[/]' if one.met else '[red]✗[/]'} {one.figure}: {value}, {one.limit}")
    for problem in report.problems:
        console.print(problem, soft_wrap=True, markup=False)
    console.print(f"Report: {as_text}", soft_wrap=True)
    return 1 if report.problems or (arguments.check and not report.passed) else 0
