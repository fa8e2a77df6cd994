"""What is put under load: an API server with a controller behind it. The runner knows only this, so that another controller can be driven alike."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path

import msgspec
from rich.console import Console

from devcluster.options import ClusterOptions, NodeGroup
from devcluster.stack import NAMESPACE, SERVICES, WITH_KUBERNETES, Stack
from loadtest.shape import Shape

RESTART_S = 300.0
"""The most that is waited for services which start with much to read."""


class Target(msgspec.Struct, frozen=True):
    """`users`: API users whose writes are the controller's. `audit_log`: None if writes cannot be counted. `processes`: pids that run now, by name.
    `own`: which of these are the controller itself, whatever serves it (its bus) apart. `faults`: what can be done to it, by the names that shapes use;
    each returns when it is done."""

    name: str
    kubeconfig: Path
    users: tuple[str, ...] = ()
    audit_log: Path | None = None
    processes: Callable[[], Mapping[str, int]] = dict
    own: tuple[str, ...] = ()
    monitoring: str = ""
    """Base URL of the monitoring of its NATS server; empty: it has none."""
    faults: Mapping[str, Callable[[], Awaitable[None]]] = {}


@contextlib.asynccontextmanager
async def own_stack(shape: Shape, console: Console, *, webhooks: bool = True) -> AsyncIterator[Target]:
    """Sluice and a control plane of its own, on this machine. Without `webhooks` nobody is asked about what is written, as where Kueue's own suite was
    measured. Raises what Stack raises."""
    services = SERVICES if webhooks else tuple(name for name in SERVICES if name != "webhook")
    # Whoever makes certificates writes them into the configurations that are not to be.
    settings = {} if webhooks else {"SLUICE_WATCHER_MANAGE_CERTIFICATES": "false"}
    async with Stack(cluster_options(shape), console=console, services=services, settings=settings) as stack:
        if not webhooks:
            await _without_webhooks(stack)

        def processes() -> Mapping[str, int]:
            own = {name: s.process.pid for name, s in stack.services.items() if s.process.running}
            nats = {"nats-server": stack.nats.pid} if stack.nats.running else {}
            return {**stack.cluster.pids, **nats, **own}

        yield Target(
            name="sluice",
            kubeconfig=stack.cluster.kubeconfig,
            users=tuple(f"system:serviceaccount:{NAMESPACE}:{account}" for account in WITH_KUBERNETES.values()),
            audit_log=stack.cluster.audit_log,
            processes=processes,
            faults={
                "kill-scheduler": lambda: stack.restart("scheduler"),
                "kill-watcher": lambda: stack.restart("watcher"),
                "wipe-nats": stack.nats.wipe,
                "restart-services": lambda: _restart_all(stack),
            },
            own=tuple(stack.services),
            monitoring=stack.nats.monitoring,
        )


async def _without_webhooks(stack: Stack) -> None:
    """Nobody to be asked at a write, and none to convert: each version of a kind has a cache in the API server, which has every state converted."""
    kubectl = stack.cluster.kubectl
    await kubectl(
        "delete",
        "validatingwebhookconfigurations,mutatingwebhookconfigurations",
        "-l",
        "app.kubernetes.io/part-of=sluice",
    )
    names = (await kubectl("get", "customresourcedefinitions", "--output=name")).split()
    ours = [name for name in names if name.endswith(".kueue.x-k8s.io")]
    await kubectl(
        "patch", *ours, "--type=merge", "--patch", '{"spec":{"conversion":{"strategy":"None","webhook":null}}}'
    )


async def _restart_all(stack: Stack) -> None:
    """Kill every service at once; returns when all are ready again."""
    for service in stack.services.values():
        service.kill()
    async with asyncio.TaskGroup() as group:
        for service in stack.services.values():
            group.create_task(service.up.wait())
    await stack.wait_ready(RESTART_S)


def external(
    kubeconfig: Path,
    *,
    name: str = "external",
    users: tuple[str, ...] = (),
    audit_log: Path | None = None,
    processes: Mapping[str, int] | None = None,
    own: tuple[str, ...] = (),
) -> Target:
    """Any controller of the same API that runs already. Raises ValueError for a file that is not there, or a name of `own` without a process."""
    for path in (kubeconfig, audit_log):
        if path is not None and not path.is_file():
            raise ValueError(f"{path}: no such file")
    running = dict(processes or {})
    if unknown := set(own) - set(running):
        raise ValueError(f"no process was named for {', '.join(sorted(unknown))}")
    return Target(name, kubeconfig, users, audit_log, lambda: running, own or tuple(running))


def cluster_options(shape: Shape) -> ClusterOptions:
    """Nodes and controllers only where the cluster has to run something; writes are audited."""
    runs = shape.kind == "Job"
    return ClusterOptions(
        audit=True,
        with_controllers=runs,
        with_scheduler=runs,
        with_kwok=runs,
        nodes=(NodeGroup(name="node", count=4, cpu="1000", memory="4Ti", pods="10000"),) if runs else (),
        # As in Kueue's suite: the API server must not be what holds the load back.
        apiserver_flags=("--max-requests-inflight=5000", "--max-mutating-requests-inflight=2500"),
    )
