"""All services in one process: the production code of each, over a simulated API server and a simulated NATS, in virtual time.

A `Slot` is where one replica of a service runs: it can be killed at any point of any call, paused, cut off, given another clock, and comes back with its
memory lost. `World.run` takes one `Scenario` from its first object to rest, and hands back what broke, if anything did.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextvars import copy_context
from functools import lru_cache
from random import Random
from typing import Any
from unittest import mock

import msgspec
from opentelemetry.trace import NoOpTracer
from prometheus_client import CollectorRegistry

import services.preemptor.service as preemptor_service
import services.scheduler.__main__ as scheduler_main
import services.scheduler.metrics as scheduler_metrics
import services.watcher.service as watcher_service
from services.preemptor.service import serve as serve_preemptor
from services.preemptor.settings import PreemptorSettings
from services.provisioning_request.service import serve as serve_provisioning
from services.provisioning_request.settings import ProvisioningSettings
from services.queue_manager.service import serve as serve_queue_manager
from services.queue_manager.settings import QueueManagerSettings
from services.scheduler.service import Scheduler
from services.scheduler.settings import SchedulerSettings
from services.watcher import apply
from services.watcher.public_events import PublicEvents
from services.watcher.settings import WatcherSettings
from services.watcher.store import Change, Store
from services.webhook.handlers import Handler, Handlers
from services.webhook.known_objects import KINDS as WEBHOOK_KINDS
from services.webhook.known_objects import KnownObjects
from services.webhook.service import respond
from services.webhook.settings import WebhookSettings
from shared.bus.interface import Bus, CaughtUp
from shared.config.configuration import Configuration, Configured
from shared.config.settings import BaseSettings
from shared.events import decisions, objects, outcomes
from shared.kube.client import KubeClient
from shared.kube.lease import LeaseLost
from shared.kube.resources import (
    ADMISSION_CHECKS,
    CLUSTER_QUEUES,
    COHORTS,
    LOCAL_QUEUES,
    NAMESPACES,
    PROVISIONING_REQUEST_CONFIGS,
    RESOURCE_FLAVORS,
    WORKLOAD_PRIORITY_CLASSES,
)
from shared.runtime import collector
from shared.runtime.health import Health
from shared.runtime.service import Context
from shared.state import open_commands
from shared.testing.link import Link, Way
from shared.testing.simulated_api import Call, SimulatedApi, shipped_webhooks
from shared.testing.simulated_api import Fault as ApiFault
from shared.testing.simulated_bus import Fault as BusFault
from shared.testing.simulated_bus import Publish, SimulatedBroker
from shared.testing.virtual_time import CURRENT, Process, VirtualTimeLoop, machine, unheard
from tests.simulation import ending, faults
from tests.simulation.controllers import Controllers
from tests.simulation.invariants import NO_CRASH, Invariants, Violation
from tests.simulation.scenario import NAMESPACES as TEAMS
from tests.simulation.scenario import SYSTEM, Scenario, Step
from tests.simulation.story import Story
from tests.simulation.users import Users

GATEWAY_USER = "system:serviceaccount:kueue-system:sluice-watcher"
_RESOURCES = {
    resource.kind: resource
    for resource in (
        ADMISSION_CHECKS,
        CLUSTER_QUEUES,
        COHORTS,
        LOCAL_QUEUES,
        PROVISIONING_REQUEST_CONFIGS,
        RESOURCE_FLAVORS,
        WORKLOAD_PRIORITY_CLASSES,
    )
}
_CONFIGURED = {True: Configured(), False: Configured(configuration=Configuration(wait_for_pods_ready=None))}
REST_S = 240.0
"""How long after the last fault everything may take to come to rest: longer than the longest back-off of anything."""
_LOOK_S = 2.0
_LOOKS_AT_STATES = 20
STOP_S = 5.0


class Report(msgspec.Struct, frozen=True):
    """What became of a scenario. `digest` is the same for the same seed, whatever the machine."""

    scenario: Scenario
    violations: tuple[Violation, ...]
    faults: Counter[str]
    steps: int
    """Commits of the API server, messages that streams took, answers and batches of events that set out."""
    workloads: int
    seconds: float
    """Virtual ones."""
    digest: str
    story: tuple[str, ...] = ()
    admissions: int = 0
    evictions: int = 0
    processor_s: float = 0.0
    """Real seconds of one core."""


class SimulatedContext(Context[Any]):
    """A context whose clock is the slot's."""

    def __init__(self, slot: Slot, settings: BaseSettings, bus: Bus) -> None:
        configured = _CONFIGURED[slot.world.scenario.pods_ready]
        super().__init__(slot.service, settings, bus, slot.health, CollectorRegistry(), NoOpTracer(), configured)
        self._slot = slot

    def now(self) -> float:
        return self._slot.wall()


