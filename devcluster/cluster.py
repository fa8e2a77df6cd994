"""The control plane as one object: start it, use it, disturb it, end it.

It starts etcd and kube-apiserver, then the others; every process is ours by pid and ends with us. It makes the fake
nodes and nothing else: queues, CRDs and RBAC are the user's to apply.
"""

import asyncio
import os
import shutil
import signal
import tempfile
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

import msgspec
from rich.console import Console

from devcluster import components
from devcluster.api import AdminApi
from devcluster.binaries import resolve_binaries
from devcluster.components import Ports
from devcluster.kubeconfig import ClusterEntry, Kubeconfig, UserEntry, certificate_user, kubeconfig, write_kubeconfig
from devcluster.kubectl import run_kubectl
from devcluster.layout import Layout, lay_out
from devcluster.nodes import render_nodes
from devcluster.options import ClusterOptions, NodeGroup
from devcluster.ports import free_ports
from devcluster.processes import ManagedProcess, ProcessDiedError

START_ATTEMPTS = 3
PORT_TAKEN = "address already in use"
TOKEN_SECONDS = 24 * 3600
T = TypeVar("T")


class ExistingClusterError(RuntimeError):
    """Asked of a cluster that is not ours what only one started here can do."""


class DevCluster:
    """A running control plane. States: made, started (`async with` or `start`), stopped; it may be started again.

    After the start, `kubeconfig` is the administrator's file, `server` the API server's URL, `ca_file` its CA,
    `data_dir` the folder with logs/, kubeconfigs/ and certificates/, `audit_log` the log of writes (or None).
    """

    def __init__(self, options: ClusterOptions | None = None, console: Console | None = None) -> None:
        self.options = options if options is not None else ClusterOptions()
        self._console = console if console is not None else Console(stderr=True, highlight=False)
        self._processes: dict[str, ManagedProcess] = {}
        self._layout: Layout | None = None
        self._binaries: dict[str, Path] = {}
        self._ports: Ports | None = None
        self._data_dir: Path | None = None
        self._kubeconfig: Path | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    @property
    def kubeconfig(self) -> Path:
        return _started(self._kubeconfig)

    @property
    def data_dir(self) -> Path:
        return _started(self._data_dir)

    @property
    def kubectl_program(self) -> Path:
        """The kubectl that is used here; fits the cluster's version."""
        return self._binaries["kubectl"]

    @property
    def server(self) -> str:
        return self._ours().server

    @property
    def ca_file(self) -> Path:
        return self._ours().files.ca

    @property
    def ports(self) -> Ports:
        self._ours()
        return _started(self._ports)

    @property
    def audit_log(self) -> Path | None:
        return self._ours().files.audit_log if self._audited else None

    @property
    def pids(self) -> dict[str, int]:
        """The processes that run now, by name."""
        return {name: process.pid for name, process in self._processes.items() if process.running}

    async def start(self) -> None:
        """Starts everything and returns when it is usable: the API ready, all nodes Ready.

        Raises BuildError, NoGoError, ProcessDiedError (with the end of the log), NotReadyError, or
        ExistingClusterError when an existing cluster is asked for and KUBECONFIG names none. Nothing is left running then.
        """
        if self._kubeconfig is not None:
            raise RuntimeError("this cluster is started already")
        # Building takes minutes, and the callers' loop must live on.
        self._binaries = await asyncio.to_thread(
            resolve_binaries, self._needed_binaries(), self._console, self.options.kubernetes_minor
        )
        self._data_dir = self._make_data_dir()
        try:
            if self.options.existing:
                self._kubeconfig = _existing_kubeconfig()
                await self.kubectl("get", "--raw", "/readyz")
            else:
                await self._start_on_free_ports()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Ends every process that was started here, and removes the data folder unless its place was given."""
        await self._stop_parts()
        if self._data_dir is not None and self.options.data_dir is None:
            shutil.rmtree(self._data_dir, ignore_errors=True)
        self._kubeconfig = self._data_dir = self._layout = self._ports = None

    async def kubectl(self, *arguments: str, stdin: str | None = None, kubeconfig: Path | None = None) -> str:
        """Runs kubectl as the administrator, or as the owner of `kubeconfig`; its output, or KubectlError."""
        return await run_kubectl(self._binaries["kubectl"], kubeconfig or self.kubeconfig, arguments, stdin)

    async def service_account_kubeconfig(self, namespace: str, name: str, seconds: int = TOKEN_SECONDS) -> Path:
        """A kubeconfig with a fresh token (TokenRequest) of a ServiceAccount, which must exist; else KubectlError."""
        token = await self.kubectl("create", "token", name, f"--namespace={namespace}", f"--duration={seconds}s")
        user = f"system:serviceaccount:{namespace}:{name}"
        content = kubeconfig(await self._cluster_entry(), user, UserEntry(token=token.strip()), namespace)
        return write_kubeconfig(self.data_dir / f"{namespace}.{name}.kubeconfig", content)

    def user_kubeconfig(self, user: str, *groups: str) -> Path:
        """A kubeconfig with a client certificate for any user name and groups; RBAC says what it may do."""
        layout = self._ours()
        file_name = "".join(letter if letter.isalnum() else "-" for letter in user)
        pair = layout.authority.client(f"user-{file_name}", user, groups)
        content = kubeconfig(layout.cluster, user, certificate_user(pair))
        return write_kubeconfig(layout.kubeconfigs / f"user-{file_name}.kubeconfig", content)

    async def add_nodes(self, *groups: NodeGroup) -> None:
        """Makes the groups' fake nodes and returns when all of them are Ready and schedulable."""
        layout = self._ours()
        nodes = [node for group in groups for node in render_nodes(group)]
        if not nodes:
            return
        async with AdminApi(layout.server, str(layout.files.ca), layout.admin) as api:
            await api.create_all("/api/v1/nodes", nodes)
            names = frozenset(node.metadata.name for node in nodes)
            needed = ("etcd", "kube-apiserver", "kwok")
            await api.wait_nodes(names, self.options.start_seconds, partial(self._check, needed))

    def log(self, name: str) -> Path:
        """The log of a part, such as kube-apiserver; raises KeyError for a name that was not started."""
        return self._process(name).log

    def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> None:
        """Sends a signal to a part, by default one it cannot handle; raises KeyError, ProcessLookupError."""
        self._process(name).send(number)

    async def restart(self, name: str) -> None:
        """Ends a part if it runs, starts it again on its old port and data, and waits until it is ready."""
        process = self._process(name)
        await process.stop()
        await process.start()
        await self._wait_ready(name, (name,))

    async def first_exit(self) -> str:
        """Returns the name of the first part that ends, whoever ended it."""
        self._ours()
        waiting = {asyncio.create_task(process.wait()): name for name, process in self._processes.items()}
        try:
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waiting:
                task.cancel()
        return waiting[done.pop()]

    def last_lines(self, name: str) -> str:
        """The end of a part's log, for an error message."""
        return self._process(name).last_lines()

    @property
    def _audited(self) -> bool:
        return self.options.audit or self.options.audit_policy is not None

    def _needed_binaries(self) -> tuple[str, ...]:
        if self.options.existing:
            return ("kubectl",)
        wanted = {
            "etcd": True,
            "kube-apiserver": True,
            "kubectl": True,
            "kube-controller-manager": self.options.with_controllers,
            "kube-scheduler": self.options.with_scheduler,
            "kwok": self.options.with_kwok,
        }
        return tuple(name for name, is_wanted in wanted.items() if is_wanted)

    def _make_data_dir(self) -> Path:
        if self.options.data_dir is None:
            return Path(tempfile.mkdtemp(prefix="sluice-devcluster-"))
        self.options.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        return self.options.data_dir.resolve()

    async def _start_on_free_ports(self) -> None:
        for attempt in range(1, START_ATTEMPTS + 1):
            self._ports = Ports(*free_ports(len(Ports.__struct_fields__)))
            self._layout = lay_out(self.data_dir, self._ports, self.options)
            self._processes = self._make_processes(self._layout, self._ports)
            try:
                await self._start_parts()
            except ProcessDiedError as error:
                if attempt == START_ATTEMPTS or PORT_TAKEN not in error.last_lines:
                    raise
                await self._stop_parts()
            else:
                return

    async def _stop_parts(self) -> None:
        # No grace: nothing that they hold outlives the cluster, and a server would wait for its clients' watches.
        async with asyncio.TaskGroup() as group:
            for process in self._processes.values():
                group.create_task(process.stop(grace_seconds=0))
        self._processes = {}

    async def _start_parts(self) -> None:
        for name in ("etcd", "kube-apiserver"):
            await self._processes[name].start()
        await self._wait_ready("kube-apiserver", ("etcd", "kube-apiserver"))
        layout = self._ours()
        self._kubeconfig = layout.admin_kubeconfig
        others = [name for name in self._processes if name not in ("etcd", "kube-apiserver")]
        for name in others:
            await self._processes[name].start()
        for name in others:
            await self._wait_ready(name, tuple(self._processes))
        if self.options.with_kwok:
            await self.add_nodes(*self.options.nodes)

    def _make_processes(self, layout: Layout, ports: Ports) -> dict[str, ManagedProcess]:
        programs, files, options = self._binaries, layout.files, self.options
        commands = [
            components.etcd(programs["etcd"], files, ports),
            components.apiserver(
                programs["kube-apiserver"],
                files,
                ports,
                audit=self._audited,
                controllers=options.with_controllers,
                extra=options.apiserver_flags,
            ),
        ]
        if options.with_controllers:
            commands.append(components.controller_manager(programs["kube-controller-manager"], files, ports))
        if options.with_scheduler:
            commands.append(components.scheduler(programs["kube-scheduler"], files, ports))
        if options.with_kwok:
            commands.append(components.kwok(programs["kwok"], files, ports))
        return {command.name: ManagedProcess(command, layout.logs / f"{command.name}.log") for command in commands}

    async def _wait_ready(self, name: str, needed: tuple[str, ...]) -> None:
        """Waits for one part, as long as all `needed` ones run."""
        layout, ports = self._ours(), self.ports
        urls = {
            "etcd": "/readyz/etcd",
            "kube-apiserver": "/readyz",
            "kube-controller-manager": f"https://127.0.0.1:{ports.controller_manager}/healthz",
            "kube-scheduler": f"https://127.0.0.1:{ports.scheduler}/readyz",
        }
        if name not in urls:
            # KWOK shows that it works by making nodes Ready.
            return
        async with AdminApi(layout.server, str(layout.files.ca), layout.admin) as api:
            await api.wait_ok(urls[name], name, self.options.start_seconds, partial(self._check, needed))

    def _check(self, names: tuple[str, ...]) -> None:
        for name in names:
            self._processes[name].check()

    def _process(self, name: str) -> ManagedProcess:
        if self.options.existing:
            raise ExistingClusterError(f"{name} belongs to an existing cluster, it was not started here")
        return self._processes[name]

    def _ours(self) -> Layout:
        if self.options.existing:
            raise ExistingClusterError("an existing cluster's files and certificates are not known here")
        return _started(self._layout)

    async def _cluster_entry(self) -> ClusterEntry:
        if not self.options.existing:
            return self._ours().cluster
        shown = await self.kubectl("config", "view", "--raw", "--minify", "--flatten", "--output=json")
        return msgspec.json.decode(shown, type=Kubeconfig).clusters[0].cluster


def _started(value: T | None) -> T:
    if value is None:
        raise RuntimeError("this cluster is not started")
    return value


def _existing_kubeconfig() -> Path:
    named = os.environ.get("KUBECONFIG", "")
    if not named or not Path(named).is_file():
        raise ExistingClusterError(f"to use an existing cluster, KUBECONFIG must name one file; it is {named!r}")
    return Path(named)
