"""`python -m services.webhook`."""

from services.webhook.service import serve
from services.webhook.settings import WebhookSettings
from shared.runtime.service import run


def main() -> None:
    """Run until stopped."""
    run("webhook", WebhookSettings, serve)


if __name__ == "__main__":
    main()
