"""The contract over the simulated API server."""

from __future__ import annotations

import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from shared.kube.resources import NAMESPACES
from shared.testing.simulated_api import SimulatedApi
from tests.contract.kube import deleting, watching, writing
from tests.contract.kube.server import Document, Review
from tests.contract.kube.writing import api

__all__ = ["api"]


class Simulated:
    def __init__(self) -> None:
        self.api = SimulatedApi(time.time, random.Random(1), gc_delay_s=(0.0, 0.02))
        self.namespace = "team"
        self.api.create(NAMESPACES, {"metadata": {"name": self.namespace}})
        self.client = self.api.client()

    async def expired_version(self) -> int:
        version = self.api.version
        self.api.create(NAMESPACES, {"metadata": {"name": "another"}})
        self.api.compact()
        return version

    @asynccontextmanager
    async def webhook(self, kind: str, rules: Document, review: Review) -> AsyncIterator[None]:
        yield


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


class TestNamespaces(deleting.Namespaces):
    pass
