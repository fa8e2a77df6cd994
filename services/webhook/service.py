"""Admission: defaults and validates, at Kueue's paths.

1. Read the serving certificate from its Secret and keep it fresh; the gateway makes it.
2. Fold queues, priority classes and namespaces from OBJECTS; not ready before that has caught up.
3. Serve Kueue's metrics, where that is asked for (`metrics_front`).
4. Answer reviews over HTTPS. A request that cannot be understood gets one clear refusal; a handler that fails is logged and answered with 500.

Any number of these may run. Nothing here writes to Kubernetes. While it is down, the API server refuses changes of queues and creations of
jobs; the gateway's own writes are exempt (R2).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import aiohttp
import msgspec
from aiohttp import web
from prometheus_client import Histogram

from services.webhook import conversion_review, metrics_front
from services.webhook.admission_review import Request, decode, encode, refuse
from services.webhook.certificate import Certificate, FromFolder, FromSecret
from services.webhook.handlers import Handler, Handlers
from services.webhook.known_objects import KINDS, KnownObjects
from services.webhook.settings import WebhookSettings
from shared.bus.interface import CaughtUp
from shared.config.settings import SettingsError
from shared.kube.client import KubeClient, connect
from shared.kube.credentials import CredentialsError
from shared.runtime.service import Context

log = logging.getLogger("sluice.webhook")
MAX_BODY = 64 << 20
"""A review can hold many objects."""


async def serve(context: Context[WebhookSettings]) -> None:
    """Run until cancelled. Raises SettingsError."""
    settings = context.settings
    try:
        client = await connect(settings.kubeconfig, user_agent="sluice-webhook", timeout_s=settings.api_timeout_s)
    except CredentialsError as error:
        raise SettingsError(str(error)) from error
    async with client:
        known = KnownObjects(client)
        tls = context.configured.configuration.tls
        certificate = Certificate(_certificate_source(context, client), tls=tls)
        context.health.ready(False, "queues not read yet")
        context.health.ready(False, "no serving certificate yet", cause="certificate")
        seconds = Histogram(
            "sluice_webhook_seconds",
            "Time to answer a review.",
            ("path", "allowed"),
            registry=context.metrics,
            buckets=(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1),
        )
        app = application(Handlers(settings, known, client, context.configured).routes(), seconds)
        async with asyncio.TaskGroup() as group:
            group.create_task(_follow(context, known))
            group.create_task(certificate.run())
            if settings.metrics_sources and context.configured.configuration.metrics.address != "0":
                group.create_task(_serve_metrics(context, client, certificate))
            await certificate.ready.wait()
            runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
            await runner.setup()
            try:
                site = web.TCPSite(
                    runner, settings.webhook_host, settings.webhook_port, ssl_context=certificate.context
                )
                await site.start()
                context.health.ready(True, cause="certificate")
                await asyncio.Event().wait()
            finally:
                await runner.cleanup()


async def _serve_metrics(context: Context[WebhookSettings], client: KubeClient, certificate: Certificate) -> None:
    """At `metrics.bindAddress`, until cancelled. `certificate`: that of the webhook."""
    settings = context.settings
    host, _, port = context.configured.configuration.metrics.address.rpartition(":")
    sources = tuple(source.strip() for source in settings.metrics_sources.split(","))
    async with asyncio.TaskGroup() as group, aiohttp.ClientSession() as session:
        if settings.metrics_certificate_dir:
            certificate = Certificate(
                FromFolder(Path(settings.metrics_certificate_dir)), tls=context.configured.configuration.tls
            )
            group.create_task(certificate.run())
        await certificate.ready.wait()
        app = metrics_front.application(metrics_front.Reviews(client), sources, metrics_front.fetcher(session))
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        try:
            site = web.TCPSite(runner, host.strip("[]") or None, int(port), ssl_context=certificate.context)
            await site.start()
            await asyncio.Event().wait()
        finally:
            await runner.cleanup()


def _certificate_source(context: Context[WebhookSettings], client: KubeClient) -> FromSecret | FromFolder:
    settings, configuration = context.settings, context.configured.configuration
    if settings.certificate_dir:
        return FromFolder(Path(settings.certificate_dir))
    own = configuration.internal_cert_management
    if not own.enable:
        return FromFolder(Path(configuration.webhook.cert_dir))
    return FromSecret(client, context.configured.namespace(settings.namespace), own.webhook_secret_name)


async def _follow(context: Context[WebhookSettings], known: KnownObjects) -> None:
    async for items in context.bus.feed(kinds=KINDS):
        for item in items:
            known.apply(item)
            if isinstance(item, CaughtUp):
                context.health.ready(True)


def application(routes: dict[str, Handler], seconds: Histogram) -> web.Application:
    """The HTTPS side: POST an AdmissionReview to any of the routes, a ConversionReview to its own."""
    app = web.Application(client_max_size=MAX_BODY)
    app.router.add_post(conversion_review.PATH, _convert)
    for path, handler in routes.items():
        app.router.add_post(path, _route(path, handler, seconds))
    return app


async def _convert(http: web.Request) -> web.Response:
    return web.Response(body=await conversion_review.respond(await http.read()), content_type="application/json")


def _route(path: str, handler: Handler, seconds: Histogram) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def answer(http: web.Request) -> web.Response:
        started = time.perf_counter()
        body = await respond(await http.read(), handler)
        allowed = b'"allowed":true' in body
        seconds.labels(path, str(allowed).lower()).observe(time.perf_counter() - started)
        return web.Response(body=body, content_type="application/json")

    return answer


async def respond(body: bytes, handler: Handler) -> bytes:
    """The answer to the bytes of a review, whatever they are."""
    try:
        request = decode(body)
    except msgspec.DecodeError as error:
        return refuse("", 400, f"not an AdmissionReview: {error}")
    try:
        return encode(request, await handler(request))
    except (msgspec.DecodeError, ValueError) as error:
        return refuse(request.uid, 422, f"{_named(request)}: {error}")
    except Exception:
        # The API server and the user need an answer, and the next review must find us alive.
        log.exception("review failed", extra={"object": _named(request)})
        return refuse(request.uid, 500, f"{_named(request)}: internal error, see the log of the webhook")


def _named(request: Request) -> str:
    name = f"{request.namespace}/{request.name}" if request.namespace else request.name
    return f"{request.kind.kind} {name}"
