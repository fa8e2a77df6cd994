"""The contract over the simulated API server."""

from __future__ import annotations

import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from shared.kube.resources import NAMESPACES
from shared.testing.simulated_api import SimulatedApi, webhooks_of
from tests.contract.kube import admitting, deleting, watching, writing
from tests.contract.kube.server import Review, respond, webhook_configuration
from tests.contract.kube.writing import api

__all__ = ["api"]


class Simulated:
    def __init__(self) -> None:
        self.api = SimulatedApi(time.time, random.Random(1), gc_delay_s=(0.0, 0.02))
        self.namespace = "team"
        self.api.create(NAMESPACES, {"metadata": {"name": self.namespace}})
        self.user = "contract-user"
        self.client = self.api.client(user=self.user)

    async def expired_version(self) -> int:
        version = self.api.version
        self.api.create(NAMESPACES, {"metadata": {"name": "another"}})
        self.api.compact()
        return version

    async def restart(self) -> None:
        self.api.restart()

    @asynccontextmanager
    async def webhook(self, kind: str, review: Review, **fields: object) -> AsyncIterator[None]:
        configuration = webhook_configuration(kind, "hook", self.namespace, fields)
        made = webhooks_of(configuration, lambda _, body: respond(body, review))
        self.api.webhooks += made
        yield
        self.api.webhooks = [webhook for webhook in self.api.webhooks if webhook not in made]


@pytest.fixture
async def server() -> AsyncIterator[Simulated]:
    made = Simulated()
    yield made
    assert made.api.open_watches() == 0


class TestCreating(writing.Creating):
    pass


class TestPatching(writing.Patching):
    pass


class TestPutting(writing.Putting):
    pass


class TestDryRuns(writing.DryRuns):
    pass


class TestApplying(writing.Applying):
    pass


class TestRules(writing.Rules):
    pass


class TestListing(watching.Listing):
    pass


class TestWatching(watching.Watching):
    pass


class TestDeleting(deleting.Deleting):
    pass


class TestOwning(deleting.Owning):
    pass


class TestRestarting(watching.Restarting):
    pass


class TestAdmitting(admitting.Admitting):
    pass


class TestNamespaces(deleting.Namespaces):
    pass
