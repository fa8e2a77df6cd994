"""Admission fair sharing under random histories: bounds, agreement of services, and the order of heads."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.events import objects as o
from shared.model.admission_fair_sharing import AfsSettings, decayed, weighted_usage
from shared.model.world import World
from tests.unit.model.builders import condition, flavor, group, info, local, put, queue, reserved, workload

SETTINGS = AfsSettings(half_life_s=600, sampling_s=300)
NANO = 10**9
USAGE_BASED = "UsageBasedAdmissionFairSharing"

amounts = st.dictionaries(st.sampled_from(["cpu", "memory"]), st.integers(0, 10**6 * NANO), max_size=2)


@given(amounts, amounts, st.floats(0, 10**6), st.floats(0.5, 10**6))
@settings(max_examples=500, deadline=None)
def test_consumption_stays_between_the_past_and_what_runs(
    consumed: dict[str, int], admitted: dict[str, int], elapsed: float, half_life: float
) -> None:
    after = decayed(consumed, admitted, elapsed, half_life)
    for name in {*consumed, *admitted}:
        low, high = sorted((consumed.get(name, 0), admitted.get(name, 0)))
        assert low - 2 - high // 2**50 <= after.get(name, 0) <= high
    assert all(after.values()), "no zeros are kept"


@given(amounts, amounts, st.floats(0, 10**4), st.floats(0, 10**4))
@settings(max_examples=300, deadline=None)
def test_two_samples_are_one_long_one(
    consumed: dict[str, int], admitted: dict[str, int], first: float, second: float
) -> None:
    twice = decayed(decayed(consumed, admitted, first, 600), admitted, second, 600)
    once = decayed(consumed, admitted, first + second, 600)
    for name in {*once, *twice}:
        assert abs(once.get(name, 0) - twice.get(name, 0)) <= 4 + max(once.get(name, 0), twice.get(name, 0)) // 2**45


@given(amounts, amounts, st.floats(0, 100))
def test_usage_grows_with_consumption(consumed: dict[str, int], more: dict[str, int], weight: float) -> None:
    total = {name: consumed.get(name, 0) + more.get(name, 0) for name in {*consumed, *more}}
    assert weighted_usage(total, SETTINGS, weight) >= weighted_usage(consumed, SETTINGS, weight)


# --- histories -----------------------------------------------------------------------------------------------------

NAMES = [f"w{n}" for n in range(6)]
QUEUES = ["a", "b", "c"]

steps = st.lists(
    st.tuples(
        st.sampled_from(["push", "assume", "reject", "reserve", "admit", "finish", "delete", "record", "weight"]),
        st.sampled_from(NAMES),
        st.sampled_from(QUEUES),
        st.integers(0, 5),
    ),
    max_size=30,
)


class History:
    """Applies steps to a World that decides (knows decisions) and one that only sees objects."""

    def __init__(self) -> None:
        self.decider, self.follower = (World(afs=SETTINGS) for _ in range(2))
        self.local: dict[str, o.LocalQueue] = {
            name: local(name, "cq", consumed={"cpu": str(place)}, consumed_at=0) for place, name in enumerate(QUEUES)
        }
        self.objects: dict[str, o.Workload] = {}
        self.now = 0
        for world in (self.decider, self.follower):
            world.set_namespace("ns", {})
            world.set_resource_flavor(flavor("default"))
            put(world, queue("cq", group(default="cpu=1000"), admission_mode=USAGE_BASED), *self.local.values())

    def show(self, one: o.Object) -> None:
        put(self.decider, one)
        put(self.follower, one)

    def do(self, step: str, name: str, local_queue: str, number: int) -> None:
        self.now += 60
        key, held = f"ns/{name}", self.objects.get(name)
        getattr(self, f"do_{step}")(name, key, held, local_queue, number)

    def do_push(self, name: str, key: str, held: o.Workload | None, local_queue: str, number: int) -> None:
        if held is None:
            self.objects[name] = workload(name, local_queue, cpu=str(1 + number), priority=number, created=number)
            self.show(self.objects[name])

    def do_assume(self, name: str, key: str, held: o.Workload | None, local_queue: str, number: int) -> None:
        if held is not None and held.admission is None and key not in self.decider.assumed:
            admission = info(self.holding(held)).admission
            assert admission is not None
            self.decider.assume(key, admission)

    def do_reject(self, name: str, key: str, held: o.Workload | None, local_queue: str, number: int) -> None:
        if held is not None and held.admission is None:
            self.decider.settle(key, self.now)

    def do_reserve(self, name: str, key: str, held: o.Workload | None, local_queue: str, number: int) -> None:
        if held is not None and key in self.decider.assumed and held.admission is None:
            self.objects[name] = self.holding(held)
            self.show(self.objects[name])

    def do_admit(self, name: str, key: str, held: o.Workload | None, local_queue: str, number: int) -> None:
        if held is None or key not in self.decider.assumed:
            return
        base = held if held.admission is not None else self.holding(held)
        runs = condition("Admitted", True, "Admitted", self.now)
        self.objects[name] = msgspec.structs.replace(base, conditions=(*base.conditions, runs))
        self.show(self.objects[name])
        self.decider.settle(key, self.now)

    def do_finish(self, name: str, key: str, held: o.Workload | None, local_queue: str, number: int) -> None:
        if held is not None:
            self.show(msgspec.structs.replace(held, finished=True))
            del self.objects[name]

    def do_delete(self, name: str, key: str, held: o.Workload | None, local_queue: str, number: int) -> None:
        if held is not None:
            self.decider.delete(key)
            self.follower.delete(key)
            del self.objects[name]

    def do_record(self, name: str, key: str, held: o.Workload | None, local_queue: str, number: int) -> None:
        """The service that follows objects writes the status; both read it."""
        afs = self.follower.afs
        assert afs is not None
        record = afs.sampled(f"ns/{local_queue}", self.now)
        texts = {resource: f"{nano}n" for resource, nano in record.consumed.items()}
        at = int(record.updated)
        self.local[local_queue] = msgspec.structs.replace(self.local[local_queue], consumed=texts, consumed_at=at)
        self.show(self.local[local_queue])

    def do_weight(self, name: str, key: str, held: o.Workload | None, local_queue: str, number: int) -> None:
        self.local[local_queue] = msgspec.structs.replace(self.local[local_queue], fair_weight=str(number))
        self.show(self.local[local_queue])

    def holding(self, held: o.Workload) -> o.Workload:
        cpu = int(held.pod_sets[0].containers[0].requests["cpu"])
        return reserved(held, "cq", cpu=cpu * 1000)


@given(steps)
@settings(max_examples=300, deadline=None)
def test_services_agree_once_nothing_is_undecided(history: list[tuple[str, str, str, int]]) -> None:
    made = History()
    for step in history:
        made.do(*step)
    for name, held in list(made.objects.items()):
        if not any(one.type == "Admitted" for one in held.conditions):
            made.do("delete", name, "a", 0)
    for world in (made.decider, made.follower):
        assert world.afs is not None
    for local_queue in QUEUES:
        key = f"ns/{local_queue}"
        assert made.decider.afs.usage(key) == made.follower.afs.usage(key)  # type: ignore[union-attr]
        assert made.decider.afs.sampled(key, 10**6) == made.follower.afs.sampled(key, 10**6)  # type: ignore[union-attr]


@given(steps)
@settings(max_examples=300, deadline=None)
def test_the_head_has_the_smallest_usage_then_the_usual_order(history: list[tuple[str, str, str, int]]) -> None:
    made = History()
    for step in history:
        made.do(*step)
        world = made.decider
        afs: Any = world.afs
        waiting = [item.info for item in world.pending.queues["cq"].heap.values()]
        expected = sorted(waiting, key=lambda one: (afs.usage(one.queue_key), -one.priority, one.created, one.uid))
        assert [item.info.key for item in world.pending.queues["cq"].items()] == [one.key for one in expected]
        head = world.pending.pop("cq")
        assert (head.key if head is not None else None) == (expected[0].key if expected else None)
        if head is not None:
            world.pending.give_back("cq", head)
