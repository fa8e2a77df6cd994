"""`python -m services.metrics`."""

from services.metrics.service import serve
from services.metrics.settings import MetricsSettings
from shared.runtime.service import run


def main() -> None:
    """Run until stopped."""
    run("metrics", MetricsSettings, serve)


if __name__ == "__main__":
    main()
