"""How many series there are: bounded by the queues, cohorts and classes that there are now, whatever came and went before."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.metrics.settings import MetricsSettings
from shared.bus.interface import CaughtUp, FeedItem, ObjectChanged, Reset
from shared.config.configuration import Configuration, Configured, CustomLabel, Metrics
from shared.config.custom_labels import UNTRACKED
from shared.config.feature_gates import resolve
from shared.events import objects as o
from shared.events.decisions import Positions
from shared.events.subjects import ObjectName
from tests.unit.metrics.test_metrics import EVICTED, FINISHED, PENDING, RELEASED, RESERVED, Service, change

LIFE = (PENDING, RESERVED, EVICTED, RELEASED, RESERVED, FINISHED)
CUSTOM = Configured(
    configuration=Configuration(
        metrics=Metrics(
            custom_labels=(
                CustomLabel(name="team"),
                CustomLabel(name="size", source_kind="Workload", tracked_values=("big", "small")),
            )
        )
    ),
    gates=resolve({"CustomMetricLabels": True}),
)


def queues(number: int, version: int) -> tuple[ObjectChanged, ...]:
    """A ClusterQueue in a cohort of its own, and its LocalQueue."""
    queue = o.ClusterQueue(name=f"cq-{number}", version=version, cohort=f"team-{number}")
    local = o.LocalQueue(namespace="ns", name=f"lq-{number}", version=version, cluster_queue=queue.name)
    return change(queue, "clusterqueue"), change(local, "localqueue")


def gone(kind: str, namespace: str, name: str, version: int) -> ObjectChanged:
    tombstone = o.Tombstone(namespace=namespace, name=name, version=version)
    return ObjectChanged(ObjectName(kind, namespace, name), tombstone, version)


def life(number: int, workload: int, *, labels: dict[str, str] | None = None) -> list[FeedItem]:
    """A workload of that queue from its creation to its end."""
    items: list[FeedItem] = []
    for version, state in enumerate(LIFE, start=10):
        held = None if state.admission is None else o.Admission(cluster_queue=f"cq-{number}")
        own = msgspec.structs.replace(
            state,
            name=f"w-{workload}",
            uid=f"u-{workload}",
            version=version,
            queue_name=f"lq-{number}",
            admission=held,
            labels=labels or {},
        )
        items.append(change(own))
    items.append(gone("workload", "ns", f"w-{workload}", 99))
    return items


def series(service: Service) -> set[tuple[str, tuple[tuple[str, str], ...]]]:
    return {
        (sample.name, tuple(sorted(sample.labels.items())))
        for metric in service.registry.collect()
        for sample in metric.samples
    }


def naming(service: Service, *names: str) -> list[str]:
    """Series that have one of the names as a value."""
    return sorted(name for name, labels in series(service) if {value for _, value in labels} & set(names))


START = (Reset(1, "start"), CaughtUp(Positions(epoch=1)))


def test_many_workloads_make_no_more_series_than_one() -> None:
    service = Service(MetricsSettings(cluster_queue_resources=True))
    service.see(*START, *queues(1, 1), *life(1, 1))
    before = series(service)
    for workload in range(2, 200):
        service.see(*life(1, workload))
    assert series(service) == before


def test_queues_that_came_and_went_leave_nothing() -> None:
    service = Service()
    service.see(*START)
    empty = series(service)
    for number in range(50):
        service.see(*queues(number, 1), *life(number, number))
        assert naming(service, f"cq-{number}", f"lq-{number}", f"team-{number}")
        service.see(
            gone("localqueue", "ns", f"lq-{number}", 100),
            gone("clusterqueue", "", f"cq-{number}", 100),
        )
    assert naming(service, *(f"{what}-{n}" for n in range(50) for what in ("cq", "lq", "team"))) == []
    assert series(service) == empty


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 4)), max_size=30))
@settings(max_examples=60, deadline=None)
def test_series_are_those_of_the_queues_that_there_are(steps: list[tuple[bool, int]]) -> None:
    """In whatever order queues come and go while workloads live in them, late words about workloads of a queue that is gone included."""
    service = Service()
    service.see(*START)
    there: set[int] = set()
    for version, (comes, number) in enumerate(steps, start=1):
        if comes:
            service.see(*queues(number, version))
            there.add(number)
        else:
            service.see(
                gone("localqueue", "ns", f"lq-{number}", version), gone("clusterqueue", "", f"cq-{number}", version)
            )
            there.discard(number)
        service.see(*life(number, version))
    for number in range(5):
        assert bool(naming(service, f"cq-{number}")) is (number in there)
        assert bool(naming(service, f"lq-{number}")) is (number in there)
        assert bool(naming(service, f"team-{number}")) is (number in there)


@pytest.mark.parametrize(("label", "value"), [("big", "big"), ("huge", UNTRACKED), ("", "")])
def test_a_label_of_workloads_has_no_values_but_the_tracked_ones(label: str, value: str) -> None:
    service = Service(configured=CUSTOM)
    service.see(*START, *queues(1, 1))
    service.see(*life(1, 1, labels={"size": label} if label else {})[:3])
    values = {dict(labels)["custom_size"] for _, labels in series(service) if "custom_size" in dict(labels)}
    assert values <= {"", value}
    assert value in values
