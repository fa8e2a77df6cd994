"""What the certificate authority signs: whom it names, for what it may be used, and that it verifies."""

import ipaddress
import stat
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from devcluster.certificates import CertificateAuthority, KeyPair, service_account_keys


def load(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def purposes(pair: KeyPair) -> set[x509.ObjectIdentifier]:
    return set(load(pair.certificate).extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)


@pytest.fixture
def authority(tmp_path: Path) -> CertificateAuthority:
    return CertificateAuthority(tmp_path / "certificates")


def test_client_certificate_carries_user_and_groups(authority: CertificateAuthority) -> None:
    certificate = load(authority.client("admin", "alice", ("system:masters", "dev")).certificate)
    assert [a.value for a in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)] == ["alice"]
    groups = [a.value for a in certificate.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)]
    assert groups == ["system:masters", "dev"]


def test_client_certificate_cannot_serve(authority: CertificateAuthority) -> None:
    assert purposes(authority.client("admin", "alice")) == {ExtendedKeyUsageOID.CLIENT_AUTH}


def test_serving_certificate_is_for_loopback_and_given_names(authority: CertificateAuthority) -> None:
    pair = authority.server("kube-apiserver", ("kubernetes",))
    names = load(pair.certificate).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost", "kubernetes"]
    assert ipaddress.ip_address("127.0.0.1") in names.get_values_for_type(x509.IPAddress)
    assert ExtendedKeyUsageOID.SERVER_AUTH in purposes(pair)


def test_certificates_are_signed_by_their_authority_and_by_no_other(
    authority: CertificateAuthority, tmp_path: Path
) -> None:
    certificate = load(authority.client("admin", "alice").certificate)
    certificate.verify_directly_issued_by(load(authority.certificate))
    stranger = load(CertificateAuthority(tmp_path / "other").certificate)
    with pytest.raises((InvalidSignature, ValueError)):
        certificate.verify_directly_issued_by(stranger)


def test_only_the_authority_may_sign(authority: CertificateAuthority) -> None:
    def may_sign(path: Path) -> bool:
        return load(path).extensions.get_extension_for_class(x509.BasicConstraints).value.ca

    assert may_sign(authority.certificate)
    assert not may_sign(authority.client("admin", "alice").certificate)


def test_private_keys_are_their_owners_alone(authority: CertificateAuthority) -> None:
    pair = authority.client("admin", "alice")
    assert stat.S_IMODE(pair.key.stat().st_mode) == 0o600
    assert pair.key.read_bytes().startswith(b"-----BEGIN EC PRIVATE KEY-----")


def test_key_belongs_to_its_certificate(authority: CertificateAuthority) -> None:
    pair = authority.server("etcd")
    key = serialization.load_pem_private_key(pair.key.read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    assert key.public_key() == load(pair.certificate).public_key()


def test_service_account_public_key_belongs_to_the_private_one(tmp_path: Path) -> None:
    pair = service_account_keys(tmp_path)
    key = serialization.load_pem_private_key(pair.key.read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    assert serialization.load_pem_public_key(pair.certificate.read_bytes()) == key.public_key()
