"""`sluice <service>`: one service in this very process, so that a debugger can hold it, beside an all-in-one that runs without it."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from cli.all_in_one import running_folders
from cli.service_environment import environment_file


def run(service: str) -> int:
    """Until it ends; settings come from the environment."""
    importlib.import_module(f"services.{service}.__main__").main()
    return 0


def print_environment(service: str, folder: Path | None) -> int:
    """`export` lines for a shell; the exit code."""
    folders = [folder] if folder is not None else running_folders()
    for candidate in folders:
        file = environment_file(candidate, service)
        if file.is_file():
            sys.stdout.write(file.read_text())
            return 0
    sys.stderr.write("sluice: no all-in-one runs here that could tell\n")
    return 1
