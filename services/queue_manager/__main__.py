"""Wiring of queue_manager."""

from __future__ import annotations

from services.queue_manager.service import serve
from services.queue_manager.settings import QueueManagerSettings
from shared.runtime.service import run


def main() -> None:
    """Run until stopped."""
    run("queue_manager", QueueManagerSettings, serve)


if __name__ == "__main__":
    main()
