"""`sluice all-in-one`: NATS and every service as supervised children of one process, against any cluster.

1. Configuration and feature gates are checked, ports are looked at: what is wrong is one line and exit code 1, before anything runs.
2. NATS starts in a private folder, with the generated permissions; meanwhile this process imports what all services need.
3. A child makes what the cluster lacks (`installation`); then services are forked, the gateway first.
4. One more child answers /readyz and /metrics for all, and says when everything is ready.

This process itself never runs an event loop (see `shared.runtime.supervisor`). The folder is removed at the end; one whose process was killed is removed
by the next start.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import gc
import importlib
import os
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from cli.service_environment import Place, environment_of, shell_lines, write_environment
from devcluster.ports import free_ports
from shared.bus.server_binary import nats_binary
from shared.bus.server_config import Server, write_config
from shared.bus.server_health import unwritable
from shared.config.configuration import DEFAULT_NAMESPACE, Configured
from shared.config.configuration_file import load as load_configuration
from shared.events.streams import GATEWAY, SERVICES
from shared.runtime.overview import Address
from shared.runtime.supervisor import Child, Supervisor
from shared.telemetry import logs

FOLDER_PREFIX = "sluice-all-in-one-"
LOOPBACK = "127.0.0.1"
ANY = ("", "0.0.0.0", "::")
PARTS = ("crds", "rbac", "webhooks")
"""Of the cluster's side, that can be installed."""
SERVICE_ACCOUNT_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
INSTANCE = "instance"
FRONT = "front"
NATS = "nats"


class StartError(Exception):
    """Why it cannot start, for people."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """As the flags say; empty or None means: as the configuration file says, or the default. A port 0 is a free one. `install`: parts of the cluster's side
    to apply."""

    kubeconfig: str = ""
    config: str = ""
    feature_gates: str = ""
    webhook_host: str = ""
    webhook_port: int | None = None
    webhook_url: str = ""
    webhook_cert_dir: str = ""
    install: tuple[str, ...] = ()
    health_port: int | None = None
    metrics_port: int | None = None
    without: tuple[str, ...] = ()
    print_env: str = ""
    log_dir: str = ""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is known before the first child starts."""

    options: Options
    configured: Configured
    services: tuple[str, ...]
    webhook: Address
    webhook_url: str
    cert_dir: str
    health: Address
    metrics: Address | None


def plan_of(options: Options) -> Plan:
    """Raises StartError, ConfigurationError."""
    configured = load_configuration(options.config, options.feature_gates)
    configuration = configured.configuration
    for name in (*options.without, *((options.print_env,) if options.print_env else ())):
        if name not in SERVICES:
            raise StartError(f"{name!r} is no service: there are {', '.join(SERVICES)}")
    for part in options.install:
        if part not in (*PARTS, "all"):
            raise StartError(f"install: {part!r} is not one of all, {', '.join(PARTS)}")
    without = {*options.without, options.print_env}
    given = configuration.webhook
    host = options.webhook_host or given.host or LOOPBACK
    port = given.port if options.webhook_port is None else _chosen(options.webhook_port)
    cert_dir = options.webhook_cert_dir
    if not cert_dir and not configuration.internal_cert_management.enable:
        cert_dir = given.cert_dir
    for file in ("tls.crt", "tls.key") if cert_dir else ():
        if not Path(cert_dir, file).is_file():
            raise StartError(f"webhook-cert-dir: {Path(cert_dir, file)}: no such file")
    return Plan(
        options=options,
        configured=configured,
        services=tuple(s for s in SERVICES if s not in without),
        webhook=Address(host, port),
        webhook_url=(options.webhook_url or f"https://{_in_url(LOOPBACK if host in ANY else host)}:{port}").rstrip("/"),
        cert_dir=cert_dir,
        health=_address(options.health_port, configuration.health.address, "health.healthProbeBindAddress"),
        metrics=None
        if options.metrics_port is None and configuration.metrics.address == "0"
        else _address(options.metrics_port, configuration.metrics.address, "metrics.bindAddress"),
    )


