"""Makes, keeps and rotates the webhooks' certificates without cert-manager, and tells the API server to trust them.

A CA and a serving certificate live in one Secret (Kueue's name and keys: ca.crt, ca.key, tls.crt, tls.key). Their owner is the active gateway:
it makes them when they are missing, unreadable, do not belong together, are for other names or past two thirds of their life, and writes the CA into
the webhook configurations and into the definitions whose versions the webhook converts. The CA outlives many serving certificates, so that a rotation
changes nothing that the API server trusts; when its own turn comes, the old one stays trusted beside the new one until it expires. Where the API server
cannot reach a Service (a control plane on this machine), a URL replaces it.
"""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from shared.api import names
from shared.kube.client import KubeClient
from shared.kube.errors import AlreadyExists, ApiError, Conflict, NotFound
from shared.kube.resources import (
    ADMISSION_CHECKS,
    CLUSTER_QUEUES,
    COHORTS,
    CRDS,
    LOCAL_QUEUES,
    MULTIKUEUE_CLUSTERS,
    MULTIKUEUE_CONFIGS,
    MUTATING_WEBHOOKS,
    SECRETS,
    VALIDATING_WEBHOOKS,
    WORKLOADS,
    Resource,
)

log = logging.getLogger("sluice.watcher.certificates")

_Document = dict[str, Any]

LIFE = timedelta(days=90)
CA_LIFE = timedelta(days=3650)
CHECK_S = 60.0
MISSING_S = 2.0
RETRY_S = 0.5
PEM = serialization.Encoding.PEM
CONFIGURATIONS = (
    (MUTATING_WEBHOOKS, "kueue-mutating-webhook-configuration"),
    (VALIDATING_WEBHOOKS, "kueue-validating-webhook-configuration"),
)
CONVERTED = (
    ADMISSION_CHECKS,
    CLUSTER_QUEUES,
    COHORTS,
    LOCAL_QUEUES,
    MULTIKUEUE_CLUSTERS,
    MULTIKUEUE_CONFIGS,
    WORKLOADS,
)
"""Kinds whose versions the webhook converts (shared.api.crd_kinds, of which only the names are needed here)."""


