"""A control plane with our webhook beside it: the certificates that the gateway makes, and the permissions that k8s/rbac ships.

The queue copy stays empty, so that every lookup takes the way of a miss: one live read.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ssl
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web
from cryptography import x509
from prometheus_client import CollectorRegistry, Histogram

from devcluster.cluster import DevCluster
from devcluster.options import ClusterOptions
from devcluster.ports import free_ports
from services.watcher.certificates import Certificates
from services.webhook.admission_review import Request, Verdict
from services.webhook.certificate import Certificate, FromSecret
from services.webhook.handlers import Handler, Handlers
from services.webhook.known_objects import KnownObjects
from services.webhook.service import application
from services.webhook.settings import WebhookSettings
from shared.config.configuration import Configured
from shared.config.feature_gates import DEFAULT_GATES, FeatureGates
from shared.kube.client import KubeClient, connect
from shared.kube.errors import ApiError
from shared.kube.resources import CLUSTER_QUEUES, JOBS, SECRETS, Resource

ROOT = Path(__file__).resolve().parents[2]
NAMESPACE = "kueue-system"
SECRET = "kueue-webhook-server-cert"
SERVICE = "kueue-webhook-service"
TIMEOUT_S = 15.0
PROGRAMS = ("etcd", "kube-apiserver", "kubectl")
"""What a control plane needs at least, where nothing but admission is of interest."""
Document = dict[str, Any]


class Admission:
    """A control plane with our webhook beside it. `admin` is an ordinary user of it, `watcher` the gateway's ServiceAccount."""

    def __init__(self, cluster: DevCluster, admin: KubeClient, watcher: KubeClient, webhook: KubeClient) -> None:
        self.cluster = cluster
        self.admin = admin
        self.watcher = watcher
        self.port = free_ports(1)[0]
        self.certificate = Certificate(FromSecret(webhook, NAMESPACE, SECRET), refresh_s=0.05)
        self._reader = webhook
        self.asked: Counter[str] = Counter()
        """Reviews so far, by the last word of their path."""
        self._handlers: dict[str, Handler] = {}
        self.use(DEFAULT_GATES)
        seconds = Histogram("seconds", "Of reviews.", ("path", "allowed"), registry=CollectorRegistry())
        routes = {path: self._route(path) for path in self._handlers}
        self._runner = web.AppRunner(application(routes, seconds), access_log=None, shutdown_timeout=0.1)

    def use(self, gates: FeatureGates) -> None:
        """From now on answer with these feature gates."""
        known = KnownObjects(self._reader)
        self._handlers = Handlers(WebhookSettings(), known, self._reader, Configured(gates=gates)).routes()

    def _route(self, path: str) -> Handler:
        async def answer(request: Request) -> Verdict:
            self.asked[path.rsplit("-", 1)[-1]] += 1
            return await self._handlers[path](request)

        return answer

    def certificates(self, service: str = SERVICE) -> Certificates:
        """The gateway's keeper of certificates."""
        url = f"https://127.0.0.1:{self.port}"
        return Certificates(self.watcher, namespace=NAMESPACE, secret=SECRET, service=service, url=url, now=time.time)

    async def listen(self) -> None:
        """Answer reviews."""
        if self._runner.server is None:
            await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, ssl_context=self.certificate.context)
        await site.start()

    async def hang_up(self) -> None:
        """Be away, connections included."""
        await self._runner.cleanup()

    async def create(self, resource: Resource, document: Document, *, namespace: str = "") -> Document:
        """As an ordinary user; what was stored."""
        body: Document = msgspec.json.decode(
            await self.admin.create(resource, namespace, msgspec.json.encode(document))
        )
        return body

    async def served_serial(self) -> int:
        """Serial number of the certificate that a new connection is shown."""
        trusting = ssl.create_default_context()
        trusting.check_hostname = False
        trusting.verify_mode = ssl.CERT_NONE
        _, writer = await asyncio.open_connection("127.0.0.1", self.port, ssl=trusting)
        shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        writer.close()
        with contextlib.suppress(ssl.SSLError, ConnectionError):
            await writer.wait_closed()
        return x509.load_der_x509_certificate(shown).serial_number

    async def secret(self) -> dict[str, bytes]:
        """The Secret's data."""
        body = msgspec.json.decode(await self.admin.get(SECRETS, NAMESPACE, SECRET))
        return {key: base64.b64decode(value) for key, value in body["data"].items()}

    async def until_served(self, certificate: bytes) -> None:
        """Wait until new connections get this certificate."""
        wanted = x509.load_pem_x509_certificate(certificate).serial_number
        async with asyncio.timeout(TIMEOUT_S):
            while True:
                if await self.served_serial() == wanted:
                    return
                await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def serving() -> AsyncIterator[Admission]:
    """Everything started and in force. Raises what DevCluster.start raises."""
    options = ClusterOptions(with_controllers=False, with_scheduler=False, with_kwok=False)
    async with DevCluster(options) as cluster, contextlib.AsyncExitStack() as stack:
        await cluster.kubectl("apply", "--server-side", "-k", str(ROOT / "k8s" / "local"))
        await cluster.kubectl(
            "wait", "--for=condition=Established", "crd", "-l", "app.kubernetes.io/part-of=sluice", "--timeout=30s"
        )
        clients = []
        for account in ("", "sluice-watcher", "sluice-webhook"):
            path = await cluster.service_account_kubeconfig(NAMESPACE, account) if account else cluster.kubeconfig
            client = await connect(str(path), user_agent="sluice-test", timeout_s=TIMEOUT_S)
            clients.append(await stack.enter_async_context(client))
        it = Admission(cluster, *clients)
        async with asyncio.TaskGroup() as group:
            reading = group.create_task(it.certificate.run())
            await it.certificates().ensure()
            async with asyncio.timeout(TIMEOUT_S):
                await it.certificate.ready.wait()
            await it.listen()
            await _until_in_force(it)
            yield it
            await it.hang_up()
            reading.cancel()


