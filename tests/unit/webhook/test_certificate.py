"""The serving certificate: taken from the Secret, replaced while serving, never half."""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography import x509

from services.watcher.certificates import make_pair
from services.webhook.certificate import Certificate, FromFolder, FromSecret
from shared.kube.resources import SECRETS
from tests.unit.kube.api_server import ApiServer, client_of, until

HOSTS = ("localhost", "127.0.0.1")


def data_of() -> dict[str, str]:
    return make_pair(HOSTS, datetime.now(UTC)).secret_data()


def serial(data: dict[str, str]) -> int:
    return x509.load_pem_x509_certificate(base64.b64decode(data["tls.crt"])).serial_number


async def put(api: ApiServer, data: dict[str, str]) -> None:
    await api.put(SECRETS, {"metadata": {"name": "cert", "namespace": "ns"}, "data": data})


@asynccontextmanager
async def serving(api: ApiServer) -> AsyncIterator[Certificate]:
    async with client_of(api) as client:
        certificate = Certificate(FromSecret(client, "ns", "cert"), refresh_s=0.01)
        reading = asyncio.create_task(certificate.run())
        try:
            yield certificate
        finally:
            reading.cancel()
            with suppress(asyncio.CancelledError):
                await reading


async def shown(certificate: Certificate) -> int:
    """Serial number that a client gets to see."""

    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    trusting = ssl.create_default_context()
    trusting.check_hostname = False
    trusting.verify_mode = ssl.CERT_NONE
    async with await asyncio.start_server(hang_up, "127.0.0.1", 0, ssl=certificate.context) as server:
        port = server.sockets[0].getsockname()[1]
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting)
        der = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        writer.close()
    return x509.load_der_x509_certificate(der).serial_number


def asked(api: ApiServer, more: int) -> Callable[[], bool]:
    """Whether the Secret was read so many times more than now."""
    wanted = len(api.requests) + more
    return lambda: len(api.requests) >= wanted


async def test_waits_for_the_secret_and_then_serves_it() -> None:
    api = ApiServer()
    async with serving(api) as certificate:
        await until(asked(api, 1))
        assert not certificate.ready.is_set()
        data = data_of()
        await put(api, data)
        async with asyncio.timeout(5):
            await certificate.ready.wait()
        assert await shown(certificate) == serial(data)


async def test_a_new_one_is_served_without_a_restart() -> None:
    api = ApiServer()
    await put(api, data_of())
    async with serving(api) as certificate:
        async with asyncio.timeout(5):
            await certificate.ready.wait()
        renewed = data_of()
        await put(api, renewed)
        await until(asked(api, 2))
        assert await shown(certificate) == serial(renewed)


@pytest.mark.parametrize("spoilt", ["tls.crt", "tls.key"])
@pytest.mark.parametrize("instead", ["", base64.b64encode(b"garbage").decode(), "of another pair"])
async def test_what_cannot_be_used_leaves_the_old_one_in_service(spoilt: str, instead: str) -> None:
    api = ApiServer()
    data = data_of()
    await put(api, data)
    async with serving(api) as certificate:
        async with asyncio.timeout(5):
            await certificate.ready.wait()
        await put(api, {**data, spoilt: data_of()[spoilt] if instead == "of another pair" else instead})
        await until(asked(api, 3))
        assert await shown(certificate) == serial(data)
        renewed = data_of()
        await put(api, renewed)
        await until(asked(api, 2))
        assert await shown(certificate) == serial(renewed)


async def test_from_a_folder(tmp_path: Path) -> None:
    data = data_of()
    certificate = Certificate(FromFolder(tmp_path), refresh_s=0.01)
    reading = asyncio.create_task(certificate.run())
    try:
        for name in ("tls.crt", "tls.key"):
            (tmp_path / name).write_bytes(base64.b64decode(data[name]))
        async with asyncio.timeout(5):
            await certificate.ready.wait()
        assert await shown(certificate) == serial(data)
    finally:
        reading.cancel()
        with suppress(asyncio.CancelledError):
            await reading


async def test_a_folder_without_certificate_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tries = 0

    class Counted(FromFolder):
        async def read(self) -> tuple[bytes, bytes]:
            nonlocal tries
            tries += 1
            return await super().read()

    certificate = Certificate(Counted(tmp_path), refresh_s=0.01)
    reading = asyncio.create_task(certificate.run())
    try:
        await until(lambda: tries >= 2)
        assert not certificate.ready.is_set()
        assert len([r for r in caplog.records if "no serving certificate" in r.message]) == 1
    finally:
        reading.cancel()
        with suppress(asyncio.CancelledError):
            await reading
