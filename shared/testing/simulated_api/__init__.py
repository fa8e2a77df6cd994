"""A simulated Kubernetes API server: resourceVersions, watches, admission and deletion as the real one does them, in memory and in virtual time.

tests/contract/kube runs one body of tests over it and over a real server. Not simulated: schemas, managedFields, permissions, list types of apply.
"""

from shared.testing.simulated_api.admission import Webhook, shipped_webhooks, webhooks_of
from shared.testing.simulated_api.faults import Call, Fault, Late, Refuse, TimeOut
from shared.testing.simulated_api.server import SimulatedApi
from shared.testing.simulated_api.storage import Commit

__all__ = [
    "Call",
    "Commit",
    "Fault",
    "Late",
    "Refuse",
    "SimulatedApi",
    "TimeOut",
    "Webhook",
    "shipped_webhooks",
    "webhooks_of",
]
