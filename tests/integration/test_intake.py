"""The real watcher process on a real API server and a real NATS: objects reach OBJECTS, and stay right through everything that breaks.

It runs as its own ServiceAccount with exactly the shipped RBAC, so a missing permission fails here.
"""

import asyncio
import contextlib
import os
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import msgspec
import pytest
import pytest_asyncio

from devcluster.cluster import DevCluster
from devcluster.nats_server import NatsServer
from devcluster.options import ClusterOptions
from shared.bus.interface import CaughtUp, ObjectChanged, Reset
from shared.bus.nats_bus import NatsBus, connect
from shared.events import objects

REPOSITORY = Path(__file__).parents[2]
NAMESPACE = "kueue-system"
WITHIN_S = 30.0

pytestmark = pytest.mark.integration

SETUP = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: default}
spec: {nodeLabels: {pool: spot}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: cq}
spec:
  namespaceSelector: {}
  resourceGroups:
  - coveredResources: [cpu]
    flavors: [{name: default, resources: [{name: cpu, nominalQuota: 9}]}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: lq, namespace: default}
spec: {clusterQueue: cq}
"""


def flavor(name: str) -> str:
    return f"apiVersion: kueue.x-k8s.io/v1beta2\nkind: ResourceFlavor\nmetadata: {{name: {name}}}\n"


class Reader:
    """Another service's view: OBJECTS as a feed gives it, and the epochs it went through."""

    def __init__(self, bus: NatsBus) -> None:
        self._bus = bus
        self.objects: dict[str, objects.Object] = {}
        self.epochs: list[int] = []
        self.caught_up = False
        self.resets = 0

    async def run(self) -> None:
        kinds = [kind for kind in objects.KINDS if kind != "epoch"]
        async for items in self._bus.feed(kinds=kinds):
            for item in items:
                match item:
                    case Reset(epoch=epoch):
                        self.objects.clear()
                        self.epochs.append(epoch)
                        self.caught_up = False
                        self.resets += 1
                    case ObjectChanged(name=name, object=found):
                        self.objects[f"{name.kind}/{name.key}"] = found
                    case CaughtUp():
                        self.caught_up = True

    def holds(self, *keys: str) -> bool:
        return all(key in self.living() for key in keys)

    def living(self) -> dict[str, objects.Object]:
        return {key: found for key, found in self.objects.items() if not isinstance(found, objects.Tombstone)}

    @property
    def epoch(self) -> int:
        return self.epochs[-1] if self.epochs and self.caught_up else 0


class World:
    """A control plane, a NATS server, and the watcher that comes and goes."""

    def __init__(self, cluster: DevCluster, nats: NatsServer, folder: Path) -> None:
        self.cluster = cluster
        self.nats = nats
        self.folder = folder
        self.kubeconfig = ""
        self.starts = 0

    async def apply(self, text: str) -> None:
        await self.cluster.kubectl("apply", "-f", "-", stdin=text)

    @asynccontextmanager
    async def watcher(self, **settings: str) -> AsyncIterator["Watcher"]:
        self.starts += 1
        log = self.folder / f"watcher-{self.starts}.log"
        environment = {
            **os.environ,
            "SLUICE_NATS_URL": self.nats.url,
            "SLUICE_NATS_PASSWORD": self.nats.password("watcher"),
            "SLUICE_WATCHER_KUBECONFIG": self.kubeconfig,
            "SLUICE_WATCHER_CHECK_S": "0.5",
            **{f"SLUICE_WATCHER_{name.upper()}": value for name, value in settings.items()},
        }
        environment.pop("KUBECONFIG", None)
        with log.open("wb") as out:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "services.watcher", cwd=REPOSITORY, env=environment, stderr=out
            )
        watcher = Watcher(process, log)
        try:
            yield watcher
        finally:
            await watcher.stop()

    @asynccontextmanager
    async def reader(self) -> AsyncIterator[Reader]:
        bus = await connect("metrics", self.nats.url, "metrics", self.nats.password("metrics"))
        reader = Reader(bus)
        task = asyncio.create_task(reader.run())
        try:
            yield reader
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            await bus.close()


class Watcher:
    """One process of the service."""

    def __init__(self, process: Process, log: Path) -> None:
        self.process = process
        self.log = log

    async def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        if self.process.returncode is None:
            self.process.send_signal(number)
        return await asyncio.wait_for(self.process.wait(), WITHIN_S)

    def lines(self) -> list[Mapping[str, object]]:
        return [msgspec.json.decode(line) for line in self.log.read_bytes().splitlines() if line.startswith(b"{")]

    def said(self, text: str) -> bool:
        return any(text in str(line["message"]) for line in self.lines())

    async def readiness(self) -> tuple[int, str]:
        port = next(line["health_port"] for line in self.lines() if "health_port" in line)
        async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/readyz") as answer:
            return answer.status, await answer.text()


async def until(condition: Callable[[], bool], *watchers: Watcher) -> None:
    """Wait, bounded, until the condition holds; fails at once when a watcher died of an error."""
    async with asyncio.timeout(WITHIN_S):
        while True:
            if condition():
                return
            for watcher in watchers:
                assert watcher.process.returncode is None, watcher.log.read_text()[-5000:]
            await asyncio.sleep(0.05)


async def until_ready(watcher: Watcher) -> None:
    """Wait, bounded, until /readyz says so."""
    await until(lambda: watcher.said("started"), watcher)
    async with asyncio.timeout(WITHIN_S):
        while True:
            if await watcher.readiness() == (200, "ok\n"):
                return
            await asyncio.sleep(0.05)