def run(options: Options, started: float) -> int:
    """Until SIGTERM or Ctrl-C; the exit code. `started`: monotonic time of the start of the process. Raises StartError, ConfigurationError."""
    plan = plan_of(options)
    _check_ports(plan)
    # Imports make objects that stay: looking for garbage among them would take a fifth of the start.
    gc.disable()
    logs.setup("all-in-one", "WARNING")
    with _folder() as (folder, instance), Supervisor() as supervisor:
        try:
            return _run(plan, folder, instance, supervisor, started)
        finally:
            supervisor.stop()


def _run(plan: Plan, folder: Path, instance: str, supervisor: Supervisor, started: float) -> int:
    # Ports that were chosen before are not listened on yet.
    chosen = {a.port for a in (plan.webhook, plan.health, plan.metrics) if a is not None}
    service_ports = [p for p in free_ports(len(SERVICES) + 5) if p not in chosen][: len(SERVICES) + 2]
    nats_port, monitor_port = service_ports.pop(), service_ports.pop()
    log_folder = Path(plan.options.log_dir) if plan.options.log_dir else None
    if log_folder is not None:
        log_folder.mkdir(parents=True, exist_ok=True)

    def log_of(name: str) -> Path:
        # NATS speaks a format of its own: out of the way of the services' JSON.
        return (log_folder or folder) / f"{name}.log"

    credentials = folder / "credentials"
    store = folder / "jetstream"
    monitor = f"{LOOPBACK}:{monitor_port}"
    config = write_config(credentials, Server(store_dir=str(store), port=nats_port, monitor=monitor))
    nats = str(nats_binary())
    supervisor.start(
        Child(
            name=NATS,
            main=lambda: os.execv(nats, [nats, "--config", str(config)]),
            log=log_of(NATS),
            last=True,
            ails=lambda: unwritable(LOOPBACK, monitor_port, store),
        )
    )
    place = Place(
        nats_url=f"nats://{LOOPBACK}:{nats_port}",
        credentials=credentials,
        ports=dict(zip(SERVICES, service_ports, strict=True)),
        kubeconfig=plan.options.kubeconfig,
        configuration=plan.options.config,
        feature_gates=plan.options.feature_gates,
        namespace=plan.configured.namespace(_own_namespace() if not plan.options.kubeconfig else DEFAULT_NAMESPACE),
        webhook=plan.webhook,
        webhook_url=plan.webhook_url,
        cert_dir=plan.cert_dir,
        instance=instance,
    )
    installation = importlib.import_module("cli.installation")
    wanted = installation.Wanted(
        kubeconfig=plan.options.kubeconfig,
        namespace=place.namespace,
        parts=PARTS if "all" in plan.options.install else plan.options.install,
        webhook_url=plan.webhook_url,
        webhook_ca=_authority(plan.cert_dir),
        managed_namespaces=plan.configured.configuration.managed_namespaces(place.namespace),
        frameworks=plan.configured.configuration.integrations.frameworks,
        failure_recovery=plan.configured.gates["FailureRecoveryPolicy"],
    )
    answer = folder / "prepared.json"
    installing = supervisor.begin(Child(name="installation", main=lambda: installation.main(wanted, answer)))
    if GATEWAY in plan.services:
        # The largest part, imported while the other core is busy with the cluster.
        importlib.import_module(f"services.{GATEWAY}.__main__")
    if supervisor.finish(installing):
        return 0 if supervisor.stopping else 1
    prepared = msgspec.json.decode(answer.read_bytes(), type=installation.Prepared)
    if prepared.impersonate:
        place = msgspec.structs.replace(
            place, impersonate_user=prepared.user, impersonate_group=installation.ALL_RIGHTS
        )
    write_environment(folder, place)
    importlib.import_module("cli.local_events").write(folder, place, prepared.server)
    if plan.options.print_env:
        print(shell_lines(environment_of(plan.options.print_env, place)), flush=True)
    for name in plan.services:
        # Each is forked as soon as it is imported; the gateway, for whom all others wait, comes first.
        supervisor.start(_service(name, place, log_of(name) if log_folder is not None else None))
    front = importlib.import_module("cli.front")
    parts = {name: f"http://{LOOPBACK}:{place.ports[name]}" for name in plan.services}
    supervisor.start(Child(name=FRONT, main=lambda: asyncio.run(front.run(parts, plan.health, plan.metrics, started))))
    gc.enable()
    return supervisor.run()


