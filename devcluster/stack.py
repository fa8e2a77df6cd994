"""The whole of Sluice on this machine: a control plane, NATS with the generated permissions, and every service as a process of its own.

The watcher and the webhook get tokens of the ServiceAccounts that `k8s/rbac` ships, the services the NATS users of the table: what is
missing there fails here. A service that ends is started again, as a kubelet would. More instances of a service can be added and removed while it runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import aiohttp
import msgspec
from rich.console import Console

from devcluster.cluster import DevCluster
from devcluster.nats_server import NatsServer
from devcluster.options import ClusterOptions
from devcluster.ports import free_ports
from devcluster.processes import Command, ManagedProcess

ROOT = Path(__file__).resolve().parent.parent
NAMESPACE = "kueue-system"
SERVICES = ("watcher", "webhook", "queue_manager", "scheduler", "preemptor", "provisioning_request", "metrics")
WITH_KUBERNETES = {"watcher": "sluice-watcher", "webhook": "sluice-webhook"}
"""Services that hold Kubernetes credentials, and their ServiceAccounts."""
READY_SECONDS = 30.0
RESTART_SECONDS = 0.2
PORTS_AT_ONCE = 32


class Service:
    """One process of a service, started again whenever it ends, until it is stopped. `name`: of this instance; `arguments`: of the interpreter."""

    def __init__(
        self, name: str, arguments: tuple[str, ...], environment: Mapping[str, str], log: Path, health_port: int
    ) -> None:
        self.name = name
        self.health_port = health_port
        self.starts = 0
        self.up = asyncio.Event()
        command = Command(name, Path(sys.executable), arguments, dict(environment))
        self.process = ManagedProcess(command, log)
        self._held = asyncio.Event()
        self._held.set()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start it and keep it running."""
        await self._start()
        self._task = asyncio.create_task(self._keep_running(), name=f"keep {self.name}")

    async def _keep_running(self) -> None:
        while True:
            await self.process.wait()
            await asyncio.sleep(RESTART_SECONDS)
            await self._held.wait()
            await self._start()

    async def _start(self) -> None:
        await self.process.start()
        self.starts += 1
        self.up.set()

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal that ends it to this very process."""
        self.up.clear()
        self.process.send(number)

    def freeze(self) -> None:
        """Stop it where it stands, until `thaw`."""
        self.process.send(signal.SIGSTOP)

    def thaw(self) -> None:
        """Undo `freeze`."""
        self.process.send(signal.SIGCONT)

    def hold(self) -> None:
        """Do not start it again until `release`."""
        self._held.clear()

    def release(self) -> None:
        """Undo `hold`."""
        self._held.set()

    async def stop(self) -> None:
        """End it for good."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        await self.process.stop(grace_seconds=6.0)