async def _until_in_force(it: Admission) -> None:
    """The API server reads webhook configurations in its own time: wait until a Job comes out changed and a refusal is ours."""
    async with asyncio.timeout(TIMEOUT_S):
        for number in range(10_000):
            bad_job = job(f"probe-{number}", queue="Not_A_Name")
            bad_queue = cluster_queue(f"probe-{number}", namespaceSelector={"matchLabels": {"team": "-"}})
            made = await or_refusal(it.create(JOBS, job(f"good-{number}", queue="probe"), namespace="default"))
            refusals = [
                await or_refusal(it.create(JOBS, bad_job, namespace="default")),
                await or_refusal(it.create(CLUSTER_QUEUES, bad_queue)),
            ]
            if isinstance(made, dict) and made["spec"]["suspend"] and all("denied" in str(r) for r in refusals):
                return
            await asyncio.sleep(0.05)


async def or_refusal(call: Awaitable[Document]) -> Document | ApiError:
    """What the call gives, or its error."""
    try:
        return await call
    except ApiError as error:
        return error


def job(name: str, *, queue: str = "", labels: dict[str, str] | None = None) -> Document:
    """A batch/v1 Job of one pod."""
    marked = {**({"kueue.x-k8s.io/queue-name": queue} if queue else {}), **(labels or {})}
    container = {"name": "c", "image": "example.com/image", "resources": {"requests": {"cpu": "1"}}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": marked},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}},
    }


def cluster_queue(name: str, **spec: object) -> Document:
    """A ClusterQueue with 9 CPU of one flavor."""
    quota = {"name": "cpu", "nominalQuota": "9"}
    group = {"coveredResources": ["cpu"], "flavors": [{"name": "default", "resources": [quota]}]}
    spec = {"namespaceSelector": {}, "resourceGroups": [group], **spec}
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": name}, "spec": spec}


def named(kind: str, name: str, **spec: object) -> Document:
    """Any queueing object."""
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": {"name": name}, "spec": spec}
