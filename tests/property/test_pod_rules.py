"""Requests that depend on several objects: the same whatever the order in which these come and are edited."""

from __future__ import annotations

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.bus.interface import ObjectChanged
from shared.decide.cycle import run_batch
from shared.decide.requests import DeviceMapping, RequestRules
from shared.events.objects import (
    Container,
    DeviceClass,
    DeviceRequest,
    Object,
    PodClaim,
    ResourceClaimTemplate,
    Tombstone,
)
from shared.state.folding import Fold
from shared.state.validation import snapshot
from tests.unit.state.builders import NOW, basics, limit_range, name_of, reserved, runtime_class, workload

RULES = RequestRules(device_mappings=(DeviceMapping(resource="gpus", classes=("gpu",)),))
CPUS = st.sampled_from(["100m", "1", "2", "5"])


@st.composite
def _limits(draw: st.DrawFn) -> Object:
    item = {field: {"cpu": draw(CPUS)} for field in draw(st.sets(st.sampled_from(["max", "min", "default_request"])))}
    return limit_range(draw(st.sampled_from(["a", "b"])), **item)


@st.composite
def _waiting(draw: st.DrawFn) -> Object:
    asks = draw(st.sampled_from([{}, {"cpu": "1"}, {"cpu": "2"}, {"example.com/gpu": "1"}]))
    pods = {
        "containers": (Container(requests=asks),),
        "runtime_class": draw(st.sampled_from(["", "kata"])),
        "claims": draw(st.sampled_from([(), (PodClaim(name="c", template="two"),)])),
    }
    made = workload(f"w{draw(st.integers(0, 3))}", created=draw(st.integers(0, 2)), pods=pods)
    return reserved(made) if asks == {"cpu": "1"} and draw(st.booleans()) else made


STATES = st.one_of(
    _limits(),
    _waiting(),
    st.builds(runtime_class, cpu=CPUS),
    st.builds(
        lambda resource: DeviceClass(name="gpu", uid="gpu", version=1, extended_resource=resource),
        st.sampled_from(["", "example.com/gpu"]),
    ),
    st.builds(
        lambda count: ResourceClaimTemplate(
            namespace="ns", name="two", uid="two", version=1, requests=(DeviceRequest(device_class="gpu", count=count),)
        ),
        st.integers(1, 3),
    ),
)


@st.composite
def two_orders(draw: st.DrawFn) -> tuple[list[ObjectChanged], list[ObjectChanged]]:
    """The last states of some objects, deletions among them: once behind all earlier states of theirs, once alone and shuffled."""
    history = list(basics())
    history.extend(draw(st.lists(STATES, min_size=1, max_size=14)))
    told: list[ObjectChanged] = []
    last: dict[object, Object] = {}
    for version, state in enumerate(history, start=1):
        # A generation for each edit, as the API server counts them.
        state = msgspec.structs.replace(state, version=version, generation=version)
        name = name_of(state)
        if version > len(basics()) and draw(st.integers(0, 5)) == 0:
            state = Tombstone(namespace=state.namespace, name=state.name, uid=state.uid, version=version)
        last[name] = state
        told.append(ObjectChanged(name, state, version))
    shuffled = draw(st.permutations(sorted(last, key=str)))
    return told, [ObjectChanged(name, last[name], place) for place, name in enumerate(shuffled, start=1)]  # type: ignore[arg-type]


def folded(items: list[ObjectChanged]) -> Fold:
    fold = Fold(rules=RULES)
    for item in items:
        fold.change(item, NOW)
    return fold


@given(two_orders())
@settings(max_examples=300, deadline=None)
def test_the_order_of_edits_changes_nothing(orders: tuple[list[ObjectChanged], list[ObjectChanged]]) -> None:
    first, second = (folded(items) for items in orders)
    assert snapshot(first.world) == snapshot(second.world)
    assert first.faults == second.faults
    decided = [
        (
            [admit.key for admit in batch.admits],
            sorted((entry.key, str(entry.refusal.reason)) for entry in batch.refused),
        )
        for batch in (run_batch(first.world, NOW), run_batch(second.world, NOW))
    ]
    assert decided[0] == decided[1]


@given(two_orders())
@settings(max_examples=100, deadline=None)
def test_edits_between_cycles_end_where_a_newcomer_starts(
    orders: tuple[list[ObjectChanged], list[ObjectChanged]],
) -> None:
    """Cycles that park workloads in between hide nobody whom the last state would admit."""
    told, last = orders
    fold = Fold(rules=RULES)
    for item in told:
        fold.change(item, NOW)
        parked = run_batch(fold.world, NOW)
        for admit in parked.admits:
            # Not written anywhere: the decision is taken back, so that only objects count.
            fold.world.settle(admit.key, NOW)
    newcomer = {admit.key for admit in run_batch(folded(last).world, NOW).admits}
    assert {admit.key for admit in run_batch(fold.world, NOW).admits} == newcomer
