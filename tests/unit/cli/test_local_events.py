"""Where an all-in-one on this machine publishes events is found by its API server, while it runs."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from cli import local_events, run_records
from cli.all_in_one import FOLDER_PREFIX
from cli.service_environment import Place
from devcluster.state import identify
from shared.runtime.overview import Address


@pytest.fixture(autouse=True)
def _own_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@contextlib.contextmanager
def running(parent: Path, name: str, server: str, age_s: float = 0.0) -> Iterator[None]:
    """The folder of one, as long as the body runs."""
    folder = parent / f"{FOLDER_PREFIX}{name}"
    (folder / "credentials").mkdir(parents=True)
    (folder / "credentials" / "events_reader.password").write_text("a/b@c\n")
    place = Place(
        nats_url="nats://127.0.0.1:4000",
        credentials=folder / "credentials",
        ports={},
        namespace="own",
        webhook=Address("127.0.0.1", 9443),
        webhook_url="",
    )
    local_events.write(folder, msgspec.structs.replace(place, nats_url=f"nats://127.0.0.1:{name}"), server)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        os.utime(folder, (folder.stat().st_mtime - age_s,) * 2)
        yield


def test_of_the_same_server_the_newest(tmp_path: Path) -> None:
    place = tmp_path / "temporary"
    with running(place, "1", "https://a", age_s=9), running(place, "2", "https://a"), running(place, "3", "https://b"):
        # The password is one word of the address, whatever is in it.
        assert local_events.url_for("https://a") == "nats://events_reader:a%2Fb%40c@127.0.0.1:2"
        assert local_events.url_for("https://b").endswith(":3")
        assert local_events.url_for("https://c") == ""
    # Their folders are still there, as after a kill; nobody lives in them.
    assert local_events.url_for("https://a") == ""


def test_that_of_a_sluice_up(tmp_path: Path) -> None:
    folder = tmp_path / "up"
    directory = tmp_path / "state" / "sluice" / "up"
    directory.mkdir(parents=True)
    record = run_records.Record(identify("sluice up", os.getpid()), str(folder))
    (directory / "1.json").write_bytes(msgspec.json.encode(record))
    (directory / "2.json").write_text("no record")
    with running(folder / local_events.TEMPORARY, "4", "https://a"):
        assert local_events.url_for("https://a").endswith(":4")


def test_one_that_starts_says_nothing_yet(tmp_path: Path) -> None:
    place = tmp_path / "temporary"
    with running(place, "5", "https://a"):
        (place / f"{FOLDER_PREFIX}5" / local_events.FILE).unlink()
        assert local_events.url_for("https://a") == ""
        (place / f"{FOLDER_PREFIX}5" / local_events.FILE).write_text("{")
        assert local_events.url_for("https://a") == ""


def test_only_its_owner_may_read_it(tmp_path: Path) -> None:
    with running(tmp_path, "6", "https://a"):
        assert (tmp_path / f"{FOLDER_PREFIX}6" / local_events.FILE).stat().st_mode & 0o077 == 0
