"""Three real servers as the credentials Job configures them: TLS to and between them, every stream on all; one of them dies and nothing is lost."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from cli import nats_certificates
from cli.nats_credentials import TLS_FOLDER, hosts_of, server_of
from devcluster.ports import free_ports
from devcluster.processes import Command, ManagedProcess
from shared.bus.interface import Appended
from shared.bus.nats_bus import connect
from shared.bus.server_binary import nats_binary
from shared.bus.server_config import ensure_passwords, render
from shared.events import streams
from shared.events.decisions import Batch, Positions
from tests.contract.bus.messages import workload
from tests.eventually import eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

WITHIN_S = 60.0
SIZE = 3


class Servers:
    """What the Job would write, with files and addresses of this machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports = free_ports(2 * SIZE)
        self.passwords = ensure_passwords(folder / "credentials", (*streams.SERVICES, streams.READER))
        made = nats_certificates.make(("127.0.0.1", *hosts_of("kueue-system")), datetime.now(UTC))
        for name, text in (("ca.crt", made.ca), ("tls.crt", made.certificate), ("tls.key", made.key)):
            (folder / name).write_text(text)
        self.processes = [self._process(n) for n in range(SIZE)]

    @property
    def url(self) -> str:
        return ",".join(f"tls://127.0.0.1:{port}" for port in self.ports[:SIZE])

    @property
    def trust(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.folder / "ca.crt"))

    def _process(self, number: int) -> ManagedProcess:
        shipped = msgspec.structs.replace(server_of("kueue-system", SIZE), monitor="")
        assert shipped.cluster is not None
        moved = msgspec.structs.replace(shipped, host="127.0.0.1", port=self.ports[number])
        text = render(moved, self.passwords).replace(TLS_FOLDER, str(self.folder))
        text = text.replace('"/data"', f'"{self.folder}/data-{number}"')
        text = text.replace("0.0.0.0:6222", f"127.0.0.1:{self.ports[SIZE + number]}")
        for n, route in enumerate(shipped.cluster.routes):
            text = text.replace(route, f"tls://127.0.0.1:{self.ports[SIZE + n]}")
        file = self.folder / f"nats-{number}.conf"
        file.write_text(text)
        # As the manifest starts them.
        arguments = ("--config", str(file), "--name", f"sluice-nats-{number}")
        return ManagedProcess(Command(f"nats-{number}", nats_binary(), arguments), self.folder / f"nats-{number}.log")


@pytest.fixture
async def servers(tmp_path: Path) -> AsyncIterator[Servers]:
    servers = Servers(tmp_path)
    async with AsyncExitStack() as stack:
        for process in servers.processes:
            await process.start()
            stack.push_async_callback(process.stop)
        yield servers


async def test_one_of_three_servers_dies(servers: Servers) -> None:
    url, passwords, trust = servers.url, servers.passwords, servers.trust
    async with asyncio.timeout(WITHIN_S):
        gateway = await connect(
            "watcher", url, "watcher", passwords["watcher"], gateway=True, tls=trust, stream_replicas=SIZE
        )
        scheduler = await connect("scheduler", url, "scheduler", passwords["scheduler"], tls=trust)
    try:

        async def made() -> bool:
            try:
                await gateway.ensure_streams()
            except (OSError, RuntimeError, TimeoutError, LookupError) as error:
                print(error)
                return False
            return True

        # They have to find each other first.
        assert await eventually(made, WITHIN_S)
        await gateway.open_epoch(shard="0", epoch=1, objects_position=0, why="test")
        await gateway.put_objects([workload("a", 1)])
        assert await scheduler.append(_batch(1)) == Appended(2)
        kept, log = gateway.identities, gateway.log(shard="0", epoch=1, after=0)
        read: list[int] = []
        while len(read) < 2:
            read += [entry.position for entry in await anext(log)]
        # Whichever it is: what it had acknowledged is on the others too, and nobody has to start over.
        await servers.processes[0].stop()

        async def appended() -> bool:
            return await scheduler.append(_batch(2)) == Appended(3)

        assert await eventually(appended, WITHIN_S)
        await gateway.put_objects([workload("b", 2)])
        assert {o.name for _, o in (await gateway.load_objects()).values()} >= {"a", "b"}
        assert await gateway.check_streams(applied=3, epoch=1, known=kept, objects_position=2) == ""
        while len(read) < 3:
            read += [entry.position for entry in await anext(log)]
        assert read == [1, 2, 3]
        await log.aclose()  # type: ignore[attr-defined]
    finally:
        await gateway.close()
        await scheduler.close()


async def test_without_a_certificate_of_the_cluster_nobody_is_a_server_of_it(servers: Servers) -> None:
    foreign = nats_certificates.make(("127.0.0.1",), datetime.now(UTC))
    for name, text in (("other.crt", foreign.certificate), ("other.key", foreign.key)):
        (servers.folder / name).write_text(text)

    async def answer(certificate: str) -> str:
        context = servers.trust
        context.load_cert_chain(servers.folder / f"{certificate}.crt", servers.folder / f"{certificate}.key")
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", servers.ports[SIZE], ssl=context)
        except OSError:
            return "not started yet"
        try:
            return "taken" if await reader.readline() else "refused"
        except (ssl.SSLError, ConnectionError):
            return "refused"
        finally:
            writer.close()

    async def started() -> str:
        return await answer("tls")

    assert await eventually(started, WITHIN_S, lambda said: said == "taken") == "taken"
    assert await answer("other") == "refused"


def _batch(after: int) -> Batch:
    return Batch(author="scheduler", positions=Positions(epoch=1, decisions=after), decided_ns=1)
