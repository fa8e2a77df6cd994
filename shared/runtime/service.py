"""Runs one service from settings to exit.

1. Read settings, configuration file and feature gates; what is wrong with them is one line on standard error and exit code 2 (1 for the configuration, as
   Kueue's).
2. Logs, traces, metrics; listen for /healthz, /readyz, /metrics.
3. Connect to the bus, waiting for it as long as it takes.
4. Run the service until SIGTERM or SIGINT, or until it fails (exit code 1: whoever supervises it starts it again; 2 and one line in the log for a
   setting that it finds to be wrong only now, as a kubeconfig that cannot be read).
5. Cancel it, give it `stop_timeout_s`, close the bus, flush traces.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import ssl
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

import uvloop
from opentelemetry.trace import Tracer
from prometheus_client import CollectorRegistry
from prometheus_client.gc_collector import GCCollector
from prometheus_client.process_collector import ProcessCollector

from shared.bus.connection import without_credentials
from shared.bus.interface import Bus
from shared.bus.nats_bus import NatsBus, NatsGatewayBus, connect
from shared.config.configuration import Configured
from shared.config.configuration_file import ConfigurationError
from shared.config.configuration_file import load as load_configuration
from shared.config.settings import BaseSettings, SettingsError, load, password
from shared.events.streams import GATEWAY, SERVICES
from shared.runtime.bus_metrics import BusCollector
from shared.runtime.health import Health, application
from shared.runtime.health import serve as serve_http
from shared.telemetry import logs, traces

S = TypeVar("S", bound=BaseSettings)
log = logging.getLogger("sluice.runtime")

FLUSH_S = 1.0
"""How long the end of a process may wait for whoever takes its spans."""


class Context(Generic[S]):
    """What a service is given: its settings, its bus, and where to tell how it fares."""

    def __init__(
        self,
        service: str,
        settings: S,
        bus: Bus,
        health: Health,
        metrics: CollectorRegistry,
        tracer: Tracer,
        configured: Configured | None = None,
    ) -> None:
        self.service = service
        self.settings = settings
        self.bus = bus
        self.health = health
        self.metrics = metrics
        self.tracer = tracer
        self.configured = configured if configured is not None else Configured()
        """Kueue's configuration and the feature gates."""

    def now(self) -> float:
        """Seconds since the epoch; tests give a context with a clock of their own."""
        return time.time()

    @property
    def gateway_bus(self) -> NatsGatewayBus:
        """The bus with what only the gateway may do. Raises TypeError in any other service."""
        if not isinstance(self.bus, NatsGatewayBus):
            raise TypeError(f"{self.service} is not the gateway")
        return self.bus


Serve = Callable[[Context[S]], Awaitable[None]]


def run(service: str, settings_type: type[S], serve: Serve[S]) -> None:
    """Run `serve` as the service of that name, then exit the process."""
    try:
        settings = load(settings_type, service, SERVICES, os.environ)
        secret = password(settings)
        logs.setup(service, settings.log_level)
        configured = load_configuration(settings.configuration, settings.feature_gates)
    except ConfigurationError as error:
        sys.stderr.write(f"sluice {service}: configuration: {error}\n")
        sys.exit(1)
    except ValueError as error:
        label = "settings" if isinstance(error, SettingsError) else "settings: log_level"
        sys.stderr.write(f"sluice {service}: {label}: {error}\n")
        sys.exit(2)
    sys.exit(uvloop.run(_run(service, settings, secret, configured, serve)))


async def _run(service: str, settings: S, secret: str, configured: Configured, serve: Serve[S]) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(log_unhandled)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    GCCollector(registry=registry)
    health = Health()
    provider = traces.setup(service, settings.trace_file, settings.trace_otlp_endpoint)
    try:
        http, port = await serve_http(application(health, registry), settings.health_host, settings.health_port)
    except OSError as error:
        log.error(
            "cannot listen: health_host %s, health_port %d: %s",
            settings.health_host,
            settings.health_port,
            error.strerror,
        )
        return 2
    if service == GATEWAY:
        # Once, not by each service.
        gates = ", ".join(f"{name}={str(state).lower()}" for name, state in configured.gates)
        log.info("configuration", extra={"file": settings.configuration, "gates": gates})
        for path in configured.unused:
            log.warning("accepted, not used yet: %s", path)
    log.info("started", extra={"health_port": port, "pid": os.getpid()})
    try:
        address = without_credentials(settings.nats_url)
        health.ready(False, f"connecting to {address}", cause="bus")
        try:
            bus = await _until(stop, _connect(service, settings, secret))
        except (PermissionError, ValueError, OSError) as error:
            # No waiting helps: a wrong password, an address that is none, a file of authorities that cannot be read.
            log.error("cannot use the bus: nats_url %s: %s", address, error)
            return 2
        if bus is None:
            return 0
        health.ready(True, cause="bus")
        registry.register(BusCollector(bus))
        try:
            context = Context(service, settings, bus, health, registry, provider.get_tracer("sluice"), configured)
            return await _supervise(stop, serve(context), settings.stop_timeout_s)
        finally:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(bus.close(), settings.stop_timeout_s)
    finally:
        await http.cleanup()
        # Blocks the loop, on which nothing is left.
        traces.shutdown(provider, FLUSH_S)
        log.info("stopped")


HANDLE_CLOSED = "the handler is closed"
"""uvloop's words for a transport whose handle is gone while it does not count as closing yet."""


def log_unhandled(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """uvloop's TLS may answer on a connection that was closed meanwhile, and call that an error; nobody waits for that answer."""
    transport = context.get("transport")
    # uvloop names the protocol with every fault of a connection, and no transport once that is lost.
    exception = context.get("exception")
    is_over = transport is None or transport.is_closing() or HANDLE_CLOSED in str(exception)
    if "protocol" in context and is_over and isinstance(exception, RuntimeError | OSError):
        log.debug("after the end of a connection: %s", context["exception"])
    else:
        loop.default_exception_handler(context)


async def _connect(service: str, settings: BaseSettings, secret: str) -> NatsBus:
    tls = ssl.create_default_context(cafile=settings.nats_ca_file) if settings.nats_ca_file else None
    user = settings.nats_user or service
    if service == GATEWAY:
        return await connect(
            service,
            settings.nats_url,
            user,
            secret,
            gateway=True,
            shard=settings.shard,
            tls=tls,
            stream_replicas=settings.nats_stream_replicas,
        )
    return await connect(service, settings.nats_url, user, secret, shard=settings.shard, tls=tls)


async def _until(stop: asyncio.Event, work: Awaitable[NatsBus]) -> NatsBus | None:
    """The result of `work`, or None if the service is told to stop first."""
    task = asyncio.ensure_future(work)
    stopped = asyncio.ensure_future(stop.wait())
    await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        stopped.cancel()
        return task.result()
    task.cancel()
    return None


async def _supervise(stop: asyncio.Event, work: Awaitable[None], timeout_s: float) -> int:
    task = asyncio.ensure_future(work)
    stopped = asyncio.ensure_future(stop.wait())
    await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if not task.done():
        log.info("stopping")
        task.cancel()
        await asyncio.wait({task}, timeout=timeout_s)
        if not task.done():
            log.error("did not stop in %.1f s", timeout_s)
            return 1
    if task.cancelled():
        return 0
    error = task.exception()
    if error is None:
        return 0
    if isinstance(error, SettingsError):
        # No waiting helps, and where in our code it was noticed is of no use to whoever has to mend it.
        log.error("cannot start: %s", error)
        return 2
    log.error("failed: %s", error, exc_info=error)
    return 1
