"""The serving certificate: read from the Secret that the gateway makes and rotates, loaded into a TLS context that takes new ones without a restart."""

from __future__ import annotations

import asyncio
import base64
import logging
import ssl
import tempfile
from pathlib import Path

import msgspec

from shared.kube.client import KubeClient
from shared.kube.errors import ApiError
from shared.kube.resources import SECRETS

log = logging.getLogger("sluice.webhook")
REFRESH_S = 5.0
"""For so long the old certificate may still be served after a rotation; a read is cheap."""
FIRST_S = 0.25


class _Secret(msgspec.Struct):
    data: dict[str, str] = {}


class Certificate:
    """A TLS context for a server. States: none yet, loaded."""

    def __init__(self, client: KubeClient, namespace: str, secret: str, *, refresh_s: float = REFRESH_S) -> None:
        self._client = client
        self._namespace = namespace
        self._secret = secret
        self._refresh_s = refresh_s
        self._loaded: tuple[str, str] | None = None
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.ready = asyncio.Event()

    async def run(self) -> None:
        """Keep the newest certificate loaded, until cancelled."""
        while True:
            try:
                await self._refresh()
            except (ApiError, ValueError, ssl.SSLError) as error:
                log.warning("no serving certificate: %s", error, extra={"secret": f"{self._namespace}/{self._secret}"})
            await asyncio.sleep(self._refresh_s if self.ready.is_set() else FIRST_S)

    async def _refresh(self) -> None:
        body = await self._client.get(SECRETS, self._namespace, self._secret)
        data = msgspec.json.decode(body, type=_Secret).data
        pair = (data.get("tls.crt", ""), data.get("tls.key", ""))
        if not all(pair):
            raise ValueError("the Secret lacks tls.crt or tls.key")
        if pair != self._loaded:
            self._load(*(base64.b64decode(part) for part in pair))
            self._loaded = pair
            self.ready.set()
            log.info("serving certificate loaded")

    def _load(self, certificate: bytes, key: bytes) -> None:
        # OpenSSL takes files only; the folder is readable by us alone and gone at once.
        with tempfile.TemporaryDirectory() as folder:
            chain, private = Path(folder, "tls.crt"), Path(folder, "tls.key")
            chain.write_bytes(certificate)
            private.touch(mode=0o600)
            private.write_bytes(key)
            # A context that refused a pair may keep half of it: a pair is tried in another one first.
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(chain, private)
            self.context.load_cert_chain(chain, private)
