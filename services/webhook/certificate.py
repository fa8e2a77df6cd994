"""The serving certificate: from the Secret that the gateway makes, or from a folder that somebody else keeps.

It is read again and again, and goes into a TLS context that takes new ones without a restart.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import ssl
import tempfile
from pathlib import Path

import msgspec

from services.webhook.tls_options import server_context
from shared.config.configuration import Tls
from shared.kube.client import KubeClient
from shared.kube.errors import ApiError
from shared.kube.resources import SECRETS

log = logging.getLogger("sluice.webhook")
REFRESH_S = 5.0
"""For so long the old certificate may still be served after a rotation; a read is cheap."""
FIRST_S = 0.1
DEFAULTS = Tls()


class _Secret(msgspec.Struct):
    data: dict[str, str] = {}


KeyPair = tuple[bytes, bytes]
"""Certificate chain and private key, both PEM."""


class FromSecret:
    """tls.crt and tls.key of a Secret."""

    def __init__(self, client: KubeClient, namespace: str, secret: str) -> None:
        self._client = client
        self._namespace = namespace
        self._secret = secret

    async def read(self) -> KeyPair:
        """Raises ApiError, or ValueError when a part is missing."""
        body = await self._client.get(SECRETS, self._namespace, self._secret)
        data = msgspec.json.decode(body, type=_Secret).data
        pair = (data.get("tls.crt", ""), data.get("tls.key", ""))
        if not all(pair):
            raise ValueError(f"Secret {self._namespace}/{self._secret} lacks tls.crt or tls.key")
        return base64.b64decode(pair[0]), base64.b64decode(pair[1])


class FromFolder:
    """tls.crt and tls.key of a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def read(self) -> KeyPair:
        """Raises OSError."""
        return (self._folder / "tls.crt").read_bytes(), (self._folder / "tls.key").read_bytes()


class Certificate:
    """A TLS context for a server. States: none yet, loaded. Raises SettingsError for options of TLS that cannot be had here."""

    def __init__(self, source: FromSecret | FromFolder, *, tls: Tls = DEFAULTS, refresh_s: float = REFRESH_S) -> None:
        self._source = source
        self._refresh_s = refresh_s
        self._loaded: KeyPair | None = None
        self._complaint = ""
        self.context = server_context(tls)
        self.ready = asyncio.Event()

    async def run(self) -> None:
        """Keep the newest certificate loaded, until cancelled."""
        while True:
            try:
                await self._refresh()
            except (ApiError, ValueError, OSError) as error:
                # ssl.SSLError is an OSError.
                if str(error) != self._complaint:
                    self._complaint = str(error)
                    log.warning("no serving certificate: %s", error)
            await asyncio.sleep(self._refresh_s if self.ready.is_set() else FIRST_S)

    async def _refresh(self) -> None:
        pair = await self._source.read()
        if pair != self._loaded:
            self._load(*pair)
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
