"""The cluster's own certificate authority and the keys it signs. Made anew for every cluster, never reused."""

import datetime
import ipaddress
from pathlib import Path

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

VALID_FOR = datetime.timedelta(days=365)
# Certificates start in the past, for clocks that disagree.
BACKDATED = datetime.timedelta(hours=1)


class KeyPair(msgspec.Struct, frozen=True):
    """Where a certificate and its private key lie, both PEM."""

    certificate: Path
    key: Path


class CertificateAuthority:
    """Signs server and client certificates into `directory`; its own certificate is `<name>.crt` there."""

    def __init__(self, directory: Path, name: str = "ca") -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"devcluster {name}")])
        builder = (
            _unsigned(self._subject, self._subject, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
        )
        directory.mkdir(parents=True, exist_ok=True)
        self.certificate = directory / f"{name}.crt"
        self.certificate.write_bytes(_pem(builder.sign(self._key, hashes.SHA256())))

    def server(self, name: str, dns_names: tuple[str, ...] = ()) -> KeyPair:
        """A serving certificate for 127.0.0.1, localhost and `dns_names`; it may be used by a client as well."""
        names: list[x509.GeneralName] = [x509.DNSName(dns) for dns in ("localhost", *dns_names)]
        names += [x509.IPAddress(ipaddress.ip_address(address)) for address in ("127.0.0.1", "::1")]
        return self._issue(name, name, (), x509.SubjectAlternativeName(names))

    def client(self, file_name: str, user: str, groups: tuple[str, ...] = ()) -> KeyPair:
        """A client certificate: Kubernetes reads the user from its common name, groups from its organizations."""
        return self._issue(file_name, user, groups, None)

    def _issue(
        self, file_name: str, user: str, groups: tuple[str, ...], alternative: x509.SubjectAlternativeName | None
    ) -> KeyPair:
        key = ec.generate_private_key(ec.SECP256R1())
        attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
        attributes.append(x509.NameAttribute(NameOID.COMMON_NAME, user))
        purposes = [ExtendedKeyUsageOID.CLIENT_AUTH]
        if alternative is not None:
            purposes.append(ExtendedKeyUsageOID.SERVER_AUTH)
        builder = (
            _unsigned(x509.Name(attributes), self._subject, key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        )
        if alternative is not None:
            builder = builder.add_extension(alternative, critical=False)
        pair = KeyPair(self._directory / f"{file_name}.crt", self._directory / f"{file_name}.key")
        pair.certificate.write_bytes(_pem(builder.sign(self._key, hashes.SHA256())))
        _write_private_key(pair.key, key)
        return pair


def service_account_keys(directory: Path) -> KeyPair:
    """The key that signs ServiceAccount tokens; `certificate` is the bare public key that verifies them."""
    key = ec.generate_private_key(ec.SECP256R1())
    pair = KeyPair(directory / "service-account.pub", directory / "service-account.key")
    _write_private_key(pair.key, key)
    public = key.public_key()
    pair.certificate.write_bytes(
        public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    return pair


def _unsigned(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + VALID_FOR)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=not signs_certificates,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _write_private_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    # Created unreadable for others, not made so afterwards.
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
    )
