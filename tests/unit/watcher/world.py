"""The writing half of the gateway, running, between a bus and an API server in memory."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from opentelemetry.trace import NoOpTracer
from prometheus_client import CollectorRegistry

from services.watcher.apply import Gateway
from services.watcher.kinds import watched_kinds
from services.watcher.managed_jobs import JobSettings
from services.watcher.projections_workload import project_workload
from services.watcher.settings import WatcherSettings
from services.watcher.store import Change, Store
from services.watcher.workload_state import workload_of
from shared.events import cloudevents, commands, objects
from shared.events.decisions import Admit, Batch, Decision, Positions, Preempt
from shared.events.outcomes import CommandOutcome, DecisionOutcome
from shared.jobs.registry import grouped, integrated
from shared.testing.simulated_bus import DecodedBroker
from tests.unit.watcher.fake_api import FakeApi
from tests.unit.watcher.manifests import TIME, metadata, raw, template, workload
from tests.unit.watcher.moments import Clock

RESOURCES = {
    "workload": "workloads",
    "job": "jobs",
    "pod": "pods",
    "unmarkedpod": "pods",
    "statefulset": "statefulsets",
    "leaderworkerset.leaderworkerset.x-k8s.io": "leaderworkersets",
    "jobset.jobset.x-k8s.io": "jobsets",
    "namespace": "namespaces",
    "resourceflavor": "resourceflavors",
    "clusterqueue": "clusterqueues",
    "localqueue": "localqueues",
    "cohort": "cohorts",
    "admissioncheck": "admissionchecks",
    "workloadpriorityclass": "workloadpriorityclasses",
    "priorityclass": "priorityclasses",
    "provisioningrequest": "provisioningrequests",
    "podtemplate": "podtemplates",
}
WITHIN_S = 10.0


class World:
    def __init__(self, jobs: JobSettings | None = None) -> None:
        self.api = FakeApi()
        settings = jobs or JobSettings()
        self.store = Store(watched_kinds(integrated(settings.frameworks).values(), grouped(settings.serving)))
        self.broker = DecodedBroker()
        self.clock = Clock()
        self.let_run: list[tuple[str, bool]] = []
        """Workloads of pods whose gate was taken away, in order, and whether each is a group's."""
        self.gateway = Gateway(
            store=self.store,
            client=self.api.client,
            bus=self.broker.gateway(purge_grace_s=0),
            settings=WatcherSettings(instance="test", lane_workers=4, status_per_s=1e6, events_per_s=1e6, gather_s=0.0),
            tracer=NoOpTracer(),
            metrics=CollectorRegistry(),
            now=self.clock,
            jobs=jobs,
            gate_removed=lambda workload, is_group: self.let_run.append((workload.metadata.name, is_group)),
        )
        self.store.subscribe(self.gateway.changed)
        self.store.subscribe(self._publish)
        self.scheduler = self.broker.bus("scheduler")
        self.decided = 1
        """Entries of the log: EpochOpened is the first."""
        self._commands = 0

    def _publish(self, change: Change) -> None:
        subject = change.subject
        self.gateway.published(change.kind, subject.namespace, subject.name, change.version)

    def load(self, kind: str, document: dict[str, Any]) -> None:
        """An object that the watch delivers."""
        self.api.load(self.store, kind, RESOURCES[kind], document)

    def deliver(self, kind: str, name: str, namespace: str = "team") -> None:
        """The watch delivers what the API server has now; gone, if it has nothing."""
        found = self.api.objects.get((RESOURCES[kind], namespace, name))
        if found is None:
            self.api.version += 1
            self.store.remove(kind, namespace, name, version=self.api.version)
        else:
            self.store.upsert(kind, raw(found))

    def edit(self, kind: str, name: str, change: Callable[[dict[str, Any]], None], namespace: str = "team") -> None:
        """Somebody changes an object, and the watch delivers it."""
        document = json.loads(json.dumps(self.api.one(RESOURCES[kind], name, namespace)))
        change(document)
        self.load(kind, document)

    def projection(self, name: str = "w") -> objects.Workload:
        stored = self.store.get("workload", "team", name)
        assert stored is not None
        return project_workload(workload_of(stored), stored.raw)

    def workload(self, name: str = "w") -> dict[str, Any]:
        return self.api.one("workloads", name)

    def condition(self, type_: str, name: str = "w") -> tuple[str, str] | None:
        """(status, reason) of a condition of a workload."""
        conditions = self.workload(name).get("status", {}).get("conditions", [])
        return next(((c["status"], c["reason"]) for c in conditions if c["type"] == type_), None)

    def job(self, name: str = "j") -> dict[str, Any]:
        return self.api.one("jobs", name)

    def admit(self, name: str = "w", *, count: int = 3, checks: tuple[str, ...] = (), **changes: Any) -> Admit:
        """A decision about the present state of a workload."""
        found = self.projection(name)
        usage = {"cpu": 1000 * count}
        decision = Admit(
            key=found.key,
            uid=found.uid,
            incarnation=found.incarnation,
            cluster_queue="cq",
            pod_sets=(objects.PodSetAssignment(name="main", count=count, flavors={"cpu": "default"}, usage=usage),),
            required_checks=checks,
        )
        return msgspec.structs.replace(decision, **changes)

    def preempt(self, name: str = "w", **changes: Any) -> Preempt:
        """A decision to evict a workload for `team/p`, which is there."""
        if self.store.get("workload", "team", "p") is None:
            self.load("workload", workload("p"))
        found = self.projection(name)
        decision = Preempt(
            key=found.key,
            uid=found.uid,
            incarnation=found.incarnation,
            reason="InClusterQueue",
            message="Preempted to accommodate a workload (UID: uid-p, JobUID: j)",
            preemptor="team/p",
            preemptor_uid="uid-p",
            cluster_queue="cq",
            priority=1,
            preemptor_priority=5,
        )
        return msgspec.structs.replace(decision, **changes)

    async def append(self, *decisions: Decision) -> None:
        """Append a batch; returns when it was read."""
        positions = Positions(epoch=1, decisions=self.decided)
        await self.scheduler.append(Batch(author="test", positions=positions, decided_ns=1, decisions=decisions))
        self.decided += 1
        await self.until(lambda: self.gateway.applied == self.decided)

    async def decide(self, *decisions: Decision) -> None:
        """Append a batch and wait until everything it leads to is done."""
        await self.append(*decisions)
        await self.settled()

    async def command(self, command: commands.Command, writer: str = "queue_manager") -> CommandOutcome:
        """Ask for a command, and give its outcome."""
        self._commands += 1
        command = msgspec.structs.replace(command, id=f"c{self._commands}")
        await self.broker.bus(writer).command([command])
        await self.until(lambda: any(o.command == command.id for o in self.command_outcomes))
        await self.settled()
        return next(o for o in self.command_outcomes if o.command == command.id)

    @property
    def outcomes(self) -> list[DecisionOutcome]:
        return [s.outcome for s in self.broker.outcomes if isinstance(s.outcome, DecisionOutcome)]

    @property
    def command_outcomes(self) -> list[CommandOutcome]:
        return [s.outcome for s in self.broker.outcomes if isinstance(s.outcome, CommandOutcome)]

    def events(self, name: str = "") -> list[tuple[str, str]]:
        """(reason, note) of Kubernetes Events, of one object if named."""
        return [
            (e["reason"], e["note"]) for e in self.api.created("events") if not name or e["regarding"]["name"] == name
        ]

    def reasons(self, name: str = "") -> list[str]:
        return [reason for reason, _ in self.events(name)]

    def public(self) -> list[cloudevents.CloudEvent]:
        return [cloudevents.decode(data) for _, data in self.broker.events]

    async def until(self, look: Callable[[], bool]) -> None:
        async with asyncio.timeout(WITHIN_S):
            while not look():  # noqa: ASYNC110 - what is looked at has no event of its own
                await asyncio.sleep(0)

    async def settled(self) -> None:
        """Lanes have nothing left to do, and what they told is out."""
        async with asyncio.timeout(WITHIN_S):
            for _ in range(20):
                await self.gateway.idle()
                await asyncio.sleep(0)


