"""Where an all-in-one on this machine publishes events: written into its private folder by it, read by `sluice watch` of the same user.

Found for the same API server only: events of another cluster would be believed. A run of `sluice up` keeps its all-in-one below a folder of its own,
which its record names.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import quote

import msgspec

from cli.all_in_one import running_folders
from cli.service_environment import Place
from shared.bus.server_config import write_private
from shared.events.streams import READER

FILE = "events.json"
TEMPORARY = "tmp"
"""Below the folder of a `sluice up`: where its all-in-one has its own."""


class LocalEvents(msgspec.Struct, frozen=True):
    """`server`: base URL of the API server; `url`: NATS address of the reader of public events, password included."""

    server: str
    url: str


def write(folder: Path, place: Place, server: str) -> None:
    """Leave it in the folder, for this user's eyes only."""
    password = (place.credentials / f"{READER}.password").read_text().strip()
    url = place.nats_url.replace("nats://", f"nats://{READER}:{quote(password, safe='')}@", 1)
    write_private(folder / FILE, msgspec.json.encode(LocalEvents(server, url)).decode())


def read(folder: Path) -> LocalEvents | None:
    """None while it has not been written."""
    with contextlib.suppress(OSError, msgspec.DecodeError):
        return msgspec.json.decode((folder / FILE).read_bytes(), type=LocalEvents)
    return None


def url_for(server: str) -> str:
    """Of the newest that runs for this API server; empty if there is none."""
    # Here, so that an all-in-one, which only writes, does not start later for what it imports.
    from cli import run_records

    return _first(running_folders(*(folder / TEMPORARY for folder in run_records.folders())), server)


def _first(folders: Iterable[Path], server: str) -> str:
    found = (read(folder) for folder in folders)
    return next((one.url for one in found if one is not None and one.server == server), "")
