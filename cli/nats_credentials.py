"""`python -m cli.nats_credentials`: in a cluster, makes everybody's NATS credentials and the server's configuration, as Secrets.

1. A Secret per user (each service, and the reader of public events): `user`, `password`, `url`. One that is there is kept.
2. The server's configuration, generated from the table of streams and these passwords. One that was made of the same is kept; another is replaced.
3. For a cluster of servers, certificates and the authority that the services trust; before the configuration, which follows them too.
4. Only after a replacement: the server's StatefulSet is told to restart its pods.

Safe to run again and again, and by two at once: who loses the race to create a Secret uses the winner's. Nothing secret is printed.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import hashlib
import secrets
import sys
from collections.abc import Mapping
from datetime import UTC, datetime

import msgspec

from cli import nats_certificates
from shared.bus.server_config import Cluster, Server, hasher, render
from shared.events import streams
from shared.kube.client import KubeClient, connect
from shared.kube.credentials import CredentialsError
from shared.kube.errors import AlreadyExists, ApiError, NotFound
from shared.kube.resources import SECRETS, Resource

USERS = (*streams.SERVICES, streams.READER)
CONFIG_SECRET = "sluice-nats-server"
CONFIG_KEY = "nats-server.conf"
TLS_SECRET = "sluice-nats-tls"
"""Of the servers: ca.crt, tls.crt, tls.key."""
CA_SECRET = "sluice-nats-ca"
"""Of the services: ca.crt."""
TLS_FOLDER = "/etc/nats-tls"
MADE_OF = "sluice.dev/made-of"
"""Annotation: hash of the configuration with its random passwords in plain text; it says nothing about them."""
STATEFUL_SETS = Resource("apps", "v1", "statefulsets", "StatefulSet")
SERVER = "sluice-nats"
SERVERS = "sluice-nats-servers"
"""The Service that has a name for each pod of the cluster."""
PASSWORD_BYTES = 24
TIMEOUT_S = 10.0
LABELS = {"app.kubernetes.io/part-of": "sluice", "app.kubernetes.io/component": "nats"}


class Metadata(msgspec.Struct, frozen=True):
    annotations: dict[str, str] = {}


class Secret(msgspec.Struct, frozen=True):
    """The parts of a Secret that matter here; `data` is base64."""

    metadata: Metadata = Metadata()
    data: dict[str, str] = {}

    def text(self, key: str) -> str:
        """One value; empty when it is missing. Raises ValueError when it is not base64 of a text."""
        return base64.b64decode(self.data.get(key, ""), validate=True).decode()


def secret_name(user: str) -> str:
    """`sluice-nats-queue-manager` of `queue_manager`."""
    return f"sluice-nats-{user.replace('_', '-')}"


def made_of(server: Server, passwords: Mapping[str, str], ca: str = "") -> str:
    """Changes with the table of streams, the server's settings, every password and the authority."""
    return hashlib.sha256((render(server, passwords) + ca).encode()).hexdigest()


def server_of(namespace: str, servers: int) -> Server:
    """The one server, or each of several."""
    alone = Server(store_dir="/data", host="0.0.0.0", monitor="0.0.0.0:8222")
    if servers == 1:
        return alone
    routes = tuple(f"tls://{SERVER}-{n}.{SERVERS}.{namespace}.svc:6222" for n in range(servers))
    files = {"cert_file": f"{TLS_FOLDER}/tls.crt", "key_file": f"{TLS_FOLDER}/tls.key"}
    cluster = Cluster(listen="0.0.0.0:6222", routes=routes, ca_file=f"{TLS_FOLDER}/ca.crt", **files)
    return msgspec.structs.replace(alone, cluster=cluster, **files)


def hosts_of(namespace: str) -> tuple[str, ...]:
    """Names in the servers' certificate."""
    own = f"{SERVER}.{namespace}.svc"
    each = f"*.{SERVERS}.{namespace}.svc"
    return own, f"{own}.cluster.local", each, f"{each}.cluster.local"