@asynccontextmanager
async def running(
    jobs: JobSettings | None = None, before: Callable[[World], None] | None = None
) -> AsyncIterator[World]:
    """A world with the namespace `team`, the flavor `default`, an open epoch and an open gate; `before` fills it first."""
    world = World(jobs)
    world.load("namespace", {"metadata": metadata("team", labels={"kubernetes.io/metadata.name": "team"})})
    world.load(
        "resourceflavor",
        {
            "metadata": metadata("default"),
            "spec": {"nodeLabels": {"pool": "a"}, "tolerations": [{"key": "t", "operator": "Exists"}]},
        },
    )
    if before is not None:
        before(world)
    await world.broker.gateway().open_epoch(shard="0", epoch=1, objects_position=0, why="test")
    tasks = [
        asyncio.create_task(world.gateway.run()),
        asyncio.create_task(world.gateway.follow(shard="0", epoch=1)),
    ]
    world.gateway.resume()
    try:
        await world.settled()
        yield world
    finally:
        for task in tasks:
            if task.done() and not task.cancelled():
                task.result()
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def queued_pod(
    name: str, *, group: str = "", total: int = 0, role: str = "", at: str = TIME, phase: str = "Pending", **meta: Any
) -> dict[str, Any]:
    """A pod as the webhook leaves it: gated, marked, with our finalizer."""
    labels = {"kueue.x-k8s.io/queue-name": "lq", "kueue.x-k8s.io/managed": "true", **meta.pop("labels", {})}
    annotations = {"kueue.x-k8s.io/role-hash": role or "0a0a0a0a", **meta.pop("annotations", {})}
    if group:
        annotations |= {"kueue.x-k8s.io/pod-group-name": group, "kueue.x-k8s.io/pod-group-total-count": str(total)}
    found = metadata(name, namespace="team", labels=labels, annotations=annotations, **meta)
    gates = [{"name": "kueue.x-k8s.io/admission"}, {"name": "kueue.x-k8s.io/topology"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**found, "creationTimestamp": at, "finalizers": ["kueue.x-k8s.io/managed"]},
        "spec": {**template()["spec"], "schedulingGates": gates},
        "status": {"phase": phase},
    }


def queued_job(name: str = "j", *, suspend: bool = True, **meta: Any) -> dict[str, Any]:
    """A Job of three pods with a queue."""
    labels = {"kueue.x-k8s.io/queue-name": "lq", **meta.pop("labels", {})}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata(name, namespace="team", labels=labels, generation=1, **meta),
        "spec": {"suspend": suspend, "parallelism": 3, "completions": 3, "template": template()},
        "status": {},
    }