class Slot:
    """Where one replica runs; `start` begins a process, of which any number follow each other here."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.service = name.rpartition("-")[0]
        self.skew = 0.0
        """Seconds by which its clock is wrong."""
        self.starts = 0
        self.process: Process | None = None
        self.task: asyncio.Task[None] | None = None
        self.health = Health()
        self.api: Link | None = None
        self.bus: Link | None = None
        self.delays: dict[str, tuple[float, float]] = {"api": (0.001, 0.01), "bus": (0.0005, 0.008)}
        self.armed: tuple[str, str, float] | None = None
        """(way, part of what passes, seconds to stay away): at that passage it is killed."""
        self.store: Store | None = None
        self.scheduler: Scheduler | None = None
        self.reviews: dict[str, Handler] = {}

    def wall(self) -> float:
        """Seconds since the epoch by its clock."""
        return self.world.loop.wall() + self.skew

    @property
    def runs(self) -> bool:
        """Is there a process, paused or not?"""
        return self.process is not None

    def start(self) -> None:
        """A new process with nothing in its memory."""
        if self.process is not None:
            return
        self.starts += 1
        process = self.process = Process(f"{self.name}#{self.starts}")
        self.health = Health()
        self.store = self.scheduler = None
        self.reviews = {}
        self.api, self.bus = self._link("api"), self._link("bus")
        self.task = self.world.loop.spawn(process, self._main())
        self.task.add_done_callback(lambda task: self.world.ended(self, process, task), context=self.world.context)

    def _link(self, which: str) -> Link:
        return Link(
            Random(self.world.draw.getrandbits(64)),
            delay_s=self.delays[which],
            passing=lambda way, what: self.world.passing(self, way, what),
        )

    async def _main(self) -> None:
        world, service = self.world, self.service
        bus: Bus = world.broker.gateway(self.bus) if service == "watcher" else world.broker.bus(service, self.bus)
        settings, serve = world.wiring[service]
        if service == "watcher":
            settings = msgspec.structs.replace(settings, instance=f"{self.name}-{self.starts}")
        await serve(SimulatedContext(self, settings, bus))

    async def serve_webhook(self, ctx: Context[WebhookSettings]) -> None:
        """The webhook without its HTTPS: what it answers is asked for by the API server's hook."""
        client = self.client(timeout_s=ctx.settings.api_timeout_s)
        known = KnownObjects(client)
        self.reviews = Handlers(ctx.settings, known, client, ctx.configured).routes()
        async for items in ctx.bus.feed(kinds=WEBHOOK_KINDS):
            for item in items:
                known.apply(item)
                if isinstance(item, CaughtUp):
                    ctx.health.ready(True)

    def client(self, timeout_s: float) -> KubeClient:
        """A client of this process."""
        user = GATEWAY_USER if self.service == "watcher" else f"system:serviceaccount:{SYSTEM}:sluice-{self.service}"
        return self.world.api.client(self.api, user=user, timeout_s=timeout_s)

    def forget(self) -> None:
        """The process is gone."""
        process, self.process, self.task = self.process, None, None
        self.armed = None
        self.reviews = {}
        if process is None:
            return
        self.world.loop.kill_process(process)
        for link in (self.api, self.bus):
            if link is not None:
                link.kill()


