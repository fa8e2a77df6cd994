"""Breaks the protocol on purpose, one rule at a time, and demands that a promise by name notices: `make simulate-mutations`.

A mutation is patched into the product while seeds run. It counts as caught when a promise other than "no crash" is broken in a seed that keeps all promises
without the mutation. Faults that no mutation needs are too weak; a mutation that nothing catches is a rule that nothing checks.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import lru_cache
from typing import Any
from unittest import mock

import msgspec

from services.scheduler.service import Scheduler
from services.watcher import decisions as watcher_decisions
from services.watcher import object_writer
from services.watcher.decisions import DecisionLog
from services.watcher.job_runs import JobRuns
from services.watcher.projections_workload import incarnation_of
from services.watcher.publisher import Publisher
from services.watcher.store import Stored
from shared.api.workload import Workload
from shared.bus import objects_store, service_bus
from shared.bus.interface import Appended, AppendResult
from shared.bus.publishing import MESSAGE_ID, Outgoing
from shared.bus.service_bus import NatsBus
from shared.bus.streams import Streams
from shared.events import objects
from shared.events.decisions import Batch
from shared.events.objects import Tombstone
from shared.jobs.manifest import JsonObject
from shared.state.assumptions import Assumptions
from tests.simulation.generators import mixed
from tests.simulation.invariants import NO_CRASH
from tests.simulation.progress import shown
from tests.simulation.simulation import simulate

MOST_SEEDS = 200
FIRST_ROUND = 2
LONGEST_ROUND = 32

Note = Callable[[], None]
"""Called whenever the mutated code does something else than the product would: a mutation that is never noted proves nothing."""
Patch = Callable[[Note], Iterable[AbstractContextManager[Any]]]


class _Same(str):
    """Equal to everything; `note` hears when it should not have been."""

    note: Note

    def __eq__(self, other: object) -> bool:
        return not self.__ne__(other)

    def __ne__(self, other: object) -> bool:
        if str.__ne__(self, str(other)):
            self.note()
        return False

    __hash__ = str.__hash__


def _skip_the_fence(note: Note) -> Iterable[AbstractContextManager[Any]]:
    """An append does not say behind which entry it stands."""
    append = NatsBus.append

    async def anywhere(self: NatsBus, batch: Batch) -> AppendResult:
        result = await append(self, batch)
        if isinstance(result, Appended) and result.position != batch.positions.decisions + 1:
            note()
        return result

    yield mock.patch.object(service_bus, "EXPECTED_LAST", "Sluice-Last")
    yield mock.patch.object(NatsBus, "append", anywhere)


def _settle_before_the_object_is_seen(note: Note) -> Iterable[AbstractContextManager[Any]]:
    """The outcome alone ends an assumption."""
    yield mock.patch.object(Assumptions, "_is_over", _always(Assumptions._is_over, True, note))


def _drop_the_precondition(note: Note) -> Iterable[AbstractContextManager[Any]]:
    """A decision is written whatever state the workload is in now."""

    def any_(workload: Workload) -> str:
        same = _Same(incarnation_of(workload))
        same.note = note
        return same

    def bare(patch: JsonObject, _: Stored) -> bytes:
        note()
        return msgspec.json.encode(patch)

    yield mock.patch.object(watcher_decisions, "incarnation_of", any_)
    yield mock.patch.object(object_writer, "_guarded", bare)


def _forget_the_tombstone(note: Note) -> Iterable[AbstractContextManager[Any]]:
    """What is gone is not written to OBJECTS."""
    write_of = Publisher._write_of

    def without(self: Publisher, name: Any, gone: Any) -> Any:
        write = write_of(self, name, gone)
        if write is None or not isinstance(write.object, Tombstone):
            return write
        note()
        return None

    yield mock.patch.object(Publisher, "_write_of", without)


def _message_ids_on_objects(note: Note) -> Iterable[AbstractContextManager[Any]]:
    """The same content of an object is sent once, says its id."""
    message = objects_store._Write.message
    sent: set[str] = set()

    def with_id(self: Any, sequence: int) -> Outgoing:
        outgoing = message(self, sequence)
        found = objects.codec.decode(outgoing.payload)
        content = objects.codec.encode(msgspec.structs.replace(found, version=0, generation=0))
        id_ = f"{outgoing.subject} {content.hex()}"
        if id_ in sent:
            note()
        sent.add(id_)
        return Outgoing(outgoing.subject, outgoing.payload, {**(outgoing.headers or {}), MESSAGE_ID: id_})

    yield mock.patch.object(objects_store._Write, "message", with_id)


def _miss_a_trigger_of_its_own_cycle(note: Note) -> Iterable[AbstractContextManager[Any]]:
    """What frees quota between the look at a workload and the answer to the append of that look does not count for it.

    `PendingQueue.retry_cycle` guards the same for who calls `retry` while a head is in flight. Nobody does here: retries are carried out between batches
    (`World.flush_retries`), so forgetting it changes not a single step of any seed. What takes its place is the order in which a batch,
    its answer and what came meanwhile are folded.
    """
    decide = Scheduler._decide

    async def forgetful(self: Scheduler, now: float) -> None:
        await decide(self, now)
        while not self._inbox.empty():
            self._fold(self._inbox.get_nowait())
        if self.state.world._retries:
            note()
            self.state.world._retries.clear()

    yield mock.patch.object(Scheduler, "_decide", forgetful)


def _epoch_not_checked_on_reconnect(note: Note) -> Iterable[AbstractContextManager[Any]]:
    """The gateway takes whatever streams it finds for its own."""

    async def fine(self: Streams, **_: Any) -> str:
        note()
        return ""

    yield mock.patch.object(Streams, "check", fine)


def _count_no_assumption(note: Note) -> Iterable[AbstractContextManager[Any]]:
    """What is decided and not settled does not count as spent."""
    yield mock.patch.object(Assumptions, "admit_of", _always(Assumptions.admit_of, None, note))


def _forget_earlier_outcomes(note: Note) -> Iterable[AbstractContextManager[Any]]:
    """A gateway that starts applies the whole log again."""
    decided = DecisionLog._decided

    async def none(self: DecisionLog, epoch: int) -> tuple[dict[Any, Any], int]:
        found, end = await decided(self, epoch)
        if found:
            note()
        return {}, end

    yield mock.patch.object(DecisionLog, "_decided", none)


def _release_at_once(note: Note) -> Iterable[AbstractContextManager[Any]]:
    """Quota is given back as soon as the job is told to stop."""
    yield mock.patch.object(JobRuns, "wait_before_release", _always(JobRuns.wait_before_release, None, note))


def _evict_for_nobody(note: Note) -> Iterable[AbstractContextManager[Any]]:
    """Victims are evicted although whoever needed their quota is gone."""
    yield mock.patch.object(watcher_decisions, "_waits", _always(watcher_decisions._waits, True, note))


def _unreserve_unanswered(note: Note) -> Iterable[AbstractContextManager[Any]]:
    """A reservation is taken back while the outcome of its decision is not out."""
    yield mock.patch.object(DecisionLog, "is_answered", _always(DecisionLog.is_answered, True, note))


def _run_ahead(note: Note) -> Iterable[AbstractContextManager[Any]]:
    """The scheduler does not count how many of its decisions have no outcome."""
    counted = vars(Assumptions)["spending"].fget
    yield mock.patch.object(Assumptions, "spending", property(_always(counted, 0, note)))


def _always(real: Callable[..., Any], answer: object, note: Note) -> Callable[..., Any]:
    """In the place of `real`, always this answer."""

    def fixed(*args: Any, **more: Any) -> Any:
        if real(*args, **more) != answer:
            note()
        return answer

    return fixed


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


class Run(msgspec.Struct, frozen=True):
    """One seed with one mutation: how often the mutated code had done something else than the product, and the promise that noticed, empty if none did.
    An exception that ends a process is no promise with a name."""

    mutation: str
    seed: int
    altered: int
    promise: str = ""


def tried(mutation: str, seed: int) -> Run:
    """Run one seed with the mutation."""
    altered = 0

    def note() -> None:
        nonlocal altered
        altered += 1

    scenario = mixed(seed)
    with ExitStack() as patched:
        for patch in MUTATIONS[mutation](note):
            patched.enter_context(patch)
        report = simulate(scenario)
    promise = report.violations[0].name if report.violations else NO_CRASH
    # Whatever breaks without the mutation is no merit of the promise.
    caught = promise != NO_CRASH and _sound(seed)
    return Run(mutation, seed, altered, promise if caught else "")


@lru_cache(maxsize=MOST_SEEDS)
def _sound(seed: int) -> bool:
    """Does it keep all promises without a mutation?"""
    return not simulate(mixed(seed)).violations


def hunt(
    mutations: Sequence[str], most_seeds: int, run: Callable[[list[tuple[str, int]]], Iterable[Run]]
) -> Iterator[Run]:
    """Seeds of all mutations in rounds, each twice as long as the one before, until each mutation is caught. `run` runs many and hands over what came
    of each; a mutation that is caught gets no further round."""
    left = dict.fromkeys(mutations)
    first, count = 1, FIRST_ROUND
    while left and first <= most_seeds:
        seeds = range(first, min(first + count, most_seeds + 1))
        for found in run([(mutation, seed) for seed in seeds for mutation in left]):
            if found.promise:
                left.pop(found.mutation, None)
            yield found
        first, count = seeds.stop, min(2 * count, LONGEST_ROUND)


def table(mutations: Sequence[str], runs: Sequence[Run]) -> tuple[list[str], int]:
    """(a line for each mutation, how many were caught): the first seed and its promise, or how much was tried in vain."""
    lines, caught = [], 0
    for name in mutations:
        of_it = sorted((run for run in runs if run.mutation == name), key=lambda run: run.seed)
        by = next((run for run in of_it if run.promise), None)
        if by is not None:
            caught += 1
            lines.append(f"{name:34} seed {by.seed:3}: {by.promise}")
        else:
            altered = sum(run.altered for run in of_it)
            lines.append(f"{name:34} NOT in {len(of_it)} seeds (altered {altered} times)")
    return [*lines, f"{caught} of {len(mutations)} caught by a named promise"], caught


def _tried(of: tuple[str, int]) -> Run:
    return tried(*of)


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="part of a mutation's name")
    parser.add_argument("--processes", type=int, default=multiprocessing.cpu_count())
    asked = parser.parse_args()
    chosen = [name for name in MUTATIONS if asked.only in name]
    runs: list[Run] = []
    caught: set[str] = set()
    began = time.perf_counter()
    with multiprocessing.get_context("spawn").Pool(asked.processes) as pool:

        def run(pairs: list[tuple[str, int]]) -> Iterator[Run]:
            seeds = sorted({seed for _, seed in pairs})
            print(f"seeds {seeds[0]} to {seeds[-1]} with {len({m for m, _ in pairs})} mutations", flush=True)
            yield from shown(pool.imap_unordered(_tried, pairs), len(pairs), "runs", lambda run: bool(run.promise))

        for one in hunt(chosen, MOST_SEEDS, run):
            runs.append(one)
            if one.promise and one.mutation not in caught:
                caught.add(one.mutation)
                print(f"caught: {one.mutation}, seed {one.seed}: {one.promise}", flush=True)
    lines, count = table(chosen, runs)
    print("\n".join(lines))
    print(f"{len(runs)} runs in {time.perf_counter() - began:.0f} s")
    return 0 if count == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main())