def _service(name: str, place: Place, log: Path | None) -> Child:
    """The child that is this service, imported here and now."""
    service_main = importlib.import_module(f"services.{name}.__main__").main
    # What is here now is here for good: children share it, and their collectors need not walk (and so copy) it.
    gc.freeze()

    def main() -> None:
        gc.enable()
        os.environ.update(environment_of(name, place))
        service_main()

    return Child(name=name, main=main, log=log)


def _own_namespace() -> str:
    """Of the pod that we are, if we are one."""
    try:
        return SERVICE_ACCOUNT_NAMESPACE.read_text().strip()
    except OSError:
        return DEFAULT_NAMESPACE


def _chosen(port: int) -> int:
    """The port of a flag: 0 asks for any that is free."""
    return port or free_ports(1)[0]


def _address(port: int | None, configured: str, path: str) -> Address:
    """A flag's port on loopback, else what the file says; `:8081`, the default, is loopback too unless a host stands before it."""
    if port is not None:
        return Address(LOOPBACK, _chosen(port))
    host, _, number = configured.rpartition(":")
    if not number.isdigit():
        raise StartError(f"{path}: {configured!r} is no address: write HOST:PORT")
    return Address(host.strip("[]") or LOOPBACK, int(number))


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _authority(cert_dir: str) -> bytes:
    """What the API server should trust when certificates are given: their authority, or the certificate itself when it has none beside it."""
    if not cert_dir:
        return b""
    authority = Path(cert_dir, "ca.crt")
    return (authority if authority.is_file() else Path(cert_dir, "tls.crt")).read_bytes()


def _check_ports(plan: Plan) -> None:
    """Raises StartError for an address that somebody else listens on: a child would only find out again and again."""
    wanted = {"health-port": plan.health}
    if plan.metrics is not None and plan.metrics != plan.health:
        wanted["metrics-port"] = plan.metrics
    if "webhook" in plan.services:
        wanted["webhook-port"] = plan.webhook
    for flag, address in wanted.items():
        family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((address.host, address.port))
            except OSError as error:
                raise StartError(f"{flag}: {address.host}:{address.port}: {error.strerror}") from error


@contextlib.contextmanager
def _folder() -> Iterator[tuple[Path, str]]:
    """A private folder that is gone afterwards, and the gateway's name among the candidates for its Lease.

    The folder is locked while its owner or a child of it lives; those that nobody locks are swept. The newest of these leaves its name to us: whoever
    held the Lease under it is dead for sure, so that nobody has to wait for the Lease to run out.
    """
    folder = Path(tempfile.mkdtemp(prefix=FOLDER_PREFIX))
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            instance = _sweep() or f"{socket.gethostname()}-{folder.name.removeprefix(FOLDER_PREFIX)}"
            (folder / INSTANCE).write_text(instance)
            yield folder, instance
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _sweep() -> str:
    """Remove what dead ones left; the name of the newest."""
    name = ""
    for left in sorted(_folders(Path(tempfile.gettempdir())), key=_age, reverse=True):
        with contextlib.suppress(OSError), (left / "lock").open("r+") as lock:
            # Held until it is gone, so that no other start takes over the same name.
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with contextlib.suppress(OSError):
                name = (left / INSTANCE).read_text()
            shutil.rmtree(left, ignore_errors=True)
    return name


def _age(folder: Path) -> float:
    """Seconds since its last change."""
    with contextlib.suppress(OSError):
        return time.time() - folder.stat().st_mtime
    return 0.0


def running_folders(*elsewhere: Path) -> list[Path]:
    """Those of the processes that run now, the newest first; also those below other directories than the temporary one."""
    parents = (Path(tempfile.gettempdir()), *elsewhere)
    return sorted((f for parent in parents for f in _folders(parent) if _is_locked(f)), key=_age)


def _folders(parent: Path) -> list[Path]:
    own = os.getuid()
    found = parent.glob(f"{FOLDER_PREFIX}*")
    return [f for f in found if f.is_dir() and not f.is_symlink() and f.stat().st_uid == own]


def _is_locked(folder: Path) -> bool:
    """Whether somebody lives in it."""
    with contextlib.suppress(FileNotFoundError), (folder / "lock").open("r+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def fail(error: Exception) -> int:
    """Tell a person, as exit code."""
    sys.stderr.write(f"sluice all-in-one: {error}\n")
    return 1