@pytest_asyncio.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    options = ClusterOptions(nodes=(), with_controllers=False, with_scheduler=False, with_kwok=False)
    async with DevCluster(options) as cluster, NatsServer(tmp_path / "nats") as nats:
        made = World(cluster, nats, tmp_path)
        await cluster.kubectl("apply", "--server-side", "-k", str(REPOSITORY / "k8s" / "crds"))
        await cluster.kubectl("apply", "--server-side", "-k", str(REPOSITORY / "k8s" / "rbac"))
        await cluster.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")
        made.kubeconfig = str(await cluster.service_account_kubeconfig(NAMESPACE, "sluice-watcher"))
        yield made


async def test_objects_reach_the_bus_and_a_restart_of_the_api_server_loses_none(world: World) -> None:
    await world.apply(SETUP)
    # A restart takes about as long as the Lease; losing it (which ends the process) is not what this is about.
    async with world.watcher(lease_duration_s="30") as watcher, world.reader() as reader:
        await until(
            lambda: (
                reader.epoch == 1
                and reader.holds(
                    "resourceflavor/default", "clusterqueue/cq", "localqueue/default/lq", "namespace/default"
                )
            ),
            watcher,
        )
        queue = reader.living()["clusterqueue/cq"]
        assert isinstance(queue, objects.ClusterQueue)
        assert queue.groups[0].flavors[0].quotas == (objects.FlavorQuota("cpu", "9"),)
        await until_ready(watcher)

        world.cluster.kill("kube-apiserver")
        await until(lambda: watcher.said("cannot watch"), watcher)
        await world.cluster.restart("kube-apiserver")
        await world.apply(flavor("after-restart"))
        await until(lambda: reader.holds("resourceflavor/after-restart"), watcher)
        await world.cluster.kubectl("delete", "resourceflavor", "after-restart")
        await until(lambda: not reader.holds("resourceflavor/after-restart"), watcher)
        assert reader.epoch == 1
        assert await watcher.stop() == 0


async def test_deletes_while_the_watcher_is_down_become_tombstones_and_the_epoch_goes_on(world: World) -> None:
    await world.apply(flavor("stays") + "---\n" + flavor("goes"))
    async with world.reader() as reader:
        async with world.watcher() as watcher:
            await until(
                lambda: reader.epoch == 1 and reader.holds("resourceflavor/stays", "resourceflavor/goes"), watcher
            )
            await watcher.stop(signal.SIGKILL)
        await world.cluster.kubectl("delete", "resourceflavor", "goes")
        await world.apply(flavor("comes"))
        async with world.watcher() as watcher:
            await until(lambda: reader.holds("resourceflavor/stays", "resourceflavor/comes"), watcher)
            await until(lambda: isinstance(reader.objects["resourceflavor/goes"], objects.Tombstone), watcher)
            await until(lambda: watcher.said("epoch goes on"), watcher)
        assert (reader.epoch, reader.resets) == (1, 2), "the first Reset is of the time before any epoch"


async def test_a_malformed_object_gets_one_event_and_the_others_go_on(world: World) -> None:
    # The schema does not look into templates, so only the watcher can find this.
    await world.apply("""
apiVersion: kueue.x-k8s.io/v1beta2
kind: Workload
metadata: {name: bad, namespace: default}
spec: {queueName: lq, podSets: [{name: main, count: 1, template: {spec: {containers: none}}}]}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: Workload
metadata: {name: good, namespace: default}
spec: {queueName: lq, podSets: [{name: main, count: 1, template: {spec: {containers: [{name: c, resources: {requests: {cpu: 1}}}]}}}]}
""")
    async with world.watcher() as watcher, world.reader() as reader:
        await until(lambda: reader.epoch == 1 and reader.holds("workload/default/good"), watcher)
        assert not reader.holds("workload/default/bad")
        async with asyncio.timeout(WITHIN_S):
            while True:
                events = await world.cluster.kubectl(
                    "get", "events", "-n", "default", "--field-selector", "reason=Malformed", "-o", "name"
                )
                if events:
                    break
                await asyncio.sleep(0.1)
        assert len(events.split()) == 1
        assert len([line for line in watcher.lines() if "malformed Workload" in str(line["message"])]) == 1


async def test_a_wiped_nats_leads_to_a_new_epoch_with_everything_in_it(world: World) -> None:
    await world.apply(SETUP)
    async with world.watcher() as watcher, world.reader() as reader:
        await until(lambda: reader.epoch == 1 and reader.holds("clusterqueue/cq"), watcher)
        await world.nats.wipe()
        await until(lambda: reader.epoch == 2 and reader.holds("clusterqueue/cq", "localqueue/default/lq"), watcher)
        await world.apply(flavor("later"))
        await until(lambda: reader.holds("resourceflavor/later"), watcher)


async def test_a_standby_takes_over_and_goes_on(world: World) -> None:
    await world.apply(flavor("a"))
    async with world.reader() as reader, world.watcher() as first:
        await until(lambda: reader.epoch == 1 and reader.holds("resourceflavor/a"), first)
        async with world.watcher() as second:
            await until_ready(second)
            assert not second.said("active")
            await first.stop(signal.SIGKILL)
            await world.apply(flavor("b"))
            await until(lambda: reader.holds("resourceflavor/a", "resourceflavor/b"), second)
            assert second.said("active")
            assert reader.epoch == 1


async def test_a_bad_kubeconfig_is_one_clear_error(world: World) -> None:
    world.kubeconfig = "/no/such/kubeconfig"
    async with world.watcher() as watcher:
        assert await asyncio.wait_for(watcher.process.wait(), WITHIN_S) != 0
        assert watcher.said("kubeconfig /no/such/kubeconfig: no such file")
