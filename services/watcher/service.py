"""The gateway between Kubernetes and the bus.

1. Connect to the API server and stand for the Leases, ours and Kueue's (standing). Until both are held this is a warm standby: all kinds are listed
   and watched, nothing is written anywhere.
2. With them: lists that began after it was held; what is in the watch copy is handed to the writing half.
3. Streams are made or checked, OBJECTS is refilled, an epoch is opened or goes on (epochs).
4. From then on, side by side: watches into the copy and on to OBJECTS; the log and the commands of the open epoch into patches; Jobs into
   Workloads and back.
5. Trouble with the streams closes the epoch and goes through 3 again. A Lease that could not be renewed in time holds every write back until it is
   renewed after all; one that somebody else took ends the process: whoever supervises it starts a standby.
6. On SIGTERM the work stops first, then the Lease is given up.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import socket

import msgspec
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from services.watcher.apply import Gateway
from services.watcher.certificates import Certificates
from services.watcher.creation_latency import creation_latency
from services.watcher.epochs import EpochKeeper
from services.watcher.failure_recovery import FailureRecovery
from services.watcher.gate_removal import gate_removal
from services.watcher.intake import Intake, Malformed
from services.watcher.kinds import watched_kinds
from services.watcher.managed_jobs import job_settings
from services.watcher.publisher import Publisher
from services.watcher.settings import WatcherSettings
from services.watcher.standing import Standing, kueue_lease
from services.watcher.store import Change, Store
from shared.config.custom_labels import marks_read
from shared.config.settings import SettingsError
from shared.jobs.registry import grouped, integrated
from shared.kube.client import KubeClient, OnCall, connect
from shared.kube.credentials import CredentialsError
from shared.kube.lease import LeaderLease, LeaseLost
from shared.kube.list_watch import Timing
from shared.runtime.service import Context

_STANDBY_AFTER_S = 1.0
"""A Lease that is free is ours before this, and one round of lists is saved."""
_LOOK_S = 0.5
_LOOK_SOON_S = 0.05
"""Until it is ready: others wait for that."""
_STEP = 500


async def serve(ctx: Context[WatcherSettings]) -> None:
    """Run until cancelled. Raises LeaseLost, SettingsError."""
    identity = ctx.settings.instance or f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
    settings = msgspec.structs.replace(
        ctx.settings, instance=identity, namespace=ctx.configured.namespace(ctx.settings.namespace)
    )
    try:
        client = await connect(
            settings.kubeconfig,
            context=settings.kube_context,
            user_agent="sluice-watcher",
            timeout_s=settings.api_timeout_s,
            on_call=_call_counter(ctx.metrics),
            impersonate_user=settings.impersonate_user,
            impersonate_groups=(settings.impersonate_group,) if settings.impersonate_group else (),
        )
    except CredentialsError as error:
        raise SettingsError(str(error)) from error
    async with client:
        lease = LeaderLease(
            client,
            namespace=settings.namespace,
            name=f"{settings.lease_name}-{settings.shard}",
            identity=identity,
            duration_s=settings.lease_duration_s,
            renew_s=settings.lease_renew_s,
        )
        election = ctx.configured.configuration.leader_election
        standing = Standing(lease, kueue_lease(client, election, settings.namespace))
        client.may_write = lambda: standing.is_held
        bus = ctx.gateway_bus
        jobs = job_settings(ctx.configured, settings.namespace)
        store = Store(watched_kinds(integrated(jobs.frameworks).values(), grouped(jobs.serving)))
        gateway = Gateway(
            store=store,
            client=client,
            bus=bus,
            settings=settings,
            tracer=ctx.tracer,
            metrics=ctx.metrics,
            now=ctx.now,
            jobs=jobs,
            created=creation_latency(ctx.configured, ctx.metrics, store, ctx.now),
            gate_removed=gate_removal(ctx.configured, ctx.metrics, ctx.now),
        )
        parts = _Parts(ctx, standing, gateway)
        intake = Intake(
            client,
            store,
            bus,
            malformed=parts.malformed,
            rewound=parts.trouble,
            timing=Timing(list_timeout_s=settings.list_timeout_s),
        )
        publisher = Publisher(
            bus,
            store,
            acknowledged=parts.acknowledged,
            unprojectable=intake.report,
            lost=parts.trouble,
            marks=marks_read(ctx.configured),
            gather_s=settings.gather_s,
        )
        parts.keeper = keeper = EpochKeeper(
            shard=settings.shard,
            bus=bus,
            lease=lease,
            intake=intake,
            publisher=publisher,
            applier=gateway,
            check_s=settings.check_s,
        )
        running = asyncio.create_task(standing.run())
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(_until_lost(identity, running))
                tasks.create_task(_tell_health(ctx, standing, intake, keeper))
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(standing.held.wait(), _STANDBY_AFTER_S)
                was_standby = not standing.held.is_set()
                tasks.create_task(intake.run())
                await standing.held.wait()
                if settings.manage_certificates and ctx.configured.configuration.internal_cert_management.enable:
                    tasks.create_task(_keep_certificates(ctx, client, settings))
                if ctx.configured.gates["FailureRecoveryPolicy"]:
                    tasks.create_task(FailureRecovery(client, gateway.recorder, ctx.now).run())
                if was_standby:
                    await intake.relist()
                await intake.synced.wait()
                store.subscribe(publisher.changed)
                store.subscribe(gateway.changed)
                await _tell_everything(store, gateway)
                tasks.create_task(publisher.run())
                tasks.create_task(gateway.run())
                tasks.create_task(keeper.run())
        except BaseExceptionGroup as group:
            # One cause, one line in the log; several stay together.
            raise group.exceptions[0] if len(group.exceptions) == 1 else group from None
        finally:
            running.cancel()
            await asyncio.wait({running})


class _Parts:
    """What the parts tell each other."""

    def __init__(self, ctx: Context[WatcherSettings], standing: Standing, gateway: Gateway) -> None:
        self._standing = standing
        self._gateway = gateway
        self.keeper: EpochKeeper | None = None
        self._malformed = Counter(
            "sluice_watcher_malformed_objects", "Objects nobody can use, by kind.", ["kind"], registry=ctx.metrics
        )
        self._published = Counter(
            "sluice_watcher_published_objects",
            "States and tombstones that OBJECTS acknowledged.",
            ["kind"],
            registry=ctx.metrics,
        )

    def malformed(self, found: Malformed) -> None:
        kind, reference = found.kind, found.reference
        self._malformed.labels(kind.token).inc()
        if self._standing.is_held:
            self._gateway.malformed(
                kind.token, kind.resource, reference.namespace, reference.name, reference.uid, found.error
            )

    def acknowledged(self, kind: str, namespace: str, name: str, version: int) -> None:
        self._published.labels(kind).inc()
        self._gateway.published(kind, namespace, name, version)

    def trouble(self, why: str) -> None:
        if self.keeper is not None:
            self.keeper.trouble(why)


async def _keep_certificates(ctx: Context[WatcherSettings], client: KubeClient, settings: WatcherSettings) -> None:
    names = ctx.configured.configuration.internal_cert_management
    certificates = Certificates(
        client,
        namespace=settings.namespace,
        secret=names.webhook_secret_name,
        service=names.webhook_service_name,
        url=settings.webhook_url,
        now=ctx.now,
    )
    ctx.health.ready(False, "the webhooks have no certificates yet", cause="certificates")
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(certificates.run())
        await certificates.done.wait()
        ctx.health.ready(True, cause="certificates")


async def _until_lost(identity: str, running: asyncio.Task[None]) -> None:
    await asyncio.wait({running})
    running.result()
    raise LeaseLost(f"{identity} is not the active watcher any more")


async def _tell_health(ctx: Context[WatcherSettings], standing: Standing, intake: Intake, keeper: EpochKeeper) -> None:
    active = Gauge("sluice_watcher_active", "1 in the process that holds the Leases.", registry=ctx.metrics)
    epoch = Gauge("sluice_watcher_epoch", "The open epoch; 0 when none is.", registry=ctx.metrics)
    while True:
        active.set(1 if standing.is_held else 0)
        epoch.set(keeper.epoch if keeper.opened.is_set() else 0)
        missing = {kind: why for kind, why in intake.down.items() if not intake.optional(kind)}
        ctx.health.ready(not missing, "; ".join(f"{kind}: {why}" for kind, why in missing.items()), cause="kubernetes")
        ctx.health.ready(not ctx.gateway_bus.trouble, ctx.gateway_bus.trouble, cause="bus")
        if standing.is_held:
            ctx.health.ready(keeper.opened.is_set(), f"no epoch is open: {keeper.why_closed}", cause="start")
        elif standing.held.is_set():
            ctx.health.ready(False, "the Lease could not be renewed in time", cause="start")
        else:
            warm = ctx.settings.standby_is_ready and intake.synced.is_set()
            ctx.health.ready(warm, f"standby of {standing.behind}", cause="start")
        await asyncio.sleep(_LOOK_S if ctx.health.is_ready else _LOOK_SOON_S)


async def _tell_everything(store: Store, gateway: Gateway) -> None:
    """Hand over what was there before the writing half listened. In steps: there may be much, and the Lease has to be renewed."""
    for token in store.watched:
        for count, seen in enumerate(store.of_kind(token)):
            if count % _STEP == 0:
                await asyncio.sleep(0)
            stored = store.get(token, seen.namespace, seen.name)
            if stored is not None:
                gateway.changed(Change(token, None, stored, stored.version))


def _call_counter(registry: CollectorRegistry) -> OnCall:
    calls = Counter(
        "sluice_kube_calls",
        "Calls to the API server; code 0: no answer.",
        ["verb", "resource", "subresource", "code"],
        registry=registry,
    )
    seconds = Histogram("sluice_kube_call_seconds", "Duration of calls.", ["verb"], registry=registry)

    def count(verb: str, plural: str, subresource: str, status: int, duration: float) -> None:
        calls.labels(verb, plural, subresource, str(status)).inc()
        seconds.labels(verb).observe(duration)

    return count