class Credentials:
    """Makes what is missing in one namespace. `url` is what the services connect to."""

    def __init__(self, client: KubeClient, *, namespace: str, url: str, server: Server) -> None:
        self._client = client
        self._namespace = namespace
        self._url = url
        self._server = server

    async def ensure(self) -> list[str]:
        """What was done, a line each without anything secret; empty when all was there. Raises ApiError, or ValueError for a Secret that cannot be
        used and is not ours to overwrite."""
        done: list[str] = []
        passwords = {user: await self._password(user, done) for user in USERS}
        ca = await self._certificates(done) if self._server.cluster is not None else ""
        await self._config(passwords, ca, done)
        return done

    async def _certificates(self, done: list[str]) -> str:
        """The authority, PEM."""
        found = await self._get(TLS_SECRET)
        if found is None:
            made = nats_certificates.make(hosts_of(self._namespace), datetime.now(UTC))
            values = {"ca.crt": made.ca, "tls.crt": made.certificate, "tls.key": made.key}
            if await self._create(TLS_SECRET, values, {}):
                done.append(f"secret/{TLS_SECRET} created")
            found = await self._get(TLS_SECRET)
        ca = found.text("ca.crt") if found is not None else ""
        if not ca:
            raise ValueError(f"secret/{TLS_SECRET} has no ca.crt: give it one, or delete it and run this again")
        trusted = await self._get(CA_SECRET)
        if trusted is None:
            if await self._create(CA_SECRET, {"ca.crt": ca}, {}):
                done.append(f"secret/{CA_SECRET} created")
        elif trusted.text("ca.crt") != ca:
            body = msgspec.json.encode({"data": _encoded({"ca.crt": ca})})
            await self._client.patch(SECRETS, self._namespace, CA_SECRET, body)
            done.append(f"secret/{CA_SECRET} replaced")
        return ca

    async def _password(self, user: str, done: list[str]) -> str:
        name = secret_name(user)
        found = await self._get(name)
        if found is None:
            values = {"user": user, "password": secrets.token_urlsafe(PASSWORD_BYTES), "url": self._url}
            if await self._create(name, values, {}):
                done.append(f"secret/{name} created")
                return values["password"]
            found = await self._get(name)
        password = found.text("password") if found is not None else ""
        if not password:
            raise ValueError(f"secret/{name} has no password: give it one, or delete it and run this again")
        return password

    async def _config(self, passwords: Mapping[str, str], ca: str, done: list[str]) -> None:
        wanted = made_of(self._server, passwords, ca)
        digest = hasher()
        values = {CONFIG_KEY: render(self._server, {user: digest(p) for user, p in passwords.items()})}
        found = await self._get(CONFIG_SECRET)
        if found is None:
            if await self._create(CONFIG_SECRET, values, {MADE_OF: wanted}):
                done.append(f"secret/{CONFIG_SECRET} created")
                return
            found = await self._get(CONFIG_SECRET)
        if found is not None and found.metadata.annotations.get(MADE_OF) == wanted and CONFIG_KEY in found.data:
            return
        patch = {"metadata": {"annotations": {MADE_OF: wanted}}, "data": _encoded(values)}
        await self._client.patch(SECRETS, self._namespace, CONFIG_SECRET, msgspec.json.encode(patch))
        done.append(f"secret/{CONFIG_SECRET} replaced")
        # The server reads its configuration at its start only.
        template = {"metadata": {"annotations": {MADE_OF: wanted}}}
        restart = msgspec.json.encode({"spec": {"template": template}})
        try:
            await self._client.patch(STATEFUL_SETS, self._namespace, SERVER, restart)
        except NotFound:
            return
        done.append(f"statefulset/{SERVER} restarted")

    async def _get(self, name: str) -> Secret | None:
        try:
            body = await self._client.get(SECRETS, self._namespace, name)
        except NotFound:
            return None
        return msgspec.json.decode(body, type=Secret)

    async def _create(self, name: str, values: Mapping[str, str], annotations: Mapping[str, str]) -> bool:
        """Whether we made it; False if somebody else did."""
        metadata = {"name": name, "namespace": self._namespace, "labels": LABELS, "annotations": annotations}
        body = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque", "data": _encoded(values)}
        try:
            await self._client.create(SECRETS, self._namespace, msgspec.json.encode(body))
        except AlreadyExists:
            return False
        return True


def _encoded(values: Mapping[str, str]) -> dict[str, str]:
    return {key: base64.b64encode(value.encode()).decode() for key, value in values.items()}


async def _run(kubeconfig: str, namespace: str, url: str, server: Server) -> list[str]:
    client = await connect(kubeconfig, user_agent="sluice-nats-credentials", timeout_s=TIMEOUT_S)
    async with client:
        return await Credentials(client, namespace=namespace, url=url, server=server).ensure()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m cli.nats_credentials", description="Make NATS credentials as Secrets."
    )
    parser.add_argument("--namespace", default="kueue-system")
    parser.add_argument("--url", default=f"nats://{SERVER}.kueue-system.svc:4222", help="what services connect to")
    parser.add_argument("--kubeconfig", default="", help="default: the pod's ServiceAccount")
    parser.add_argument(
        "--cluster", type=int, default=1, metavar="SERVERS", help="so many servers, with TLS to and between them"
    )
    given = parser.parse_args(arguments)
    server = server_of(given.namespace, given.cluster)
    try:
        done = asyncio.run(_run(given.kubeconfig, given.namespace, given.url, server))
    except (ApiError, ValueError, CredentialsError) as error:
        sys.stderr.write(f"nats_credentials: {error}\n")
        return 1
    print("\n".join(done) or "nothing to do")
    return 0


if __name__ == "__main__":
    sys.exit(main())
