"""All services in one process: the production code of each, over a simulated API server and a simulated NATS, in virtual time.

Each replica runs in a `Slot`: it can be killed at any point of any call, paused, cut off, given another clock, and comes back with its memory lost.
`World.run` takes one `Scenario` from its first object to rest; what broke, if anything did, is in its `invariants`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from contextvars import copy_context
from random import Random
from typing import Any

from services.watcher.store import Store
from services.webhook.service import respond
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
from shared.testing.link import Way
from shared.testing.simulated_api import Call, SimulatedApi, shipped_webhooks
from shared.testing.simulated_api import Fault as ApiFault
from shared.testing.simulated_bus import Fault as BusFault
from shared.testing.simulated_bus import Publish, SimulatedBroker
from shared.testing.virtual_time import CURRENT, Process, VirtualTimeLoop
from tests.simulation import ending, faults
from tests.simulation.controllers import Controllers
from tests.simulation.invariants import NO_CRASH, Invariants
from tests.simulation.scenario import NAMESPACES as TEAMS
from tests.simulation.scenario import SYSTEM, Scenario, Step
from tests.simulation.slots import GATEWAY_USER, Slot
from tests.simulation.story import Story
from tests.simulation.users import Users
from tests.simulation.wiring import wiring

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
REST_S = 240.0
"""How long after the last fault everything may take to come to rest: longer than the longest back-off of anything."""
_LOOK_S = 2.0
_LOOKS_AT_STATES = 20
STOP_S = 5.0


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
        self.wiring = wiring(scenario, lambda ctx: self.current().serve_webhook(ctx))
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
