"""Certificates for a cluster of NATS servers: one authority, and one certificate that all servers show, to clients and to each other.

Made once for ten years: nobody has to be told about a rotation. The authority's key is thrown away, so that nothing else is ever signed by what the
services trust; new certificates mean a new authority.
"""

from __future__ import annotations

import ipaddress
from datetime import datetime, timedelta

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFE = timedelta(days=3650)
SKEW = timedelta(minutes=5)
_PEM = serialization.Encoding.PEM


class ServerCertificates(msgspec.Struct, frozen=True):
    """All PEM."""

    ca: str
    certificate: str
    key: str


def make(hosts: tuple[str, ...], now: datetime) -> ServerCertificates:
    """For these DNS names (wildcards too) and addresses."""
    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    issuer = _name("sluice-nats-ca")
    authority = (
        _builder(issuer, issuer, ca_key, now)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(ca_key, hashes.SHA256())
    )
    # A server is a client of the other servers.
    usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
    certificate = (
        _builder(_name("sluice-nats"), issuer, key, now)
        .add_extension(x509.SubjectAlternativeName([_alternative(host) for host in hosts]), critical=False)
        .add_extension(usage, critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    private = key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return ServerCertificates(
        authority.public_bytes(_PEM).decode(), certificate.public_bytes(_PEM).decode(), private.decode()
    )


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - SKEW)
        .not_valid_after(now + LIFE)
    )


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