class Authority(msgspec.Struct, frozen=True):
    """What signs serving certificates. `bundle`: PEM of its own certificate, then of older ones that are still trusted."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate
    bundle: bytes


class Pair(msgspec.Struct, frozen=True):
    """A CA (or several, see Authority) and a serving certificate, all PEM."""

    ca: bytes
    ca_key: bytes
    certificate: bytes
    key: bytes

    def secret_data(self) -> dict[str, str]:
        """As the `data` of a Secret."""
        parts = {"ca.crt": self.ca, "ca.key": self.ca_key, "tls.crt": self.certificate, "tls.key": self.key}
        return {name: base64.b64encode(value).decode() for name, value in parts.items()}


def make_authority(now: datetime, before: bytes = b"") -> Authority:
    """A new CA, valid for CA_LIFE. `before`: PEM of older ones, of which the newest is kept if it is still valid."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name("kueue-ca")
    certificate = (
        _builder(name, name, key, now, now + CA_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    older = [c for c in _certificates(before)[:1] if now < c.not_valid_after_utc]
    return Authority(key, certificate, b"".join(c.public_bytes(PEM) for c in (certificate, *older)))


def make_pair(hosts: tuple[str, ...], now: datetime, authority: Authority | None = None) -> Pair:
    """A serving certificate for these DNS names and addresses, valid for LIFE, and the CA that signed it: by default a new one."""
    authority = authority or make_authority(now)
    key = ec.generate_private_key(ec.SECP256R1())
    alternatives = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
    certificate = (
        _builder(_name(hosts[0][:64]), authority.certificate.subject, key, now, now + LIFE)
        .add_extension(alternatives, critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(authority.key, hashes.SHA256())
    )
    return Pair(authority.bundle, _key_pem(authority.key), certificate.public_bytes(PEM), _key_pem(key))


def kept_authority(data: dict[str, str], now: datetime) -> Authority | None:
    """The Secret's CA, if it can sign a certificate that ends before it does."""
    try:
        bundle = base64.b64decode(data["ca.crt"])
        certificate = x509.load_pem_x509_certificates(bundle)[0]
        key = serialization.load_pem_private_key(base64.b64decode(data["ca.key"]), None)
    except (KeyError, ValueError, TypeError, UnsupportedAlgorithm):
        return None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
        return None
    return Authority(key, certificate, bundle) if now + LIFE < certificate.not_valid_after_utc else None


def usable(data: dict[str, str], hosts: tuple[str, ...], now: datetime) -> bool:
    """Whether the Secret's certificate serves these hosts, is trusted by its CA, and has a third of its life left."""
    try:
        certificate = x509.load_pem_x509_certificate(base64.b64decode(data["tls.crt"]))
        authority = x509.load_pem_x509_certificates(base64.b64decode(data["ca.crt"]))[0]
        key = serialization.load_pem_private_key(base64.b64decode(data["tls.key"]), None)
        alternatives = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        certificate.verify_directly_issued_by(authority)
    except (KeyError, ValueError, TypeError, UnsupportedAlgorithm, InvalidSignature, x509.ExtensionNotFound):
        return False
    served = {str(n.value) for n in alternatives}
    ends = min(certificate.not_valid_after_utc, authority.not_valid_after_utc)
    return key.public_key() == certificate.public_key() and set(hosts) <= served and now + LIFE / 3 < ends


class Certificates:
    """Keeps Secret, webhook configurations and definitions as they should be; run by the active gateway only."""

    def __init__(
        self,
        client: KubeClient,
        *,
        namespace: str,
        secret: str,
        service: str,
        url: str,
        now: Callable[[], float],
    ) -> None:
        """`url`: base URL that replaces the Service in the configurations; empty leaves it."""
        self._client = client
        self._namespace = namespace
        self._secret = secret
        self._url = url.rstrip("/")
        self._now = now
        own = tuple(
            f"{name}.{namespace}.{domain}"
            for name in (service, names.CONVERSION_SERVICE)
            for domain in ("svc", "svc.cluster.local")
        )
        host = urlsplit(url).hostname
        self._hosts = (*own, host) if host else own
        self._missing: set[str] = set()
        self.done = asyncio.Event()
        """Everything that is there was as it should be once."""

    async def run(self) -> None:
        """Look at them again and again, until cancelled."""
        while True:
            try:
                await self.ensure()
                self.done.set()
                # A webhook configuration that comes later should not wait for long.
                pause = MISSING_S if self._missing else CHECK_S
            except (ApiError, ValueError) as error:
                log.warning("certificates: %s", error)
                pause = RETRY_S
            await asyncio.sleep(pause)

    async def ensure(self) -> None:
        """One look; a configuration that is not there is left out. Raises ApiError, or ValueError when somebody else spoils the Secret meanwhile."""
        data = await self._current()
        if not usable(data, self._hosts, self._at()):
            data = await self._renew(data)
        for resource, name in CONFIGURATIONS:
            body = await self._read(resource, name, "no such webhook configuration: what it would check goes unchecked")
            if body is not None and self._complete(body, data["ca.crt"]):
                await self._client.put(resource, "", name, msgspec.json.encode(body))
                log.info("webhook configuration updated", extra={"configuration": name})
        for kind in CONVERTED:
            name = f"{kind.plural}.{kind.group}"
            body = await self._read(CRDS, name, "no such definition: nobody can use its kind")
            if body is not None:
                await self._convert(name, body, data["ca.crt"])

    async def _read(self, resource: Resource, name: str, complaint: str) -> _Document | None:
        try:
            body: _Document = msgspec.json.decode(await self._client.get(resource, "", name))
        except NotFound:
            if name not in self._missing:
                self._missing.add(name)
                log.warning("%s", complaint, extra={"configuration": name})
            return None
        self._missing.discard(name)
        return body

    async def _convert(self, name: str, definition: _Document, bundle: str) -> None:
        """Have the webhook called for conversion; a definition that says of itself that nothing is to be converted stays so."""
        conversion = definition["spec"].get("conversion") or {}
        client_config = (conversion.get("webhook") or {}).get("clientConfig")
        if not client_config:
            return
        wanted = self._pointed(client_config, bundle)
        if wanted == client_config:
            return
        # The rest of a definition is large, and somebody else's.
        changed = {**dict.fromkeys(client_config), **wanted}
        patch = {
            "metadata": {"resourceVersion": definition["metadata"]["resourceVersion"]},
            "spec": {"conversion": {"webhook": {"clientConfig": changed}}},
        }
        await self._client.patch(CRDS, "", name, msgspec.json.encode(patch))
        log.info("conversion updated", extra={"configuration": name})

    def _at(self) -> datetime:
        return datetime.fromtimestamp(self._now(), UTC)

    async def _current(self) -> dict[str, str]:
        try:
            body = msgspec.json.decode(await self._client.get(SECRETS, self._namespace, self._secret))
        except NotFound:
            return {}
        data = body.get("data") or {}
        return data or {"": ""}

    async def _renew(self, old: dict[str, str]) -> dict[str, str]:
        now = self._at()
        authority = kept_authority(old, now) or make_authority(now, _decoded(old.get("ca.crt", "")))
        data = make_pair(self._hosts, now, authority).secret_data()
        try:
            if old:
                await self._client.patch(SECRETS, self._namespace, self._secret, msgspec.json.encode({"data": data}))
            else:
                metadata = {"name": self._secret, "namespace": self._namespace}
                body = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque", "data": data}
                await self._client.create(SECRETS, self._namespace, msgspec.json.encode(body))
        except (AlreadyExists, Conflict):
            data = await self._current()
            if not usable(data, self._hosts, now):
                raise ValueError(
                    f"secret {self._namespace}/{self._secret} was made by somebody else, unusable"
                ) from None
            return data
        log.info("certificate made", extra={"hosts": self._hosts})
        return data

    def _complete(self, configuration: _Document, bundle: str) -> bool:
        """Put CA and URL into every webhook, and drop those of Kueue's that an apply left there; whether anything changed."""
        found = configuration.get("webhooks")
        webhooks = found if isinstance(found, list) else []
        ours = [w for w in webhooks if _is_ours(w)]
        changed = 0 < len(ours) < len(webhooks)
        if changed:
            # Each of them refuses what it is asked about, since nobody answers for it.
            names_left = [w.get("name") for w in webhooks if not _is_ours(w)]
            log.warning("webhooks of Kueue removed", extra={"webhooks": names_left})
            configuration["webhooks"] = webhooks = ours
        for webhook in webhooks:
            wanted = self._pointed(webhook["clientConfig"], bundle)
            if wanted != webhook["clientConfig"]:
                webhook["clientConfig"] = wanted
                changed = True
        return changed

    def _pointed(self, client_config: _Document, bundle: str) -> _Document:
        """It with the CA, and with our URL instead of its Service if we have one."""
        wanted = {**client_config, "caBundle": bundle}
        if self._url:
            path = (client_config.get("service") or {}).get("path") or urlsplit(client_config.get("url", "")).path
            wanted.pop("service", None)
            wanted["url"] = self._url + path
        return wanted


def _is_ours(webhook: _Document) -> bool:
    return any(c.get("name") == names.NOT_THE_WATCHER for c in webhook.get("matchConditions") or ())


def _name(common_name: str) -> x509.Name:
    return x509.Name(
        [x509.NameAttribute(NameOID.ORGANIZATION_NAME, "kueue"), x509.NameAttribute(NameOID.COMMON_NAME, common_name)]
    )


def _certificates(pem: bytes) -> list[x509.Certificate]:
    """All in a PEM text; none if it is no such text."""
    try:
        return x509.load_pem_x509_certificates(pem)
    except ValueError:
        return []


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text)
    except ValueError:
        return b""


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime, end: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(end)
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
