"""`python -m services.webhook`."""

from services.webhook.service import serve
from services.webhook.settings import WebhookSettings
from shared.runtime.service import run

if __name__ == "__main__":
    run("webhook", WebhookSettings, serve)
