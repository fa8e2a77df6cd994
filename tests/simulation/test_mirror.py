"""OBJECTS against the API server: what is missing, older, or gone and still there."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from shared.bus.jetstream import stream_config
from shared.events import objects, streams, subjects
from shared.events.objects import Object, Tombstone
from shared.events.subjects import ObjectName
from shared.kube.resources import CLUSTER_QUEUES
from shared.testing.simulated_api import SimulatedApi
from shared.testing.simulated_bus import SimulatedBroker
from tests.integration.stack.manifests import cluster_queue
from tests.simulation.invariants import projected
from tests.simulation.mirror import stale
from tests.simulation.scenario import find

NAME = ObjectName("clusterqueue", "", "cq")


class Both:
    """An API server with one ClusterQueue, and a server that has OBJECTS."""

    def __init__(self) -> None:
        self.api = SimulatedApi(lambda: 0.0, Random(1))
        self.broker = SimulatedBroker(lambda: 0.0, Random(1))
        (config,) = (s for s in streams.STREAMS if s.name == "OBJECTS")
        self.stream = self.broker.make_stream(stream_config(config, 1))
        self.api.create(CLUSTER_QUEUES, cluster_queue("cq", "4"))

    def projection(self) -> Object:
        found = find(self.api, CLUSTER_QUEUES, "", "cq")
        assert found is not None
        return projected("clusterqueue", found)

    def say(self, what: Object) -> None:
        self.stream.store(subjects.objects(*NAME), objects.codec.encode(what), None, now=0.0, stamp=0)

    def wrong(self) -> list[str]:
        found = stale(self.api, self.broker)
        assert all(name == NAME for name, _ in found)
        return [why for _, why in found]


@pytest.fixture
def both() -> Both:
    return Both()


def test_what_is_there_as_it_is(both: Both) -> None:
    both.say(both.projection())
    assert both.wrong() == []


def test_another_version_with_the_same_content_is_true(both: Both) -> None:
    both.say(msgspec.structs.replace(both.projection(), version=1, generation=7))
    assert both.wrong() == []


def test_what_is_there_and_not_told(both: Both) -> None:
    assert both.wrong() == ["OBJECTS does not know it"]
    both.say(Tombstone(name="cq", uid="u", version=1))
    assert both.wrong() == ["OBJECTS does not know it"]
    both.broker.drop_stream("OBJECTS")
    assert both.wrong() == ["OBJECTS does not know it"]


def test_what_is_told_otherwise_than_it_is(both: Both) -> None:
    both.say(both.projection())
    both.api.write(CLUSTER_QUEUES, "", "cq", {"spec": {"stopPolicy": "Hold"}}, user="user")
    (why,) = both.wrong()
    assert why.startswith("OBJECTS holds version ")
    both.say(both.projection())
    assert both.wrong() == []


def test_what_is_gone_and_still_told(both: Both) -> None:
    both.say(both.projection())
    both.api.delete(CLUSTER_QUEUES, "", "cq", user="user")
    (why,) = both.wrong()
    assert why.startswith("it is gone")
    both.say(Tombstone(name="cq", uid="u", version=99))
    assert both.wrong() == []
