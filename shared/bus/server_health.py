"""Asks a NATS server of this machine whether it can still write. A stream that met a full disk refuses every write, with room on the disk again as well,
until the server is started again: neither a purge nor an update of the stream changes that. The server's own health says so; its answers to publishers do not.

For whoever owns the process. Blocks for at most ASK_S.
"""

from __future__ import annotations

import http.client
import json
import os
from pathlib import Path

ASK_S = 1.0
ROOM_BYTES = 16 << 20
"""With less on the disk a new start would not help."""
WRITE_ERROR = "write error"


def unwritable(host: str, port: int, store: Path) -> str:
    """The server's word for a stream that it cannot write although the disk of `store` has room; empty if there is none, or the server is not there."""
    connection = http.client.HTTPConnection(host, port, timeout=ASK_S)
    try:
        connection.request("GET", "/healthz")
        found = json.loads(connection.getresponse().read())
        error = str(found.get("error", "")) if isinstance(found, dict) else ""
        disk = os.statvfs(store)
    except (OSError, http.client.HTTPException, ValueError):
        return ""
    finally:
        connection.close()
    return error if WRITE_ERROR in error and disk.f_bavail * disk.f_frsize >= ROOM_BYTES else ""
