"""The certificates of a cluster of NATS servers: trusted by their own authority only, for both directions, under every name."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID

from cli.nats_certificates import LIFE, ServerCertificates, make
from cli.nats_credentials import hosts_of

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def parsed(made: ServerCertificates) -> tuple[x509.Certificate, x509.Certificate]:
    """Authority, certificate."""
    return x509.load_pem_x509_certificate(made.ca.encode()), x509.load_pem_x509_certificate(made.certificate.encode())


def test_signed_by_its_authority_and_by_no_other() -> None:
    authority, certificate = parsed(make(("a.b",), NOW))
    certificate.verify_directly_issued_by(authority)
    other, _ = parsed(make(("a.b",), NOW))
    with pytest.raises(InvalidSignature):
        certificate.verify_directly_issued_by(other)


def test_serves_and_calls_under_every_name() -> None:
    hosts = (*hosts_of("ns"), "127.0.0.1")
    made = make(hosts, NOW)
    _, certificate = parsed(made)
    alternatives = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert tuple(str(name.value) for name in alternatives) == hosts
    assert "*.sluice-nats-servers.ns.svc" in hosts
    usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert set(usage) == {ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH}
    assert load_pem_private_key(made.key.encode(), None).public_key() == certificate.public_key()


def test_valid_from_before_now_for_ten_years() -> None:
    for one in parsed(make(("a",), NOW)):
        assert one.not_valid_before_utc < NOW
        assert one.not_valid_after_utc == NOW + LIFE
    assert timedelta(days=3600) < LIFE


def test_a_leaf_is_no_authority_and_the_authoritys_key_is_nowhere() -> None:
    made = make(("a",), NOW)
    authority, certificate = parsed(made)
    assert authority.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    with pytest.raises(x509.ExtensionNotFound):
        certificate.extensions.get_extension_for_class(x509.BasicConstraints)
    assert load_pem_private_key(made.key.encode(), None).public_key() != authority.public_key()
