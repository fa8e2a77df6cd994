"""Scenarios from seeds: a cluster of a few queues, and users who fill it in one of several ways.

`mixed` draws the shape of the cluster, who runs beside the one instance of each service, one or two kinds of load and the trouble that goes with them.
What the queues hold together is small, so that most workloads wait, and everything that is asked for could be done within a minute.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from shared.api import names
from tests.integration.stack.manifests import API, cluster_queue, cohort, flavor, job, local_queue, priority_class
from tests.simulation import faults
from tests.simulation.scenario import CHECK, NAMESPACES, PROVISIONING, SERVICES, Manifest, Scenario, Step

WORKLOADS = 200
TOGETHER = 5
"""How many are asked for in one moment."""
THIRSTY, MEANWHILE = 4, 20
"""How many come for a queue without quota, and for another one meanwhile."""
DROUGHT_S = 8.0
COHORTS = ("north", "south")
PRIORITIES = {"low": 10, "high": 100}


class Cluster:
    """The queues of one seed: names, and the LocalQueues that lead to them."""

    def __init__(self, draw: Random) -> None:
        self.draw = draw
        self.flavors = ("spot", "reserved")[: draw.choice((1, 1, 2))]
        self.queues = tuple(f"cq{i}" for i in range(draw.choice((2, 3, 4))))
        self.quota = {name: draw.randrange(3, 9) for name in self.queues}
        self.local = tuple((namespace, f"lq-{name}") for name in self.queues for namespace in NAMESPACES[:1])
        self.local += ((NAMESPACES[1], f"lq-{self.queues[0]}"),)
        self.checked = draw.choice((None, None, self.queues[-1]))
        self.check = draw.choice((CHECK, CHECK, PROVISIONING))
        self.parent = draw.random() < 0.3
        self.lending = draw.random() < 0.3

    def of_local(self, local: str) -> str:
        """The ClusterQueue that this LocalQueue belongs to."""
        return local.removeprefix("lq-")

    def setup(self) -> Iterator[Manifest]:
        """All manifests, in an order in which they can be created."""
        yield from (flavor(name) for name in self.flavors)
        yield from (priority_class(name, value) for name, value in PRIORITIES.items())
        yield _check(CHECK, "example.com/approval")
        if self.checked and self.check == PROVISIONING:
            yield from _provisioning()
        if self.parent:
            yield cohort("world")
            for name in COHORTS:
                group = {"coveredResources": ["cpu"], "flavors": [_quota(self.flavors[0], "2")]}
                yield cohort(name, "world", resourceGroups=[group])
        for name in self.queues:
            yield self.cluster_queue(name)
        for namespace, name in self.local:
            yield local_queue(name, namespace, self.of_local(name))

    def cluster_queue(self, name: str) -> Manifest:
        """A ClusterQueue as it is at first."""
        draw = self.draw
        whole = cluster_queue(name, str(self.quota[name]), flavors=self.flavors, cohortName=draw.choice(COHORTS))
        spec = whole["spec"]
        spec["queueingStrategy"] = draw.choice(("BestEffortFIFO", "BestEffortFIFO", "StrictFIFO"))
        spec["preemption"] = {
            "withinClusterQueue": draw.choice(("Never", "LowerPriority", "LowerPriority", "LowerOrNewerEqualPriority")),
            "reclaimWithinCohort": draw.choice(("Never", "LowerPriority", "Any")),
        }
        resource = spec["resourceGroups"][0]["flavors"][0]["resources"][0]
        if draw.random() < 0.3:
            resource["borrowingLimit"] = str(draw.randrange(0, 4))
        if self.lending:
            resource["lendingLimit"] = str(draw.randrange(1, 4))
        if name == self.checked:
            spec["admissionChecksStrategy"] = {"admissionChecks": [{"name": self.check}]}
        return whole


def _quota(flavor_: str, cpu: str) -> Manifest:
    return {"name": flavor_, "resources": [{"name": "cpu", "nominalQuota": cpu}]}


def _check(check: str, controller: str, **parameters: str) -> Manifest:
    spec: Manifest = {"controllerName": controller, **({"parameters": parameters} if parameters else {})}
    return {"apiVersion": API, "kind": "AdmissionCheck", "metadata": {"name": check}, "spec": spec}


def _provisioning() -> Iterator[Manifest]:
    yield {
        "apiVersion": API,
        "kind": "ProvisioningRequestConfig",
        "metadata": {"name": "autoscaler"},
        "spec": {
            "provisioningClassName": "check-capacity.autoscaling.x-k8s.io",
            "retryStrategy": {"backoffLimitCount": 2, "backoffBaseSeconds": 1, "backoffMaxSeconds": 2},
        },
    }
    yield _check(
        PROVISIONING,
        names.PROVISIONING_REQUEST_CONTROLLER,
        apiGroup=names.GROUP,
        kind="ProvisioningRequestConfig",
        name="autoscaler",
    )


class Load:
    """Collects the steps of users. `size` workloads in all."""

    def __init__(self, cluster: Cluster, draw: Random, active_s: float) -> None:
        self.cluster = cluster
        self.draw = draw
        self.active_s = active_s
        self.steps: list[Step] = []
        self.made = 0

    def at(self, when: float, do: str, *args: Any) -> None:
        """Add a step."""
        self.steps.append(Step(round(when, 3), do, args))

    def workload(self, when: float, *, high: bool = False, local: tuple[str, str] | None = None) -> str:
        """Ask for one more: mostly a Job, else a Workload that somebody brings along without a job."""
        draw = self.draw
        namespace, queue = local or draw.choice(self.cluster.local)
        # Few shapes: what is refused once is then refused for all of its kind, and the cycles are cheap.
        priority = "high" if high else ""
        cpu, pods = draw.choice((("1", 1), ("1", 1), ("2", 1), ("1", 2)))
        runs_s = round(draw.uniform(0.2, 1.2), 2)
        self.made += 1
        if draw.random() < 0.85:
            name = f"w{self.made:03}"
            self.at(when, "create_workload", namespace, name, queue, cpu, pods, PRIORITIES.get(priority, 0), runs_s)
            return f"{namespace}/{name}"
        name = f"j{self.made:03}"
        labels = {names.PRIORITY_CLASS_LABEL: priority} if priority else {}
        manifest = job(name, queue, cpu, pods=pods, labels=labels)
        manifest["metadata"]["namespace"] = namespace
        self.at(when, "create_job", manifest, runs_s)
        return f"{namespace}/{name}"

    def lives_end(self, share: float) -> None:
        """Some of them are deleted, at every point of their life."""
        created = [(step.at, step.do, step.args) for step in self.steps if step.do in ("create_job", "create_workload")]
        for at, do, args in created:
            if self.draw.random() >= share:
                continue
            key = _key(do, args)
            when = at + self.draw.choice((0.0, 0.0, 0.02, 0.05, 0.3, 1.0, 3.0)) * self.draw.uniform(0.5, 1.5)
            self.at(when, f"delete_{do.removeprefix('create_')}", key)

    def meddling(self, count: int) -> None:
        """Other writers touch the same objects."""
        draw = self.draw
        created = [(step.at, step.do, step.args) for step in self.steps if step.do in ("create_job", "create_workload")]
        for _ in range(count):
            at, do, args = draw.choice(created)
            key, kind = _key(do, args), do.removeprefix("create_")
            when = at + draw.uniform(0.0, 4.0)
            what = draw.choice(("annotate", "pause", "unsuspend", "foreign", "priority", "delete_workload_of"))
            if what == "pause":
                self.at(when, "set_active", kind, key, False)
                self.at(when + draw.uniform(0.05, 3.0), "set_active", kind, key, True)
            elif what == "annotate" or kind == "workload":
                self.at(when, "annotate", kind, key)
            elif what == "foreign":
                self.at(at + 0.001, "foreign_workload", key)
                self.at(at + draw.uniform(0.5, 4.0), "remove_foreign_workload", key)
            else:
                self.at(when, what, key)


def _key(do: str, args: tuple[Any, ...]) -> str:
    if do == "create_workload":
        return f"{args[0]}/{args[1]}"
    metadata = args[0]["metadata"]
    return f"{metadata['namespace']}/{metadata['name']}"


def steady(load: Load, count: int) -> None:
    """A few at a time, again and again."""
    for i in range(count):
        load.workload(1.0 + (load.active_s - 5.0) * (i // TOGETHER) / (count // TOGETHER))


def burst(load: Load, count: int) -> None:
    """Many at once, a few times."""
    bursts = sorted(load.draw.uniform(1.0, load.active_s * 0.6) for _ in range(load.draw.randrange(1, 4)))
    for i in range(count):
        load.workload(bursts[i % len(bursts)] + load.draw.randrange(5) / 10)


def storm(load: Load, count: int) -> None:
    """Full queues, then as many that are urgent."""
    for i in range(count - count // 3):
        load.workload(1.0 + load.active_s * 0.4 * (i // TOGETHER * TOGETHER) / count)
    for i in range(count // 3):
        load.workload(load.active_s * (0.15 + 0.6 * (i // TOGETHER * TOGETHER) * 3 / count), high=True)


def quota_edits(load: Load) -> None:
    """Quotas go up and down, some to nothing for a while."""
    for _ in range(load.draw.randrange(4, 12)):
        name = load.draw.choice(load.cluster.queues)
        load.at(load.draw.uniform(2.0, load.active_s - 2.0), "set_quota", name, load.draw.randrange(0, 12))
    for name in load.cluster.queues:
        load.at(load.active_s - 1.0, "set_quota", name, max(6, load.cluster.quota[name]))


def moves(load: Load) -> None:
    """Queues move between cohorts, leave them, and come back."""
    for _ in range(load.draw.randrange(4, 12)):
        name = load.draw.choice(load.cluster.queues)
        load.at(load.draw.uniform(2.0, load.active_s - 2.0), "move_queue", name, load.draw.choice((*COHORTS, "")))


def queue_deletion(load: Load) -> None:
    """Queues are stopped, drained, deleted and made again."""
    draw = load.draw
    for name in load.cluster.queues:
        when = draw.uniform(3.0, load.active_s - 8.0)
        match draw.choice(("hold", "drain", "delete", "local", "nothing")):
            case "hold":
                load.at(when, "stop_queue", name, "Hold")
                load.at(when + draw.uniform(0.5, 5.0), "stop_queue", name, "None")
            case "drain":
                load.at(when, "stop_queue", name, "HoldAndDrain")
                load.at(when + draw.uniform(0.5, 5.0), "stop_queue", name, "None")
            case "delete":
                load.at(when, "delete_queue", name)
                load.at(when + draw.uniform(0.5, 5.0), "create_queue", load.cluster.cluster_queue(name))
            case "local":
                local = f"lq-{name}"
                load.at(when, "delete_local_queue", NAMESPACES[0], local)
                load.at(when + draw.uniform(0.5, 5.0), "create_queue", local_queue(local, NAMESPACES[0], name))
            case _:
                pass


def drought(load: Load, draw: Random, slots: list[str]) -> tuple[Step, ...]:
    """A queue on its own without any quota, until all its workloads are parked and none is left whose end could wake them; then one edit, which comes while
    the schedulers are busy with another queue and wait for slow answers. It comes when all other faults are over: nobody who starts anew would miss it.
    The faults that go with it."""
    name, other = draw.sample(load.cluster.queues, 2)
    again = load.active_s + draw.uniform(4.0, 6.0)
    load.at(load.active_s - draw.uniform(0.0, 2.0), "on_its_own", name, 0)
    load.at(again, "on_its_own", name, max(6, load.cluster.quota[name]))
    for i in range(THIRSTY):
        load.workload(load.active_s + 0.1 * i, local=(NAMESPACES[0], f"lq-{name}"))
    for i in range(MEANWHILE):
        load.workload(again - 1.0 + 2.0 * i / MEANWHILE, local=(NAMESPACES[0], f"lq-{other}"))
    schedulers = [slot for slot in slots if slot.startswith("scheduler")]
    return tuple(Step(round(again - 1.0, 3), "slow_link", (slot, "bus", 0.4, 2.5)) for slot in schedulers)


LOADS: dict[str, Callable[[Load, int], None]] = {"steady": steady, "burst": burst, "storm": storm}
TROUBLES: dict[str, Callable[[Load], None]] = {
    "quota edits": quota_edits,
    "moves": moves,
    "queue deletion": queue_deletion,
}


def mixed(seed: int) -> Scenario:
    """The scenario of a seed."""
    draw = Random(f"scenario {seed}")
    cluster = Cluster(draw)
    setup = tuple(cluster.setup())
    active_s = draw.choice((15.0, 20.0, 25.0))
    load = Load(cluster, draw, active_s)
    kind = draw.choice(tuple(LOADS))
    LOADS[kind](load, WORKLOADS)
    troubles = draw.sample(tuple(TROUBLES), draw.randrange(0, 3))
    for trouble in troubles:
        TROUBLES[trouble](load)
    load.lives_end(draw.choice((0.2, 0.4, 0.6)))
    load.meddling(draw.choice((0, 5, 20)))
    slots = [f"{service}-0" for service in SERVICES]
    slots += ["scheduler-1"] if "moves" in troubles or draw.random() < 0.4 else []
    slots += ["watcher-1"] if draw.random() < 0.35 else []
    slots += ["queue_manager-1"] if draw.random() < 0.1 else []
    slots += ["preemptor-1"] if draw.random() < 0.1 else []
    if not (cluster.checked and cluster.check == PROVISIONING):
        slots.remove("provisioning_request-0")
    plan = faults.plan(Random(f"faults {seed}"), active_s, tuple(slots))
    dry = Random(f"drought {seed}")
    if dry.random() < 0.4:
        plan += drought(load, dry, slots)
        troubles.append("drought")
        active_s += DROUGHT_S
    return Scenario(
        seed=seed,
        name=" + ".join([kind, *troubles]),
        setup=setup,
        load=tuple(sorted(load.steps, key=lambda step: step.at)),
        faults=tuple(sorted(plan, key=lambda step: step.at)),
        slots=tuple(slots),
        active_s=active_s,
        max_unsettled=draw.choice((512, 512, 8, 3)),
        fair_sharing=draw.random() < 0.2,
        slow_checks=draw.random() < 0.6,
        pods_ready=draw.random() < 0.15,
        public_events=draw.random() < 0.15,
    )