Wiring = dict[str, tuple[BaseSettings, Callable[[Any], Coroutine[Any, Any, None]]]]


class World:
    """One run of one scenario."""

    def __init__(self, scenario: Scenario, loop: VirtualTimeLoop) -> None:
        self.scenario = scenario
        self.loop = loop
        self.context = copy_context()
        """That of the machine room: no process."""
        seed = scenario.seed
        self.draw = Random(f"world {seed}")
        self.api = SimulatedApi(loop.wall, Random(f"api {seed}"))
        self.broker = SimulatedBroker(loop.wall, Random(f"bus {seed}"))
        self.story = Story(loop.time)
        self.faults: Counter[str] = Counter()
        self.stored = 0
        self.passed = 0
        self.failed = asyncio.Event()
        self.wiring = self._wiring()
        self.slots = {name: Slot(self, name) for name in scenario.slots}
        self.users = Users(
            self.api,
            self.api.client(user="user"),
            Random(f"users {seed}"),
            lambda key, what: self.story.tell(key, what),
        )
        self.controllers = Controllers(
            self.api, self.users, Random(f"controllers {seed}"), loop.wall, slow_checks=scenario.slow_checks
        )
        self.invariants = Invariants(
            self.api,
            self.story,
            loop.time,
            gateway_user=GATEWAY_USER,
            max_unsettled=scenario.max_unsettled,
            pods_of=self.controllers.running,
        )
        self._api_faults: list[tuple[float, Callable[[Call], ApiFault | None]]] = []
        self._bus_faults: list[tuple[float, Callable[[Publish], BusFault | None]]] = []
        self._tasks: set[asyncio.Future[None]] = set()

    def _wiring(self) -> Wiring:
        scenario = self.scenario
        fair = scenario.fair_sharing
        watcher = WatcherSettings(
            manage_certificates=False, events_per_s=0.2, events_burst=1, status_per_s=5.0, status_burst=5
        )
        scheduler = SchedulerSettings(
            # Wall clock time means nothing here: how much a batch holds is bounded by its size.
            cycle_budget_s=1e9,
            batch_decisions=16,
            max_unsettled=scenario.max_unsettled,
            fair_sharing=fair,
            retry_delay_s=0.25,
            reports_per_s=1.0,
            report_burst=5,
        )
        return {
            "watcher": (watcher, watcher_service.serve),
            "scheduler": (scheduler, scheduler_main.serve),
            "queue_manager": (QueueManagerSettings(fair_sharing=fair, status_interval_s=5.0), serve_queue_manager),
            "preemptor": (PreemptorSettings(victim_timeout_s=10.0), serve_preemptor),
            "provisioning_request": (ProvisioningSettings(), serve_provisioning),
            "webhook": (WebhookSettings(), lambda ctx: self.current().serve_webhook(ctx)),
        }

    # --- a run -----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until everything is at rest, or a promise is broken."""
        self._connect()
        self._set_up()
        for slot in self.slots.values():
            slot.start()
        for step in self.scenario.load:
            self._at(step.at, self._act, step)
        for step in self.scenario.faults:
            self._at(step.at, faults.inflict, self, step)
        await self._failure(self.scenario.active_s)
        self._heal()
        deadline = self.loop.time() + REST_S
        while not self.failed.is_set():
            unfinished = ending.unfinished(self)
            if not unfinished:
                break
            if self.loop.time() > deadline:
                for name, why, keys in unfinished[:3]:
                    self.invariants.violated(name, why, *keys)
                break
            await self._failure(_LOOK_S)
        for _ in range(_LOOKS_AT_STATES):
            if self.failed.is_set() or not ending.behind(self):
                break
            await self._failure(_LOOK_S)
        if not self.failed.is_set():
            ending.check_states(self)

    async def _failure(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.failed.wait()

    def _connect(self) -> None:
        self.api.subscribe(self.invariants.committed)
        self.api.subscribe(self.controllers.committed)
        self.api.subscribe(lambda _: self._look_for_failure())
        self.broker.subscribe(self._stored)
        self.api.fault = self._api_fault
        self.broker.fault = self._bus_fault
        self.api.webhooks += shipped_webhooks(self._review)

    def _stored(self, message: Any) -> None:
        self.stored += 1
        self.invariants.stored(message)
        self._look_for_failure()

    def _look_for_failure(self) -> None:
        if self.invariants.violations:
            self.failed.set()

    def _set_up(self) -> None:
        for name in (SYSTEM, *TEAMS):
            self.api.create(NAMESPACES, {"metadata": {"name": name}})
        for manifest in self.scenario.setup:
            if manifest["kind"] in ("ClusterQueue", "ResourceFlavor"):
                manifest["metadata"]["finalizers"] = ["kueue.x-k8s.io/resource-in-use"]
            self.api.create(_RESOURCES[manifest["kind"]], manifest)

    def _at(self, when: float, do: Callable[..., None], *args: Any) -> None:
        self.loop.call_at(when, do, *args, context=self.context)

    def later(self, seconds: float, do: Callable[..., None], *args: Any) -> None:
        """In the machine room, whoever asks."""
        self.loop.call_later(seconds, do, *args, context=self.context)

    def _act(self, step: Step) -> None:
        work: Coroutine[Any, Any, None] = getattr(self.users, step.do)(*step.args)
        task = self.loop.create_task(work, context=self.context.copy())
        self._tasks.add(task)
        task.add_done_callback(self._acted)

    def _acted(self, task: asyncio.Future[None]) -> None:
        self._tasks.discard(task)
        task.result()

    def _heal(self) -> None:
        """The active part is over: nothing is broken any more, everybody is there."""
        self.story.tell("", "everything is well from here on")
        self._api_faults.clear()
        self._bus_faults.clear()
        self.controllers.calm = True
        self.api.down = False
        self.broker.start()
        self.broker.resume()
        for slot in self.slots.values():
            slot.armed = None
            slot.skew = 0.0
            if slot.process is not None and slot.process.stopped:
                self.loop.continue_process(slot.process)
            for link in (slot.api, slot.bus):
                if link is not None and not link.dead:
                    link.mend()
            slot.start()

    # --- processes -------------------------------------------------------------------------------------------------

    def current(self) -> Slot:
        """The slot whose process runs right now."""
        process = CURRENT.get()
        return next(slot for slot in self.slots.values() if slot.process is process)

    def passing(self, slot: Slot, way: Way, what: str) -> None:
        """Something passes a link: the moment of an armed crash."""
        self.passed += way == "back"
        if slot.service == "watcher" and way == "there":
            self.invariants.sending(slot.store, what)
        if slot.armed is not None and slot.armed[0] == way and slot.armed[1] in what:
            away_s = slot.armed[2]
            self.counted("crash before" if way == "there" else "crash after")
            self.kill(slot.name, away_s)

    def arm_crash(self, name: str, way: str, what: str, away_s: float) -> None:
        """Kill it the next time that something like this passes."""
        self.slots[name].armed = (way, what, away_s)

    def kill(self, name: str, away_s: float) -> None:
        """SIGKILL, and a new process after a while."""
        slot = self.slots[name]
        self.story.tell("", "killed", name)
        slot.forget()
        self.later(away_s, slot.start)

    def terminate(self, name: str, away_s: float) -> None:
        """SIGTERM: it is cancelled and given time, as production does."""
        slot = self.slots[name]
        if slot.task is None or slot.process is None:
            return
        self.story.tell("", "told to end", name)
        process = slot.process
        slot.task.cancel()

        def gone() -> None:
            if slot.process is process:
                slot.forget()
                self.later(away_s, slot.start)

        self.later(STOP_S, gone)

    def pause(self, name: str, seconds: float) -> None:
        """SIGSTOP, then SIGCONT."""
        process = self.slots[name].process
        if process is None or process.stopped:
            return
        self.story.tell("", "stopped", name, f"for {seconds} s")
        self.loop.stop_process(process)
        self.later(seconds, self.loop.continue_process, process)

    def ended(self, slot: Slot, process: Process, task: asyncio.Task[None]) -> None:
        """A process ended by itself; whoever supervises it starts another."""
        if slot.process is not process:
            return
        error = None if task.cancelled() else task.exception()
        self.story.tell("", "ended", slot.name, repr(error) if error is not None else "")
        if error is not None and not isinstance(error, LeaseLost):
            self.invariants.violated(NO_CRASH, f"{slot.name} ended: {error!r}", slot.name)
            self.failed.set()
        slot.forget()
        self.later(self.draw.uniform(0.05, 1.0), slot.start)

    def stores(self) -> Iterable[Store]:
        """The watch copies of the gateways that run."""
        return (slot.store for slot in self.slots.values() if slot.store is not None and slot.runs)

    async def _review(self, path: str, body: bytes) -> bytes:
        for name in sorted(self.slots):
            slot = self.slots[name]
            handler = slot.reviews.get(path)
            process = slot.process
            if (
                slot.service != "webhook"
                or handler is None
                or process is None
                or process.stopped
                or not slot.health.is_ready
            ):
                continue
            if slot.armed is not None:
                self.counted(f"crash {'before' if slot.armed[0] == 'there' else 'after'}")
                self.kill(name, slot.armed[2])
                continue
            return await self.loop.spawn(process, respond(body, handler))
        raise ConnectionError("no webhook answers")

    # --- faults ----------------------------------------------------------------------------------------------------

    def counted(self, fault: str) -> None:
        """A fault has come about."""
        self.faults[fault] += 1
        self.story.tell("", f"fault: {fault}")

    def cut(self, name: str, which: str, down_s: float) -> None:
        """A connection breaks, and stays away for a while."""
        slot = self.slots[name]
        link = slot.api if which == "api" else slot.bus
        if link is None or link.dead:
            return
        link.cut(down=down_s > 0)
        if down_s > 0:
            self.later(down_s, link.mend)

    def slow(self, name: str, which: str, most_s: float, seconds: float) -> None:
        """A way that takes longer, and more unevenly, for a while."""
        slot = self.slots[name]
        link, usual = (slot.api if which == "api" else slot.bus), slot.delays[which]
        if link is None:
            return
        link.delay_s = (usual[0], most_s)

        def again() -> None:
            link.delay_s = usual

        self.later(seconds, again)

    def restart_api(self, seconds: float) -> None:
        """The API server is away for a while."""
        self.api.restart()
        self.api.down = True

        def again() -> None:
            self.api.down = False

        self.later(seconds, again)

    def restart_bus(self, seconds: float) -> None:
        """NATS is away for a while."""
        self.broker.stop()
        self.later(seconds, self.broker.start)

    def stall_bus(self, seconds: float) -> None:
        """NATS does nothing for a while."""
        self.broker.stall()
        self.later(seconds, self.broker.resume)

    def api_faults(self, fault: Callable[[Call], ApiFault | None], seconds: float) -> None:
        """Ask `fault` about calls of ours, for a while."""
        self._api_faults.append((self.loop.time() + seconds, fault))

    def bus_faults(self, fault: Callable[[Publish], BusFault | None], seconds: float) -> None:
        """Ask `fault` about publishes, for a while."""
        self._bus_faults.append((self.loop.time() + seconds, fault))

    def _api_fault(self, call: Call) -> ApiFault | None:
        if not self._api_faults or not call.user.startswith("system:serviceaccount:kueue-system"):
            return None
        now = self.loop.time()
        self._api_faults = [entry for entry in self._api_faults if entry[0] > now]
        return next((found for _, fault in self._api_faults if (found := fault(call)) is not None), None)

    def _bus_fault(self, publish: Publish) -> BusFault | None:
        if not self._bus_faults:
            return None
        now = self.loop.time()
        self._bus_faults = [entry for entry in self._bus_faults if entry[0] > now]
        return next((found for _, fault in self._bus_faults if (found := fault(publish)) is not None), None)


class _Uncounted:
    """In the place of a metric: nobody reads them here, and counting costs as much as the webhook."""

    def labels(self, *_: Any, **__: Any) -> _Uncounted:
        return self

    def inc(self, *_: Any) -> None: ...
    def set(self, *_: Any) -> None: ...
    def observe(self, *_: Any) -> None: ...
    def set_function(self, *_: Any) -> None: ...
    def clear(self) -> None: ...


_UNCOUNTED = _Uncounted()


def _metric(*_: Any, **__: Any) -> _Uncounted:
    return _UNCOUNTED


def _remembering(decode: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """What is decoded is immutable, so all readers of a message may share it."""
    return lru_cache(maxsize=1024)(decode)


def _untold(_: PublicEvents, __: Change) -> None:
    """The world is not told."""


@contextlib.contextmanager
def wired(world: World) -> Iterator[None]:
    """While it lasts, the services' ways out of the process lead into the world."""

    async def connect(*_: Any, timeout_s: float, **__: Any) -> KubeClient:
        return world.current().client(timeout_s)

    class SeenStore(Store):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            world.current().store = self

    class SeenScheduler(Scheduler):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, clock=world.loop.time, **kwargs)
            world.current().scheduler = self

    with contextlib.ExitStack() as patched:
        for module in (watcher_service, apply, open_commands, scheduler_metrics, preemptor_service):
            for name in ("Counter", "Gauge", "Histogram"):
                if hasattr(module, name):
                    patched.enter_context(mock.patch.object(module, name, _metric))
        for codec in (objects.codec, outcomes.codec, decisions.codec):
            patched.enter_context(mock.patch.object(codec, "decode", _remembering(codec.decode)))
        patched.enter_context(mock.patch.object(watcher_service, "connect", connect))
        patched.enter_context(mock.patch.object(watcher_service, "Store", SeenStore))
        patched.enter_context(mock.patch.object(scheduler_main, "Scheduler", SeenScheduler))
        patched.enter_context(mock.patch.object(collector, "expect_large_state"))
        patched.enter_context(mock.patch.object(collector, "state_is_loaded"))
        if not world.scenario.public_events:
            patched.enter_context(mock.patch.object(PublicEvents, "changed", _untold))
        yield


def simulate(scenario: Scenario, look: Callable[[World], None] = lambda world: None) -> Report:
    """Run a scenario; the same one gives the same report. `look` is shown the world at its end."""
    before = logging.root.manager.disable
    began = time.process_time()
    logging.disable(logging.CRITICAL)
    try:
        with unheard():
            report = _simulate(scenario, look)
        return msgspec.structs.replace(report, processor_s=time.process_time() - began)
    finally:
        logging.disable(before)


def _simulate(scenario: Scenario, look: Callable[[World], None]) -> Report:
    loop = VirtualTimeLoop(Random(f"loop {scenario.seed}"))
    asyncio.set_event_loop(loop)
    try:
        with machine(loop, scenario.seed):
            world = loop.run_until_complete(_run(scenario, loop))
            look(world)
            return _report(world)
    finally:
        loop.close()
        asyncio.set_event_loop(None)


async def _run(scenario: Scenario, loop: VirtualTimeLoop) -> World:
    world = World(scenario, loop)
    with wired(world):
        await world.run()
    return world


def _report(world: World) -> Report:
    found = tuple(world.invariants.violations)
    story: tuple[str, ...] = ()
    if found:
        story = tuple(world.story.lines(found[0].keys, until=found[0].at))
    return Report(
        scenario=world.scenario,
        violations=found,
        faults=world.faults,
        steps=len(world.api.history) + world.stored + world.passed,
        workloads=len(world.users.jobs) + len(world.users.workloads),
        seconds=world.loop.time(),
        digest=ending.digest(world),
        story=story,
        admissions=world.invariants.reservations,
        evictions=world.invariants.evictions,
    )
