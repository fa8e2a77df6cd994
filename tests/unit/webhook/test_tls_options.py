"""What a client can agree on with a server that has the options of the configuration."""

from __future__ import annotations

import asyncio
import base64
import ssl
from datetime import UTC, datetime
from pathlib import Path

import pytest

from services.watcher.certificates import make_pair
from services.webhook.certificate import Certificate, FromFolder
from services.webhook.tls_options import server_context
from shared.config.configuration import Tls
from shared.config.settings import SettingsError
from shared.config.tls_names import CIPHER_SUITES, CURVES

ONE = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"
OTHER = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    data = make_pair(("localhost", "127.0.0.1"), datetime.now(UTC)).secret_data()
    for name in ("tls.crt", "tls.key"):
        (tmp_path / name).write_bytes(base64.b64decode(data[name]))
    return tmp_path


async def agreed(
    folder: Path, tls: Tls, highest: ssl.TLSVersion, ciphers: str = "", curve: str = ""
) -> tuple[str, str]:
    """Version and cipher that a client and the server agree on. Raises ssl.SSLError or OSError if they do not."""
    certificate = Certificate(FromFolder(folder), tls=tls)
    reading = asyncio.create_task(certificate.run())
    await asyncio.wait_for(certificate.ready.wait(), 5)
    client = ssl.create_default_context()
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    client.maximum_version = highest
    if ciphers:
        client.set_ciphers(ciphers)
    if curve:
        client.set_ecdh_curve(curve)

    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    try:
        async with await asyncio.start_server(hang_up, "127.0.0.1", 0, ssl=certificate.context) as server:
            port = server.sockets[0].getsockname()[1]
            _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client)
            found = writer.get_extra_info("ssl_object")
            said = (str(found.version()), str(found.cipher()[0]))
            writer.close()
    finally:
        reading.cancel()
    return said


V12, V13 = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3


async def test_both_versions_unless_told_otherwise(folder: Path) -> None:
    assert (await agreed(folder, Tls(), V13))[0] == "TLSv1.3"
    assert (await agreed(folder, Tls(), V12))[0] == "TLSv1.2"


async def test_the_lowest_version(folder: Path) -> None:
    only13 = Tls(min_version="VersionTLS13")
    assert (await agreed(folder, only13, V13))[0] == "TLSv1.3"
    with pytest.raises(OSError):
        await agreed(folder, only13, V12)


async def test_the_chosen_suites_are_all_there_is_with_tls_1_2(folder: Path) -> None:
    tls = Tls(cipher_suites=(ONE,))
    assert (await agreed(folder, tls, V12))[1] == CIPHER_SUITES[ONE]
    with pytest.raises(OSError):
        await agreed(folder, tls, V12, ciphers=CIPHER_SUITES[OTHER])


async def test_suites_of_tls_1_3_alone_leave_nothing_for_1_2(folder: Path) -> None:
    tls = Tls(cipher_suites=("TLS_AES_128_GCM_SHA256",))
    assert (await agreed(folder, tls, V13))[0] == "TLSv1.3"
    with pytest.raises(OSError):
        await agreed(folder, tls, V12)


async def test_one_curve_is_the_only_one(folder: Path) -> None:
    tls = Tls(curve_preferences=(24,))
    assert (await agreed(folder, tls, V13, curve="secp384r1"))[0] == "TLSv1.3"
    with pytest.raises(OSError):
        await agreed(folder, tls, V13, curve="prime256v1")


def test_what_this_openssl_has_not_is_told_before_anything_is_served() -> None:
    with pytest.raises(SettingsError, match=r"tls\.cipherSuites: OpenSSL .* has none of them"):
        server_context(Tls(cipher_suites=("TLS_RSA_WITH_RC4_128_SHA",)))


@pytest.mark.parametrize("number", list(CURVES))
def test_a_curve_is_used_or_refused_by_name(number: int) -> None:
    try:
        # Which ones there are depends on OpenSSL and on Python: some of 3.11 take none but the older kind.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).set_ecdh_curve(CURVES[number])
    except (ssl.SSLError, ValueError):
        with pytest.raises(SettingsError, match=rf"cannot use {CURVES[number]} \({number}\)"):
            server_context(Tls(curve_preferences=(number,)))
    else:
        server_context(Tls(curve_preferences=(number,)))


def test_the_curves_of_old_are_always_there() -> None:
    for number in (23, 24, 25):
        server_context(Tls(curve_preferences=(number,)))


def test_every_suite_that_openssl_has_is_the_one_that_is_meant() -> None:
    for iana, name in CIPHER_SUITES.items():
        try:
            context = server_context(Tls(cipher_suites=(iana,)))
        except SettingsError:
            assert any(old in iana for old in ("RC4", "3DES"))
            continue
        offered = [c for c in context.get_ciphers() if c["protocol"] != "TLSv1.3"]
        assert [c["name"] for c in offered] == [name]
