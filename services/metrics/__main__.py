"""`python -m services.metrics`."""

from services.metrics.service import serve
from services.metrics.settings import MetricsSettings
from shared.runtime.service import run

if __name__ == "__main__":
    run("metrics", MetricsSettings, serve)