class Stack:
    """A running Sluice. `cluster`, `nats` and `services` (by the names of their instances) are its parts; `folder` keeps logs, credentials and data
    until `stop`."""

    def __init__(
        self,
        cluster: ClusterOptions | None = None,
        *,
        console: Console | None = None,
        settings: Mapping[str, str] | None = None,
        services: tuple[str, ...] = SERVICES,
        integrations: tuple[str, ...] = (),
    ) -> None:
        self._console = console if console is not None else Console(stderr=True, highlight=False)
        self._settings = dict(settings or {})
        self._names = services
        self._integrations = integrations
        self._temporary = tempfile.TemporaryDirectory(prefix="sluice-", ignore_cleanup_errors=True)
        self.folder = Path(self._temporary.name)
        options = cluster if cluster is not None else ClusterOptions()
        if options.data_dir is None:
            # One folder for everything, so that one removal leaves nothing.
            options = msgspec.structs.replace(options, data_dir=self.folder / "cluster")
        self.cluster = DevCluster(options, self._console)
        self.nats = NatsServer(self.folder / "nats")
        self.services: dict[str, Service] = {}
        self.webhook_port = 0
        """Where the API server calls admission; the first instance of the webhook listens there."""
        self._instances: Counter[str] = Counter()
        self._ports: list[int] = []

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Start everything; returns when every service is ready. Raises what DevCluster raises, and TimeoutError with the cause."""
        with self._step("control plane and NATS", usual=5):
            async with asyncio.TaskGroup() as group:
                group.create_task(self.cluster.start())
                group.create_task(self.nats.__aenter__())
        with self._step("CRDs, RBAC and webhook configuration", usual=3):
            await self.cluster.kubectl("apply", "--server-side", "-k", str(self._manifests()))
            await self.cluster.kubectl(
                "wait", "--for=condition=Established", "crd", "-l", "app.kubernetes.io/part-of=sluice"
            )
        with self._step("services", usual=4):
            self.webhook_port = self.free_port()
            for name in self._names:
                await self.add(name)
            await self.wait_ready()

    def _manifests(self) -> Path:
        """A kustomization of the base and the components of the integrations, which are folders of k8s/components/integrations."""
        k8s = ROOT / "k8s"
        if not self._integrations:
            return k8s / "local"
        made = self.folder.resolve() / "manifests"
        made.mkdir()

        def at(path: Path) -> str:
            return os.path.relpath(path, made)

        components = [at(k8s / "components" / "integrations" / name) for name in self._integrations]
        lists = {"resources": [at(k8s / "local")], "components": components}
        (made / "kustomization.yaml").write_text(msgspec.json.encode({"kind": "Kustomization", **lists}).decode())
        return made

    async def add(self, name: str) -> str:
        """One more instance of a service; returns the instance's name, before it is ready. The first is named like the service."""
        number = self._instances[name]
        self._instances[name] += 1
        instance = f"{name}-{number}" if number else name
        port = self.free_port()
        logs = self.folder / "logs"
        logs.mkdir(exist_ok=True)
        environment = await self.environment(name, instance, port)
        service = Service(instance, self.arguments(name), environment, logs / f"{instance}.log", port)
        self.services[instance] = service
        await service.start()
        return instance

    def instances(self, name: str) -> list[str]:
        """Names of the instances of a service that there are, the eldest first."""
        return [instance for instance in self.services if instance.partition("-")[0] == name]

    async def remove(self, instance: str, number: signal.Signals = signal.SIGTERM) -> None:
        """End an instance for good: in an orderly way, or by SIGKILL."""
        service = self.services.pop(instance)
        service.hold()
        if number == signal.SIGKILL:
            service.kill(number)
        await service.stop()

    async def stop(self) -> None:
        """End every process, the services first, and remove the folder."""
        async with asyncio.TaskGroup() as group:
            for service in self.services.values():
                group.create_task(service.stop())
        self.services = {}
        await self.nats.stop()
        await self.cluster.stop()
        self._temporary.cleanup()

    async def wait_ready(self, seconds: float = READY_SECONDS) -> None:
        """Return when every instance answers /readyz. Raises TimeoutError that says which does not, why, and the end of its log."""
        deadline = time.monotonic() + seconds
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=2)) as session:
            for service in list(self.services.values()):
                async for why in _readiness(session, service.health_port):
                    if not why:
                        break
                    if time.monotonic() > deadline:
                        raise TimeoutError(
                            f"{service.name} is not ready after {seconds:.0f} s: {why}\n{service.process.last_lines()}"
                        )

    async def restart(self, name: str, number: signal.Signals = signal.SIGKILL) -> None:
        """Kill a service and return when it runs again."""
        self.services[name].kill(number)
        await self.services[name].up.wait()

    @property
    def reader_url(self) -> str:
        """NATS address of the read-only user of public events, password included."""
        return self.url_of("events_reader")

    def url_of(self, user: str) -> str:
        """NATS address with the credentials of a user."""
        return self.nats.url.replace("nats://", f"nats://{user}:{self.nats.password(user)}@", 1)

    def free_port(self) -> int:
        """A port that this stack has not given out before. Several are looked for at once: one that is not listened on yet would be found again."""
        if not self._ports:
            self._ports = free_ports(PORTS_AT_ONCE)
        return self._ports.pop()

    def arguments(self, name: str) -> tuple[str, ...]:
        """What the interpreter is started with for an instance of this service."""
        return ("-m", f"services.{name}")

    async def environment(self, name: str, instance: str, port: int) -> dict[str, str]:
        """Of an instance of this service, which listens for health on `port`."""
        secret = self.folder / f"{name}.password"
        secret.touch(mode=0o600)
        secret.write_text(self.nats.password(name))
        own = f"SLUICE_{name.upper()}_"
        environment = {k: v for k, v in os.environ.items() if k in ("PATH", "HOME", "LANG", "TMPDIR")}
        environment |= {
            "PYTHONPATH": str(ROOT),
            "SLUICE_NATS_URL": self.nats.url,
            "SLUICE_NATS_PASSWORD_FILE": str(secret),
            "SLUICE_HEALTH_PORT": str(port),
            "SLUICE_TRACE_FILE": str(self.folder / f"spans-{instance}.jsonl"),
        }
        if name in WITH_KUBERNETES:
            kubeconfig = await self.cluster.service_account_kubeconfig(NAMESPACE, WITH_KUBERNETES[name])
            environment[f"{own}KUBECONFIG"] = str(kubeconfig)
        if name == "watcher":
            # There is one process of that name at a time: started again it need not wait for its own old Lease.
            environment["SLUICE_WATCHER_INSTANCE"] = f"stack-{os.getpid()}-{instance}"
            environment["SLUICE_WATCHER_WEBHOOK_URL"] = f"https://127.0.0.1:{self.webhook_port}"
        if name == "webhook":
            listens = self.webhook_port if instance == name else self.free_port()
            environment["SLUICE_WEBHOOK_WEBHOOK_PORT"] = str(listens)
        return environment | {k: v for k, v in self._settings.items() if not _of_another(k, name)}

    @contextlib.contextmanager
    def _step(self, what: str, usual: int) -> Iterator[None]:
        started = time.monotonic()
        with self._console.status(f"{what} (usually {usual} s)"):
            yield
        self._console.print(f"[green]✓[/] {what} ({time.monotonic() - started:.1f} s)")


def _of_another(variable: str, name: str) -> bool:
    """Whether a variable is meant for one service, and not for this one."""
    return any(variable.startswith(f"SLUICE_{other.upper()}_") for other in SERVICES if other != name)


async def _readiness(session: aiohttp.ClientSession, port: int) -> AsyncIterator[str]:
    """Why it is not ready, again and again; empty when it is."""
    while True:
        try:
            async with session.get(f"http://127.0.0.1:{port}/readyz") as response:
                yield "" if response.status == 200 else (await response.text()).strip()
        except (aiohttp.ClientError, TimeoutError) as error:
            yield f"no answer on port {port}: {error}"
        await asyncio.sleep(0.05)
