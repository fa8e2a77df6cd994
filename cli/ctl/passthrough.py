"""Commands that kubectl has: the same words go to kubectl, which takes over this process."""

from __future__ import annotations

import os
import shutil
import sys

from cli.ctl.cluster import CommandError


def to_kubectl(verb: str) -> None:
    """Run kubectl with our arguments unchanged; does not return. Raises CommandError without kubectl."""
    program = shutil.which("kubectl")
    if program is None:
        path = os.environ.get("PATH", "")
        raise CommandError(f'pass-through command are not available: kubectl is not found for {verb}, PATH="{path}"')
    os.execv(program, [program, *sys.argv[1:]])
