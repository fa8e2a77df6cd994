"""Breaks the protocol on purpose, one rule at a time, and demands that a promise by name notices: `make simulate-mutations`.

A mutation is patched into the product while seeds run. It counts as caught when a promise other than "no crash" is broken in a seed that keeps all promises
without the mutation. Faults that no mutation needs are too weak; a mutation that nothing catches is a rule that nothing checks.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import lru_cache
from typing import Any
from unittest import mock

import msgspec

from services.watcher import decisions as watcher_decisions
from services.watcher import object_writer
from services.watcher.decisions import DecisionLog
from services.watcher.job_runs import JobRuns
from services.watcher.publisher import Publisher
from services.watcher.store import Stored
from shared.bus import objects_store, service_bus
from shared.bus.publishing import MESSAGE_ID, Outgoing
from shared.bus.streams import Streams
from shared.events import objects
from shared.events.objects import Tombstone
from shared.jobs.manifest import JsonObject
from shared.model.pending_queue import PendingQueue
from shared.state.assumptions import Assumptions
from tests.simulation.generators import mixed
from tests.simulation.invariants import NO_CRASH
from tests.simulation.progress import shown
from tests.simulation.simulation import simulate

MOST_SEEDS = 200
FIRST_ROUND = 2
LONGEST_ROUND = 32

Patch = Callable[[], Iterable[AbstractContextManager[Any]]]


class _Same(str):
    """Equal to everything."""

    def __eq__(self, _: object) -> bool:
        return True

    def __ne__(self, _: object) -> bool:
        return False

    __hash__ = str.__hash__


def _skip_the_fence() -> Iterable[AbstractContextManager[Any]]:
    """An append does not say behind which entry it stands."""
    yield mock.patch.object(service_bus, "EXPECTED_LAST", "Sluice-Last")


def _settle_before_the_object_is_seen() -> Iterable[AbstractContextManager[Any]]:
    """The outcome alone ends an assumption."""
    yield mock.patch.object(Assumptions, "_is_over", return_value=True)


def _drop_the_precondition() -> Iterable[AbstractContextManager[Any]]:
    """A decision is written whatever state the workload is in now."""

    def bare(patch: JsonObject, _: Stored) -> bytes:
        return msgspec.json.encode(patch)

    yield mock.patch.object(watcher_decisions, "incarnation_of", return_value=_Same())
    yield mock.patch.object(object_writer, "_guarded", bare)


def _forget_the_tombstone() -> Iterable[AbstractContextManager[Any]]:
    """What is gone is not written to OBJECTS."""
    write_of = Publisher._write_of

    def without(self: Publisher, name: Any, gone: Any) -> Any:
        write = write_of(self, name, gone)
        return None if write is not None and isinstance(write.object, Tombstone) else write

    yield mock.patch.object(Publisher, "_write_of", without)


def _message_ids_on_objects() -> Iterable[AbstractContextManager[Any]]:
    """The same content of an object is sent once, says its id."""
    message = objects_store._Write.message

    def with_id(self: Any, sequence: int) -> Outgoing:
        outgoing = message(self, sequence)
        found = objects.codec.decode(outgoing.payload)
        content = objects.codec.encode(msgspec.structs.replace(found, version=0, generation=0))
        id_ = f"{outgoing.subject} {content.hex()}"
        return Outgoing(outgoing.subject, outgoing.payload, {**(outgoing.headers or {}), MESSAGE_ID: id_})

    yield mock.patch.object(objects_store._Write, "message", with_id)


def _miss_a_trigger_of_its_own_cycle() -> Iterable[AbstractContextManager[Any]]:
    """A retry that comes while a workload is in hand does not count for it."""
    retry = PendingQueue.retry

    def forgetful(self: PendingQueue, *args: Any) -> int:
        moved = retry(self, *args)
        self.retry_cycle = -1
        return moved

    yield mock.patch.object(PendingQueue, "retry", forgetful)


def _epoch_not_checked_on_reconnect() -> Iterable[AbstractContextManager[Any]]:
    """The gateway takes whatever streams it finds for its own."""

    async def fine(self: Streams, **_: Any) -> str:
        return ""

    yield mock.patch.object(Streams, "check", fine)


def _count_no_assumption() -> Iterable[AbstractContextManager[Any]]:
    """What is decided and not settled does not count as spent."""
    yield mock.patch.object(Assumptions, "admit_of", return_value=None)


def _forget_earlier_outcomes() -> Iterable[AbstractContextManager[Any]]:
    """A gateway that starts applies the whole log again."""

    async def none(self: DecisionLog, epoch: int) -> tuple[dict[Any, Any], int]:
        return {}, 0

    yield mock.patch.object(DecisionLog, "_decided", none)


def _release_at_once() -> Iterable[AbstractContextManager[Any]]:
    """Quota is given back as soon as the job is told to stop."""
    yield mock.patch.object(JobRuns, "wait_before_release", return_value=None)


def _evict_for_nobody() -> Iterable[AbstractContextManager[Any]]:
    """Victims are evicted although whoever needed their quota is gone."""
    yield mock.patch.object(watcher_decisions, "_waits", return_value=True)


def _unreserve_unanswered() -> Iterable[AbstractContextManager[Any]]:
    """A reservation is taken back while the outcome of its decision is not out."""
    yield mock.patch.object(DecisionLog, "is_answered", return_value=True)


def _run_ahead() -> Iterable[AbstractContextManager[Any]]:
    """The scheduler does not count how many of its decisions have no outcome."""
    yield mock.patch.object(Assumptions, "spending", property(lambda self: 0))


MUTATIONS: dict[str, Patch] = {
    "skip the fence": _skip_the_fence,
    "settle before the object is seen": _settle_before_the_object_is_seen,
    "drop the precondition": _drop_the_precondition,
    "forget the tombstone": _forget_the_tombstone,
    "Msg-Id on OBJECTS": _message_ids_on_objects,
    "miss a trigger of its own cycle": _miss_a_trigger_of_its_own_cycle,
    "epoch not checked on reconnect": _epoch_not_checked_on_reconnect,
    "count no assumption": _count_no_assumption,
    "forget earlier outcomes": _forget_earlier_outcomes,
    "release at once": _release_at_once,
    "evict for nobody": _evict_for_nobody,
    "run ahead": _run_ahead,
    "unreserve unanswered": _unreserve_unanswered,
}


class Caught(msgspec.Struct, frozen=True):
    """By which promise a mutation was caught, and in which seed."""

    mutation: str
    promise: str
    seed: int


def caught(mutation: str, seed: int) -> Caught | None:
    """Run one seed with the mutation. An exception that ends a process is no promise with a name: None, as when nothing is noticed."""
    scenario = mixed(seed)
    with ExitStack() as patched:
        for patch in MUTATIONS[mutation]():
            patched.enter_context(patch)
        report = simulate(scenario)
    promise = report.violations[0].name if report.violations else NO_CRASH
    # Whatever breaks without the mutation is no merit of the promise.
    if promise == NO_CRASH or not _sound(seed):
        return None
    return Caught(mutation, promise, seed)


@lru_cache(maxsize=MOST_SEEDS)
def _sound(seed: int) -> bool:
    """Does it keep all promises without a mutation?"""
    return not simulate(mixed(seed)).violations


def hunt(
    mutations: Sequence[str], most_seeds: int, run: Callable[[list[tuple[str, int]]], Iterable[Caught | None]]
) -> Iterator[Caught | None]:
    """Seeds of all mutations in rounds, each twice as long as the one before, until each mutation is caught; None for a seed that did not catch its own.
    `run` runs many and hands over what came of each."""
    left = dict.fromkeys(mutations)
    first, count = 1, FIRST_ROUND
    while left and first <= most_seeds:
        seeds = range(first, min(first + count, most_seeds + 1))
        for found in run([(mutation, seed) for seed in seeds for mutation in left]):
            if found is not None and found.mutation in left:
                del left[found.mutation]
                yield found
            else:
                yield None
        first, count = seeds.stop, min(2 * count, LONGEST_ROUND)


def _caught(of: tuple[str, int]) -> Caught | None:
    return caught(*of)


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="part of a mutation's name")
    parser.add_argument("--processes", type=int, default=multiprocessing.cpu_count())
    asked = parser.parse_args()
    chosen = [name for name in MUTATIONS if asked.only in name]
    found: list[Caught] = []
    with multiprocessing.get_context("spawn").Pool(asked.processes) as pool:
        runs = hunt(chosen, MOST_SEEDS, lambda pairs: pool.imap_unordered(_caught, pairs))
        # How many runs it takes nobody knows: at the most all seeds of all.
        for one in shown(runs, MOST_SEEDS * len(chosen), "runs at the most", lambda _: False):
            if one is not None:
                found.append(one)
                print(f"{one.mutation:36} seed {one.seed}: {one.promise}", flush=True)
    for name in chosen:
        if all(one.mutation != name for one in found):
            print(f"{name:36} not in {MOST_SEEDS} seeds")
    print(f"{len(found)} of {len(chosen)} mutations caught by a named promise")
    return 0 if len(found) == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main())
