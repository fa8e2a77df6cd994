"""Wiring of preemptor."""

from __future__ import annotations

from services.preemptor.service import serve
from services.preemptor.settings import PreemptorSettings
from shared.runtime.service import run


def main() -> None:
    """Run until stopped."""
    run("preemptor", PreemptorSettings, serve)


if __name__ == "__main__":
    main()
