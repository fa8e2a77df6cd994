"""Single operations of the engine at sizes that matter: a search for victims, a round of the tournament, memory of what waits.

Why it exists: whole runs hide a slow operation behind many fast ones.
"""

from __future__ import annotations

import gc
import resource
from dataclasses import replace
from time import process_time

import msgspec

from loadtest.engine_cluster import Cluster
from loadtest.engine_run import EPOCH
from loadtest.engine_shapes import FLAVOR, LARGE, START_S, pending_workload, queue_names, queue_objects
from shared.bus.interface import CaughtUp, ObjectChanged
from shared.decide.cycle import CycleSettings, run_cycle
from shared.decide.decisions import Preempt
from shared.decide.nomination import Entry, Nominator
from shared.decide.order import HeadOrder
from shared.decide.settings import FairSharing
from shared.decide.tournament import Tournament
from shared.events import objects as o
from shared.events.decisions import Positions
from shared.events.subjects import ObjectName
from shared.model.world import World
from shared.state.scheduling import SchedulerState

REPEATS = 5


def preemption_ms(candidates: int = 10_000, victims: int = 10) -> float:
    """A cycle whose one head has to take `victims` of `candidates` running workloads of lower priority; best of some runs."""
    return min(_preemption(candidates, victims) for _ in range(REPEATS))


def _preemption(candidates: int, victims: int) -> float:
    state, cluster = SchedulerState(), Cluster(EPOCH)
    for one in _one_queue(candidates):
        state.apply(cluster.put(_kind(one), one), START_S)
    for number in range(candidates):
        running = _running(pending_workload("q", f"low-{number}", {"cpu": "1"}, 0, START_S), number)
        state.apply(cluster.put("workload", running), START_S)
    head = pending_workload("q", "high", {"cpu": str(victims)}, 100, START_S)
    state.apply(cluster.put("workload", head), START_S)
    state.apply(CaughtUp(Positions(epoch=EPOCH)), START_S)
    state.world.flush_retries(START_S)
    started = process_time()
    outcome = run_cycle(state.world, START_S)
    spent = process_time() - started
    taken = sum(isinstance(decision, Preempt) for decision in outcome.decisions)
    if taken != victims:
        raise RuntimeError(f"{taken} workloads were preempted instead of {victims}")
    return spent * 1000


def _one_queue(cpu: int) -> tuple[o.Object, ...]:
    return (
        o.ResourceFlavor(name=FLAVOR, uid="uid-flavor", version=1),
        o.Namespace(name="q", uid="uid-ns", version=1),
        o.ClusterQueue(
            name="q",
            uid="uid-cq",
            version=1,
            groups=(o.ResourceGroup(("cpu",), (o.Flavor(FLAVOR, (o.FlavorQuota("cpu", str(cpu)),)),)),),
            namespace_selector=o.Selector(),
            within_cluster_queue="LowerPriority",
        ),
        o.LocalQueue(namespace="q", name="q", uid="uid-lq", version=1, cluster_queue="q"),
    )


def _running(workload: o.Workload, number: int) -> o.Workload:
    held = o.PodSetAssignment(name="main", count=1, flavors={"cpu": FLAVOR}, usage={"cpu": 1000})
    conditions = tuple(
        o.Condition(name, True, name, changed=START_S + number % 600) for name in ("QuotaReserved", "Admitted")
    )
    return msgspec.structs.replace(workload, admission=o.Admission("q", (held,)), conditions=conditions)


def _kind(one: o.Object) -> str:
    return next(kind for kind, type_ in o.KINDS.items() if type_ is type(one))


def tournament_ms() -> float:
    """The first round of a tournament among 1,000 ClusterQueues of 10 cohorts with one head each: all enter, one wins; best of some runs."""
    state, cluster = SchedulerState(), Cluster(EPOCH)
    for one in queue_objects(LARGE):
        state.apply(cluster.put(_kind(one), one), START_S)
    for number, queue in enumerate(queue_names(LARGE)):
        workload = pending_workload(queue, "head", {"cpu": str(1 + number % 20)}, 0, START_S)
        state.apply(cluster.put("workload", workload), START_S)
    world = state.world
    world.flush_retries(START_S)
    nominator = Nominator(world, CycleSettings(fair=FairSharing()))
    heads = [(name, info) for name in world.pending.ready() if (info := world.pending.pop(name)) is not None]
    entries = [nominator.nominate(world.cluster_queues[name], info) for name, info in heads]
    return min(_round(world, entries) for _ in range(REPEATS))


def _round(world: World, entries: list[Entry]) -> float:
    started = process_time()
    tournament: Tournament[Entry] = Tournament(world, HeadOrder())
    for entry in entries:
        tournament.add(entry, entry.info, entry.queue.name, entry.assignment.usage)
    winner = tournament.pop()
    spent = process_time() - started
    if winner is None:
        raise RuntimeError("nobody won")
    return spent * 1000


def pending_mb(count: int = 100_000) -> float:
    """Growth of this process by so many pending workloads, as they come decoded from the bus; to be run in a process of its own."""
    state = SchedulerState()
    shape = replace(LARGE, cohorts=1)
    position = 0
    for one in queue_objects(shape):
        position += 1
        state.apply(ObjectChanged(ObjectName(_kind(one), one.namespace, one.name), one, position), START_S)
    names = queue_names(shape)
    gc.collect()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for number in range(count):
        made = pending_workload(names[number % len(names)], f"job-{number}", {"cpu": str(1 + number % 50)}, 0, START_S)
        raw = o.codec.encode(made)
        workload = o.codec.decode(raw)
        position += 1
        name = ObjectName("workload", workload.namespace, workload.name)
        state.apply(ObjectChanged(name, workload, position), START_S)
    gc.collect()
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
