"""Makes the configuration file of the NATS server, and the users' credentials, from the table of streams.

    python -m shared.bus.server_config --out DIR

writes `nats-server.conf` and, for each user, `<user>.env` and `<user>.password`, all readable by their owner alone. Passwords that are there already are
kept, so that running it again changes nothing that is in use. Nothing secret is printed or logged.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import secrets
import signal
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from shared.bus.permissions import Permissions, of_reader, of_service, reader_imports
from shared.events import streams

SERVICES_ACCOUNT = "SLUICE"
MAX_PAYLOAD = 4 << 20


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """How a server meets the others of its cluster: `routes` are `tls://host:port` of all of them, itself included. Both sides show their certificate."""

    listen: str
    routes: tuple[str, ...]
    cert_file: str
    key_file: str
    ca_file: str

    def block(self) -> str:
        """Of the configuration file. Clients are not told of other servers: they were given all of them by names that the certificate has."""
        tls = f"cert_file: {json.dumps(self.cert_file)}, key_file: {json.dumps(self.key_file)}, ca_file: {json.dumps(self.ca_file)}"
        lines = [
            "  name: sluice",
            f"  listen: {json.dumps(self.listen)}",
            "  no_advertise: true",
            f"  tls: {{ {tls}, verify: true }}",
            f"  routes: {_list(self.routes)}",
        ]
        return "cluster: {\n" + "\n".join(lines) + "\n}"


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """Where the server listens and keeps its data; certificates are paths as the server sees them. `sync_always`: a stored message survives the host."""

    store_dir: str
    host: str = "127.0.0.1"
    port: int = 4222
    monitor: str = ""
    """`host:port` of the HTTP monitoring, none if empty."""
    name: str = "sluice"
    cert_file: str = ""
    key_file: str = ""
    ca_file: str = ""
    sync_always: bool = False
    cluster: Cluster | None = None
    """One of several servers; `name` is then given to each on its command line."""
    extra: str = ""
    """Further lines."""


def _list(values: tuple[str, ...]) -> str:
    return "[" + ", ".join(json.dumps(v) for v in values) + "]"


def _user(permissions: Permissions, password: str) -> str:
    # An empty allow list would allow everything.
    publish = f"allow: {_list(permissions.publish)}" if permissions.publish else 'deny: ">"'
    lines = [
        f"      {{ user: {json.dumps(permissions.user)}, password: {json.dumps(password)}, permissions: {{",
        f"        publish: {{ {publish} }}",
        f"        subscribe: {{ allow: {_list(permissions.subscribe)} }}",
    ]
    if permissions.responses:
        lines.append('        allow_responses: { max: 1, expires: "30s" }')
    return "\n".join([*lines, "      } }"])


def render(server: Server, passwords: Mapping[str, str], readers: Mapping[str, tuple[str, ...]] | None = None) -> str:
    """The file's text. `passwords`: user -> plain or bcrypt'd password, for every service and reader. `readers`: user -> namespaces whose events it may
    see (none: all), each in an account of its own; by default one for all namespaces."""
    readers = {streams.READER: ()} if readers is None else readers
    users = "\n".join(_user(of_service(s), passwords[s]) for s in streams.SERVICES)
    exports = "\n".join(
        f'      {{ stream: "{subject}" }}'
        for subject in sorted({s for namespaces in readers.values() for s in reader_imports(namespaces)})
    )
    accounts = [
        f"  {SERVICES_ACCOUNT}: {{\n    jetstream: enabled\n    users: [\n{users}\n    ]\n    exports: [\n{exports}\n    ]\n  }}"
    ]
    for number, (user, namespaces) in enumerate(sorted(readers.items())):
        imports = "\n".join(
            f'      {{ stream: {{ account: {SERVICES_ACCOUNT}, subject: "{subject}" }} }}'
            for subject in reader_imports(namespaces)
        )
        one = _user(of_reader(user, namespaces), passwords[user])
        accounts.append(f"  READER_{number}: {{\n    users: [\n{one}\n    ]\n    imports: [\n{imports}\n    ]\n  }}")
    parts = [
        f"server_name: {json.dumps(server.name)}",
        f"listen: {json.dumps(f'{server.host}:{server.port}')}",
        f"max_payload: {MAX_PAYLOAD}",
        "ping_interval: 10s",
        f"jetstream: {{ store_dir: {json.dumps(server.store_dir)}, max_memory_store: 256MB, max_file_store: 16GB"
        + (", sync_interval: always }" if server.sync_always else " }"),
        "accounts: {\n" + "\n".join(accounts) + "\n}",
    ]
    if server.monitor:
        parts.append(f"http: {json.dumps(server.monitor)}")
    if server.cert_file:
        ca = f", ca_file: {json.dumps(server.ca_file)}" if server.ca_file else ""
        parts.append(
            f"tls: {{ cert_file: {json.dumps(server.cert_file)}, key_file: {json.dumps(server.key_file)}{ca} }}"
        )
    if server.cluster is not None:
        parts.append(server.cluster.block())
    if server.extra:
        parts.append(server.extra)
    return "\n".join(parts) + "\n"


def hasher() -> Callable[[str], str]:
    """bcrypt where it is installed, else the identity: passwords are random and the file is its owner's.
    Cheap rounds do, since nobody guesses 192 random bits."""
    try:
        bcrypt = importlib.import_module("bcrypt")
    except ModuleNotFoundError:
        return str
    return lambda password: str(bcrypt.hashpw(password.encode(), bcrypt.gensalt(4, prefix=b"2a")).decode())


def write_private(path: Path, text: str) -> None:
    """Readable by its owner alone, from its first byte; replaces atomically."""
    scratch = path.with_name(path.name + ".new")
    descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(text)
    scratch.replace(path)


def ensure_passwords(directory: Path, users: tuple[str, ...]) -> dict[str, str]:
    """user -> plain password: read from `<user>.password`, or made and written there and, as SLUICE_NATS_USER and SLUICE_NATS_PASSWORD, to `<user>.env`."""
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    passwords = {}
    for user in users:
        file = directory / f"{user}.password"
        if not file.exists():
            password = secrets.token_urlsafe(24)
            write_private(directory / f"{user}.env", f"SLUICE_NATS_USER={user}\nSLUICE_NATS_PASSWORD={password}\n")
            write_private(file, password)
        passwords[user] = file.read_text().strip()
    return passwords


def write_config(directory: Path, server: Server, readers: Mapping[str, tuple[str, ...]] | None = None) -> Path:
    """Credentials and `nats-server.conf` in `directory`; returns the path of the latter."""
    readers = {streams.READER: ()} if readers is None else readers
    passwords = ensure_passwords(directory, (*streams.SERVICES, *readers))
    digest = hasher()
    config = directory / "nats-server.conf"
    write_private(config, render(server, {u: digest(p) for u, p in passwords.items()}, readers))
    return config


def _readers(values: list[str]) -> dict[str, tuple[str, ...]] | None:
    """`name` or `name=ns1,ns2` each."""
    if not values:
        return None
    split = (v.partition("=") for v in values)
    return {name: tuple(n for n in namespaces.split(",") if n) for name, _, namespaces in split}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m shared.bus.server_config", description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="directory of the files")
    parser.add_argument("--store-dir", default="/data", help="where the server keeps its streams")
    parser.add_argument("--host", default="0.0.0.0", help="address to listen on")
    parser.add_argument("--port", type=int, default=4222)
    parser.add_argument("--monitor", default="", help="host:port of HTTP monitoring")
    parser.add_argument("--tls-cert", default="")
    parser.add_argument("--tls-key", default="")
    parser.add_argument("--tls-ca", default="")
    parser.add_argument("--sync-always", action="store_true", help="sync each write to disk")
    parser.add_argument("--stay", action="store_true", help="end with a signal only, as a container that others need")
    parser.add_argument("--reader", action="append", default=[], help="an outside reader: NAME, or NAME=NAMESPACE,...")
    given = parser.parse_args(arguments)
    server = Server(
        store_dir=given.store_dir,
        host=given.host,
        port=given.port,
        monitor=given.monitor,
        cert_file=given.tls_cert,
        key_file=given.tls_key,
        ca_file=given.tls_ca,
        sync_always=given.sync_always,
    )
    # Blocked before anybody can send one: the first process of a container would not even die of it.
    signals = {signal.SIGTERM, signal.SIGINT}
    if given.stay:
        signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    print(write_config(given.out, server, _readers(given.reader)), flush=True)
    if given.stay:
        signal.sigwait(signals)


if __name__ == "__main__":
    main()
