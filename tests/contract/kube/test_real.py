"""The contract over a real API server, with the controllers that collect garbage and empty namespaces."""

from __future__ import annotations

import asyncio
import base64
import itertools
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio
from aiohttp import web

from devcluster.cluster import DevCluster
from devcluster.layout import ADMIN_USER
from devcluster.options import ClusterOptions
from services.watcher.certificates import make_pair
from shared.kube.client import KubeClient, connect
from shared.kube.resources import MUTATING_WEBHOOKS, NAMESPACES, VALIDATING_WEBHOOKS, Resource
from tests.contract.kube import admitting, deleting, watching, writing
from tests.contract.kube.server import CONFIG_MAPS, WITHIN_S, Document, Review, respond, webhook_configuration
from tests.contract.kube.writing import api

__all__ = ["api"]

PROBE = "probe"
REPOSITORY = Path(__file__).parents[3]

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module")]


class WebhookServer:
    """HTTPS on a free port of the loopback; a path for each webhook."""

    def __init__(self) -> None:
        self.reviews: dict[str, Review] = {}
        self.url = ""
        self.ca = b""
        self._runner: web.AppRunner | None = None

    async def start(self, folder: Path) -> None:
        pair = make_pair(("127.0.0.1",), datetime.now(UTC))
        (folder / "tls.pem").write_bytes(pair.certificate + pair.key)
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(folder / "tls.pem")
        application = web.Application()
        application.router.add_post("/{name}", self._answer)
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=tls)
        await site.start()
        _, port = self._runner.addresses[0][:2]
        self.url, self.ca = f"https://127.0.0.1:{port}", pair.ca

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.Response:
        try:
            body = await respond(await request.read(), self.reviews[request.match_info["name"]])
        except (RuntimeError, KeyError):
            return web.Response(status=500)
        return web.Response(body=body, content_type="application/json")


class Real:
    def __init__(self, cluster: DevCluster, client: KubeClient, namespace: str, webhooks: WebhookServer) -> None:
        self._cluster = cluster
        self.client = client
        self.namespace = namespace
        self.user = ADMIN_USER
        self._webhooks = webhooks
        self._made = 0

    async def expired_version(self) -> int:
        # Older than the server's memory, which began when the definitions were installed.
        return 1

    async def restart(self) -> None:
        await self._cluster.restart("kube-apiserver")

    @asynccontextmanager
    async def webhook(self, kind: str, review: Review, **fields: object) -> AsyncIterator[None]:
        self._made += 1
        name = f"{self.namespace}-{self._made}"
        probed = asyncio.Event()

        async def reviewed(request: Document) -> Document:
            if request["name"] == PROBE:
                probed.set()
                return {"allowed": True}
            if request["userInfo"]["username"] != self.user:
                # Controllers write into every new namespace.
                return {"allowed": True}
            return await review(request)

        self._webhooks.reviews[name] = reviewed
        configuration = webhook_configuration(kind, name, self.namespace, fields)
        (entry,) = configuration["webhooks"]
        entry["clientConfig"] = {
            "url": f"{self._webhooks.url}/{name}",
            "caBundle": base64.b64encode(self._webhooks.ca).decode(),
        }
        # The condition is what is tested: that the webhook is in force has to be seen without it.
        conditions = entry.pop("matchConditions", None)
        resource = MUTATING_WEBHOOKS if kind == "Mutating" else VALIDATING_WEBHOOKS
        await self.client.create(resource, "", msgspec.json.encode(configuration))
        try:
            async with asyncio.timeout(WITHIN_S):
                while not probed.is_set():
                    await self._probe()
            if conditions:
                await self._restrict(resource, name, conditions, probed)
            yield
        finally:
            await self.client.delete(resource, "", name)

    async def _restrict(self, resource: Resource, name: str, conditions: object, probed: asyncio.Event) -> None:
        """Conditions, in force."""
        found = msgspec.json.decode(await self.client.get(resource, "", name))
        found["webhooks"][0]["matchConditions"] = conditions
        await self.client.put(resource, "", name, msgspec.json.encode(found))
        async with asyncio.timeout(WITHIN_S):
            while probed.is_set():
                probed.clear()
                await self._probe()

    async def _probe(self) -> None:
        """A write that the webhook gets to see once it is in force."""
        body = msgspec.json.encode({"metadata": {"name": PROBE}})
        await self.client.create(CONFIG_MAPS, self.namespace, body)
        await self.client.delete(CONFIG_MAPS, self.namespace, PROBE)
        await asyncio.sleep(0.05)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster() -> AsyncIterator[DevCluster]:
    options = ClusterOptions(nodes=(), with_scheduler=False, with_kwok=False)
    async with DevCluster(options) as running:
        await running.kubectl("apply", "--server-side", "-k", str(REPOSITORY / "k8s" / "crds"))
        await running.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")
        # The garbage collector looks for new kinds at start and seldom afterwards.
        await running.restart("kube-controller-manager")
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def administrator(cluster: DevCluster) -> AsyncIterator[KubeClient]:
    async with await connect(str(cluster.kubeconfig), user_agent="sluice-contract", timeout_s=10.0) as client:
        yield client


_numbers = itertools.count(1)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def webhooks(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[WebhookServer]:
    made = WebhookServer()
    await made.start(tmp_path_factory.mktemp("webhooks"))
    yield made
    await made.stop()


@pytest_asyncio.fixture(loop_scope="module")
async def server(cluster: DevCluster, administrator: KubeClient, webhooks: WebhookServer) -> Real:
    namespace = f"contract-{next(_numbers)}"
    await administrator.create(NAMESPACES, "", msgspec.json.encode({"metadata": {"name": namespace}}))
    return Real(cluster, administrator, namespace, webhooks)


class TestCreating(writing.Creating):
    pass


class TestPatching(writing.Patching):
    pass


class TestPutting(writing.Putting):
    pass


class TestDryRuns(writing.DryRuns):
    pass


class TestApplying(writing.Applying):
    pass


class TestRules(writing.Rules):
    pass


class TestListing(watching.Listing):
    pass


class TestWatching(watching.Watching):
    pass


class TestDeleting(deleting.Deleting):
    pass


class TestOwning(deleting.Owning):
    pass


class TestRestarting(watching.Restarting):
    pass


class TestAdmitting(admitting.Admitting):
    pass


class TestNamespaces(deleting.Namespaces):
    pass
