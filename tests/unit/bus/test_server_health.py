"""When a server of ours has to be started again: its word for it, and room on its disk."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shared.bus import server_health
from shared.bus.server_health import unwritable

HOST = "127.0.0.1"
BROKEN = (
    b'{"status":"unavailable","error":"JetStream stream \'SLUICE > OUTCOMES\' write error: no space left on device"}'
)


class Says:
    """What the server answers."""

    answer: bytes = b'{"status":"ok"}'


@pytest.fixture
def port() -> Iterator[int]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            assert self.path == "/healthz"
            self.send_response(503 if b"error" in Says.answer else 200)
            self.end_headers()
            self.wfile.write(Says.answer)

        def log_message(self, *_: Any) -> None:
            pass

    server = http.server.HTTPServer((HOST, 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (b'{"status":"ok"}', ""),
        (BROKEN, "JetStream stream 'SLUICE > OUTCOMES' write error: no space left on device"),
        (b'{"status":"unavailable","error":"JetStream stream could not be recovered"}', ""),
        (b"[]", ""),
        (b"not JSON", ""),
    ],
)
def test_only_a_write_error_is_a_reason(
    port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: bytes, found: str
) -> None:
    monkeypatch.setattr(Says, "answer", answer)
    assert unwritable(HOST, port, tmp_path) == found


def test_without_room_a_new_start_would_not_help(port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Says, "answer", BROKEN)
    monkeypatch.setattr(server_health, "ROOM_BYTES", 1 << 62)
    assert unwritable(HOST, port, tmp_path) == ""


def test_a_server_or_disk_that_is_not_there_is_none(port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Says, "answer", BROKEN)
    assert unwritable(HOST, port, tmp_path / "none") == ""
    assert unwritable(HOST, 1, tmp_path) == ""
