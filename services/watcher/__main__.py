"""`python -m services.watcher`."""

from services.watcher.service import serve
from services.watcher.settings import WatcherSettings
from shared.runtime.service import run


def main() -> None:
    run("watcher", WatcherSettings, serve)


if __name__ == "__main__":
    main()
