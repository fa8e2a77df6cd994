"""Whatever order news arrives in, the watch copy ends at the newest state of every object, and its indexes agree with it."""

from hypothesis import given
from hypothesis import strategies as st

from services.watcher.kinds import Stored, read
from services.watcher.store import Change, Store
from tests.unit.watcher.manifests import raw, workload

NAMES = ("a", "b", "c")


class Event:
    """One state of one object, or its deletion."""

    def __init__(self, name: str, uid: str, version: int, owner: str, gone: bool) -> None:
        self.name, self.uid, self.version, self.owner, self.gone = name, uid, version, owner, gone

    def __repr__(self) -> str:
        return f"{'-' if self.gone else '+'}{self.name}/{self.uid}@{self.version}"

    def stored(self) -> Stored:
        owners = [{"apiVersion": "batch/v1", "kind": "Job", "name": self.owner, "uid": self.owner}]
        return read(
            "workload",
            raw(workload(self.name, version=self.version, uid=self.uid, meta={"ownerReferences": owners})),
        )


@st.composite
def histories(draw: st.DrawFn) -> list[Event]:
    """A history as an API server makes it: one counter of versions, a new uid after each deletion."""
    events: list[Event] = []
    lives = dict.fromkeys(NAMES, 0)
    alive = dict.fromkeys(NAMES, False)
    for step in range(draw(st.integers(1, 25))):
        name = draw(st.sampled_from(NAMES))
        gone = alive[name] and draw(st.booleans())
        if not alive[name]:
            lives[name] += 1
        alive[name] = not gone
        owner = draw(st.sampled_from(("x", "y")))
        events.append(Event(name, f"{name}{lives[name]}", 10 + step, owner, gone))
    return events


def final(events: list[Event]) -> dict[str, tuple[str, int]]:
    known: dict[str, tuple[str, int]] = {}
    for event in events:
        if event.gone:
            known.pop(event.name, None)
        else:
            known[event.name] = (event.uid, event.version)
    return known


def contents(store: Store) -> dict[str, tuple[str, int]]:
    return {found.name: (found.uid, found.version) for found in store.of_kind("workload")}


def check_indexes(store: Store) -> None:
    found = {stored.name: stored for stored in store.of_kind("workload")}
    assert {stored.name for stored in store.in_namespace("workload", "team")} == set(found)
    for owner in ("x", "y"):
        owned = {stored.name for stored in store.owned_by("workload", owner)}
        assert owned == {
            name
            for name, stored in found.items()
            if any(reference.uid == owner for reference in stored.object.metadata.owner_references)
        }


def apply(store: Store, event: Event) -> None:
    if event.gone:
        store.remove("workload", "team", event.name, version=event.version)
    else:
        store.put(event.stored())


@given(histories(), st.data())
def test_any_order_with_repetitions_converges_to_the_newest(events: list[Event], data: st.DataObject) -> None:
    shuffled = data.draw(st.permutations(events)) + data.draw(st.lists(st.sampled_from(events), max_size=10))
    store = Store()
    mirror: dict[str, tuple[str, int]] = {}

    def follow(change: Change) -> None:
        about = change.subject
        before = mirror.get(about.name)
        assert before == ((change.old.uid, change.old.version) if change.old else None)
        if change.new is None:
            del mirror[about.name]
        else:
            mirror[about.name] = (change.new.uid, change.new.version)

    store.subscribe(follow)
    for event in shuffled:
        apply(store, event)
        check_indexes(store)
    assert contents(store) == mirror == final(events)


@given(histories(), st.integers(0, 25), st.data())
def test_a_watch_with_own_writes_ahead_and_a_list_in_between_converges(
    events: list[Event], cut: int, data: st.DataObject
) -> None:
    """The watch delivers in order; responses of our own writes come any time after they happened; a list replaces the watch once."""
    store = Store()
    early = data.draw(st.lists(st.sampled_from(events), max_size=8))
    cut = min(cut, len(events))
    for event in early:
        apply(store, event)
    listed = final(events[:cut])
    version = events[cut - 1].version if cut else 9
    items = [
        event.stored()
        for event in events[:cut]
        if listed.get(event.name) == (event.uid, event.version) and not event.gone
    ]
    store.replace("workload", items, version)
    for event in events[cut:]:
        apply(store, event)
        store.observed("workload", event.version)
        if data.draw(st.booleans()):
            apply(store, data.draw(st.sampled_from(events)))
        check_indexes(store)
    assert contents(store) == final(events)
