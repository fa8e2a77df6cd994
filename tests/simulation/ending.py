"""When a scenario is over: what has to be true at rest, and whether folding again gives what was kept.

`unfinished` is asked again and again once faults are over; what is still unfinished when patience ends is a broken promise.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2s
from typing import TYPE_CHECKING

from shared.api import names
from shared.api.quantity import request_units
from shared.bus.interface import CaughtUp, FeedItem, Logged, ObjectChanged, Reset, Settled
from shared.events import decisions, objects, outcomes, subjects
from shared.kube.resources import CLUSTER_QUEUES, JOBS, LOCAL_QUEUES, WORKLOADS
from shared.state.folding import KINDS
from shared.state.scheduling import SchedulerState
from shared.state.validation import StateDiverged, facts, validate
from tests.simulation.controllers import conditions
from tests.simulation.invariants import (
    ALL_SETTLED,
    FOLDING_AGAIN,
    NOTHING_LOST,
    OBJECTS_TRUE,
    PENDING_THAT_FITS,
    SOUND_STATE,
)
from tests.simulation.mirror import stale
from tests.simulation.scenario import Manifest, every, find

if TYPE_CHECKING:
    from tests.simulation.slots import Slot
    from tests.simulation.world import World

Unfinished = tuple[str, str, tuple[str, ...]]
"""(name of the promise, what is missing, keys)."""
_BY_POSITION = (
    "forest",
    "activities",
    "workloads",
    "charges",
    "assumed",
    "preempting",
    "members",
    "objects",
    "assumptions",
)
"""Facts of a scheduler that depend on positions alone; who waits also depends on what it remembers of rejections, which is time."""


def unfinished(world: World) -> list[Unfinished]:
    """What is not as it should be at rest; empty: all is."""
    found: list[Unfinished] = []
    owned = _by_owner(world)
    for wanted in world.users.jobs.values():
        if wanted.done:
            continue
        job = find(world.api, JOBS, *wanted.key.split("/"))
        if job is None or job["metadata"]["uid"] != wanted.uid:
            if not wanted.gone:
                found.append((NOTHING_LOST, f"job {wanted.key} is gone", (wanted.key,)))
            continue
        if "Complete" in conditions(job):
            continue
        workload = owned.get(wanted.uid)
        if workload is None:
            found.append((NOTHING_LOST, f"job {wanted.key} has no workload", (wanted.key,)))
        else:
            found += _waits(world, workload, wanted.key)
    for wanted in world.users.workloads.values():
        if wanted.done:
            continue
        workload = find(world.api, WORKLOADS, *wanted.key.split("/"))
        if workload is None or workload["metadata"]["uid"] != wanted.uid:
            if not wanted.gone:
                found.append((NOTHING_LOST, f"workload {wanted.key} is gone", (wanted.key,)))
        else:
            found += _waits(world, workload, wanted.key)
    found += [(ALL_SETTLED, f"{what} has no outcome", ()) for what in world.invariants.unsettled()]
    # Dear, and nothing that could be said while all is still on its way.
    return found or [
        (OBJECTS_TRUE, f"{name.kind} {name.key}: {why}", (name.key,)) for name, why in stale(world.api, world.broker)
    ]


def _by_owner(world: World) -> dict[str, Manifest]:
    """The live workload of each job."""
    owned: dict[str, Manifest] = {}
    for workload in every(world.api, WORKLOADS):
        for owner in workload["metadata"].get("ownerReferences", ()):
            if owner.get("controller") and "deletionTimestamp" not in workload["metadata"]:
                owned[owner["uid"]] = workload
    return owned


def _waits(world: World, workload: Manifest, key: str) -> list[Unfinished]:
    """A workload that is not finished: may it be waiting still?"""
    said, metadata = conditions(workload), workload["metadata"]
    own = f"{metadata['namespace']}/{metadata['name']}"
    if said.get(names.FINISHED) == "True":
        return []
    if said.get(names.QUOTA_RESERVED) == "True":
        return [(NOTHING_LOST, f"{own} holds quota and does not finish", (own, key))]
    if not workload["spec"].get("active", True) or not _may_be_admitted(world, workload):
        return []
    return [(PENDING_THAT_FITS, f"{own} is pending and would fit", (own, key))]


def _may_be_admitted(world: World, workload: Manifest) -> bool:
    spec, namespace = workload["spec"], workload["metadata"]["namespace"]
    local = find(world.api, LOCAL_QUEUES, namespace, spec.get("queueName", ""))
    if local is None or local["spec"].get("stopPolicy", "None") != "None":
        return False
    name = local["spec"]["clusterQueue"]
    queue = find(world.api, CLUSTER_QUEUES, "", name)
    if queue is None or queue["spec"].get("stopPolicy", "None") != "None" or "deletionTimestamp" in queue["metadata"]:
        return False
    forest, held = world.invariants.free()
    needs: dict[str, int] = {}
    for pod_set in spec["podSets"]:
        for container in pod_set["template"]["spec"]["containers"]:
            for resource, amount in container["resources"]["requests"].items():
                needs[resource] = needs.get(resource, 0) + pod_set["count"] * request_units(resource, amount)
    flavors = [flavor["name"] for group in queue["spec"]["resourceGroups"] for flavor in group["flavors"]]
    return any(not forest.excess(name, _with(held, name, flavor, needs), _cells(flavor, needs)) for flavor in flavors)


def _cells(flavor: str, needs: Mapping[str, int]) -> list[tuple[str, str]]:
    return [(flavor, resource) for resource in needs]


def _with(held, queue: str, flavor: str, needs: Mapping[str, int]):  # type: ignore[no-untyped-def]
    """Usage with these needs on top of what the queue holds."""

    def usage(name: str) -> Mapping[tuple[str, str], int]:
        used = dict(held(name))
        if name == queue:
            for resource, amount in needs.items():
                used[flavor, resource] = used.get((flavor, resource), 0) + amount
        return used

    return usage


# --- states ------------------------------------------------------------------------------------------------------------


def behind(world: World) -> bool:
    """Is any scheduler still to be told something?"""
    return any(
        slot.scheduler is not None and slot.runs and not _up_to_date(world, slot) for slot in world.slots.values()
    )


def _up_to_date(world: World, slot: Slot) -> bool:
    assert slot.scheduler is not None
    state, streams = slot.scheduler.state, world.broker.streams
    log, positions = streams.get(subjects.decisions_stream("0", state.epoch)), state.positions
    if not state.caught_up or log is None:
        return False
    if positions.objects > streams["OBJECTS"].last:
        # It stands where this stream has never been: it read one that is gone, and will hear of that.
        return False
    unread = (m for m in streams["OBJECTS"].messages.values() if m.sequence > positions.objects)
    return (
        positions.decisions >= log.last
        and positions.outcomes >= streams["OUTCOMES"].last
        and not any(subjects.parse_objects(message.subject).kind in KINDS for message in unread)
    )


def check_states(world: World) -> None:
    """Every scheduler that is up to date holds what a newcomer would fold from the streams."""
    for slot in world.slots.values():
        if slot.scheduler is not None and slot.runs:
            check_state(world, slot)


def check_state(world: World, slot: Slot) -> None:
    """The kept state against the computed one, and against a fold of all that the streams hold."""
    assert slot.scheduler is not None
    state = slot.scheduler.state
    if not _up_to_date(world, slot):
        return
    now = slot.wall()
    try:
        validate(state, now)
    except StateDiverged as error:
        world.invariants.violated(SOUND_STATE, f"{slot.name}: {error}"[:2000], slot.name)
        return
    again = SchedulerState(state.policy, state.rules, state.afs)
    for item in _replay(world, state):
        again.apply(item, now)
    kept, folded = facts(state), facts(again)
    wrong = [part for part in _BY_POSITION if kept[part] != folded[part]]
    if wrong and state.positions == again.positions:
        what = "; ".join(f"{part}: kept {kept[part]!r}, folded {folded[part]!r}" for part in wrong)
        world.invariants.violated(FOLDING_AGAIN, f"{slot.name}: {what}"[:4000], slot.name)


def _replay(world: World, state: SchedulerState) -> Iterable[FeedItem]:
    streams = world.broker.streams
    epoch, positions = state.epoch, state.positions
    yield Reset(epoch, "check")
    for message in streams["OBJECTS"].messages.values():
        name = subjects.parse_objects(message.subject)
        if message.sequence <= positions.objects and name.kind in KINDS:
            yield ObjectChanged(name, objects.codec.decode(message.payload), message.sequence)
    for message in streams[subjects.decisions_stream("0", epoch)].messages.values():
        if message.sequence <= positions.decisions:
            yield Logged(decisions.codec.decode(message.payload), message.sequence)
    for message in streams["OUTCOMES"].messages.values():
        if message.sequence <= positions.outcomes:
            yield Settled(outcomes.codec.decode(message.payload), message.sequence)
    yield CaughtUp(positions)


def digest(world: World) -> str:
    """Of all commits in their order: who, what, and the bytes."""
    hash_ = blake2s(digest_size=8)
    for commit in world.api.history:
        hash_.update(f"{commit.version} {commit.verb} {commit.user} {commit.namespace}/{commit.name}".encode())
        if commit.after is not None:
            hash_.update(commit.after.raw)
    return hash_.hexdigest()
