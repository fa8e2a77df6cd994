"""The promises, each with a name, checked at every commit of the API server and at every message that a stream takes.

They are measured against the truth alone: what the API server holds, what the log and the outcomes say in the order in which they were stored, whose
pods exist. What a service believes is asked in two of them only: that folding the log again gives the scheduler's state, and what the gateway had seen.

A decision's life, as it is followed here: appended -> landed (its reservation is committed) -> released; or rejected; or void, when a newer epoch opens
before it landed. Between appended and landed or rejected it counts as spent, whatever anybody knows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from services.watcher.kinds import read
from services.watcher.projections import project
from services.watcher.store import Store
from services.watcher.workload_state import is_finished, workload_of
from shared.api import names
from shared.api.quantity import request_units
from shared.events import decisions, objects, outcomes, subjects
from shared.events.decisions import Admit, Batch, DecisionId, EpochOpened, Preempt
from shared.events.objects import ClusterQueue, Cohort, Workload
from shared.events.outcomes import DecisionOutcome
from shared.kube.resources import CLUSTER_QUEUES, COHORTS
from shared.testing.simulated_api import Commit, SimulatedApi
from shared.testing.simulated_bus import StoredMessage
from tests.simulation.quota import FlavorResource, Forest
from tests.simulation.scenario import Manifest, every
from tests.simulation.story import Story
from tests.simulation.turns import Turns

QUOTA_AT_DECISION = "quota at decision"
QUOTA_HELD = "quota held"
ADMITTED_BY_A_DECISION = "admitted by one decision"
ADMITTED_ONCE = "admitted once at a time"
DECIDED_ONCE = "one open admission in the log"
DECIDED_ABOUT = "written on the state decided about"
ONE_OUTCOME = "one outcome"
TRUE_OUTCOME = "an outcome is true"
STARTED_ADMITTED = "started for an admission"
RELEASED_STOPPED = "released after its pods"
EVICTED_FOR_SOMEBODY = "no eviction for nobody"
NOT_AHEAD = "no more than K ahead"
FOLDING_AGAIN = "folding the log again"
SOUND_STATE = "kept state is sound"
PENDING_THAT_FITS = "pending that fits is admitted"
NOTHING_LOST = "nothing lost"
ALL_SETTLED = "everything settles"
OBJECTS_TRUE = "OBJECTS holds what is there"
SHARED_UNCHANGED = "a message stays as it was sent"
NO_CRASH = "no crash"


class Violation(msgspec.Struct, frozen=True):
    """A promise that was broken: which, when (virtual seconds), how, and the workloads, queues or processes whose story tells it."""

    name: str
    at: float
    why: str
    keys: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.name}: {self.why} (at {self.at:.3f} s)"


class _Decided(msgspec.Struct):
    id: DecisionId
    decision: Admit | Preempt
    specs: Mapping[str, tuple[str, int]]
    """Node -> (uid, generation) of the queues and cohorts of its tree, as its author saw them."""
    usage: Mapping[FlavorResource, int]
    landed: bool = False
    answered: bool = False
    """Some outcome was given once, and whoever read it has gone on, even if it is lost since."""
    lost: bool = False
    """The log has lost it."""
    answered_at: int = 0
    """Position of its outcome."""
    counts: bool = False
    """In `_spent`: appended and neither landed nor rejected nor void."""
    outcome: DecisionOutcome | None = None
    excess: str = ""
    """How it goes beyond what quota allowed; a broken promise once it lands, for until then it may turn out void."""


class _Known(msgspec.Struct):
    """The truth about one workload."""

    key: str
    uid: str
    job_uid: str = ""
    queue: str = ""
    """Where it holds a reservation that counts; empty: nowhere."""
    usage: dict[FlavorResource, int] = {}
    admitted: bool = False
    evicted: bool = False
    deleting: bool = False
    finished: bool = False
    gone: bool = False


class _Versions:
    """The states of queues and cohorts that OBJECTS has held, by position; since OBJECTS was last made anew, or lost its tail."""

    def __init__(self) -> None:
        self._history: dict[tuple[str, str], list[tuple[int, ClusterQueue | Cohort | None]]] = {}
        self._forests: dict[int, tuple[Forest, dict[str, tuple[str, int]]]] = {}
        self._changes: list[int] = []
        self._last = 0

    def reaches(self, position: int) -> bool:
        """Whether it has held that position: nobody who stands there can have read another lifetime of the stream."""
        return position <= self._last

    def without_tail(self, sequence: int) -> _Versions:
        """As it is for whoever reads it from now on: what stood at `sequence` and behind is gone."""
        new = _Versions()
        new._history = {name: [s for s in states if s[0] < sequence] for name, states in self._history.items()}
        new._changes = [change for change in self._changes if change < sequence]
        new._last = min(self._last, sequence - 1)
        return new

    def stored(self, message: StoredMessage) -> None:
        self._last = max(self._last, message.sequence)
        name = subjects.parse_objects(message.subject)
        if name.kind not in ("clusterqueue", "cohort"):
            return
        found = objects.codec.decode(message.payload)
        kept = found if isinstance(found, ClusterQueue | Cohort) else None
        self._history.setdefault((name.kind, name.name), []).append((message.sequence, kept))
        self._changes.append(message.sequence)

    def at(self, position: int) -> tuple[Forest, dict[str, tuple[str, int]]]:
        """The forest as of a position, and which state each of its nodes is in."""
        last = max((change for change in self._changes if change <= position), default=0)
        known = self._forests.get(last)
        if known is None:
            queues: dict[str, ClusterQueue] = {}
            cohorts: dict[str, Cohort] = {}
            for (_, name), states in self._history.items():
                found = next((state for sequence, state in reversed(states) if sequence <= position), None)
                if isinstance(found, ClusterQueue):
                    queues[name] = found
                elif found is not None:
                    cohorts[name] = found
            specs = {f"queue {name}": (found.uid, found.generation) for name, found in queues.items()}
            specs |= {f"cohort {name}": (found.uid, found.generation) for name, found in cohorts.items()}
            known = self._forests[last] = (Forest(queues, cohorts), specs)
        return known


class Invariants:
    """Subscribe `committed` to the API server and `stored` to the broker. `violations` grows; the first one counts."""

    def __init__(
        self,
        api: SimulatedApi,
        story: Story,
        now: Callable[[], float],
        *,
        gateway_user: str,
        max_unsettled: int,
        pods_of: Mapping[str, int],
    ) -> None:
        """`pods_of`: uid of a Job -> pods that exist."""
        self.violations: list[Violation] = []
        self.reservations = 0
        self.evictions = 0
        self.appended = 0
        self._api = api
        self._story = story
        self._now = now
        self._gateway = gateway_user
        self._max_unsettled = max_unsettled
        self._pods_of = pods_of
        self._known: dict[str, _Known] = {}
        self._by_key: dict[str, _Known] = {}
        self._held: defaultdict[str, defaultdict[FlavorResource, int]] = defaultdict(lambda: defaultdict(int))
        self._spent: defaultdict[str, defaultdict[FlavorResource, int]] = defaultdict(lambda: defaultdict(int))
        self._decided: dict[DecisionId, _Decided] = {}
        self._admits: defaultdict[str, list[_Decided]] = defaultdict(list)
        self._preempts: defaultdict[str, list[_Decided]] = defaultdict(list)
        self._unanswered = 0
        self._now_is: tuple[Forest, dict[str, tuple[str, int]]] | None = None
        self._cut_short = False
        """The log has lost entries: all that is appended to it is void."""
        self._turns = Turns()
        self._versions = [_Versions()]
        """A reader may still stand in what is no more: all since the epoch opened, newest first."""
        self._last: dict[str, int] = {}
        self._epoch = 0
        self._admissions: defaultdict[str, int] = defaultdict(int)
        self._starts: defaultdict[str, int] = defaultdict(int)
        self._nobody: dict[str, float] = {}
        """Victim -> when an eviction was last sent to it although the gateway had seen that nobody waited for its quota."""

    def violated(self, name: str, why: str, *keys: str) -> None:
        """A promise was broken."""
        self.violations.append(Violation(name, self._now(), why, keys))

    # --- what the API server commits -------------------------------------------------------------------------------

    def committed(self, commit: Commit) -> None:
        """One commit."""
        match commit.resource.plural:
            case "workloads":
                self._workload(commit)
            case "jobs" if commit.new is not None:
                self._job(commit.old, commit.new, commit.user)
            case "clusterqueues" | "cohorts" if commit.subresource != "status":
                self._now_is = None

    def _workload(self, commit: Commit) -> None:
        subject: Any = commit.new or commit.old
        metadata = subject["metadata"]
        uid = metadata["uid"]
        key = f"{metadata['namespace']}/{metadata['name']}"
        known = self._known.get(uid)
        if known is None:
            known = self._known[uid] = _Known(key, uid)
            owner = next((o for o in metadata.get("ownerReferences", ()) if o.get("controller")), None)
            known.job_uid = owner["uid"] if owner is not None else ""
        self._by_key[key] = known
        if commit.new is None:
            known.gone = True
            self._let_go(known)
            self._story.tell(key, "gone", commit.version)
            return
        known.deleting = "deletionTimestamp" in metadata
        status = subject.get("status", {})
        true = {c["type"] for c in status.get("conditions", ()) if c["status"] == "True"}
        known.finished = names.FINISHED in true
        self._story.tell(key, "commit", commit.version, commit.user, *sorted(true))
        admission = status.get("admission")
        holds = names.QUOTA_RESERVED in true and not known.finished and admission is not None
        self._check_eviction(known, names.EVICTED in true, names.PREEMPTED in true, commit)
        if holds:
            self._reserved(known, admission, commit)
        elif known.queue:
            if not known.finished:
                self._check_release(known, commit.user)
            self._let_go(known)
        if names.ADMITTED in true and not known.admitted:
            self._admissions[known.job_uid or uid] += 1
        known.admitted = names.ADMITTED in true
        known.evicted = names.EVICTED in true
        self._turns.committed(
            uid, int(commit.version), (metadata.get("generation", 1), bool(known.queue), known.evicted)
        )

    def _let_go(self, known: _Known) -> None:
        for cell, amount in known.usage.items():
            self._held[known.queue][cell] -= amount
        known.queue, known.usage = "", {}

    def _reserved(self, known: _Known, admission: Manifest, commit: Commit) -> None:
        queue, usage = admission["clusterQueue"], _usage_of(admission)
        if known.queue:
            if (known.queue, known.usage) != (queue, usage):
                why = f"{known.key} holds {known.usage} in {known.queue} and is given {usage} in {queue}"
                self.violated(ADMITTED_ONCE, why, known.key)
                self._let_go(known)
            else:
                return
        self.reservations += 1
        known.queue, known.usage = queue, usage
        for cell, amount in usage.items():
            self._held[queue][cell] += amount
        twin = known.job_uid and next(
            (k for k in self._known.values() if k.job_uid == known.job_uid and k.queue and k is not known), None
        )
        if twin:
            self.violated(ADMITTED_ONCE, f"{known.key} and {twin.key} of one job both hold quota", known.key, twin.key)
        open_ = [
            d
            for d in self._admits[known.uid]
            if d.counts and not d.landed and d.decision.cluster_queue == queue and d.usage == usage
        ]
        found = next((d for d in open_ if self._is_about(d)), open_[0] if open_ else None)
        if found is None:
            seen = [f"{d.id} {d.outcome.status if d.outcome else ''}" for d in self._admits[known.uid]]
            why = (
                f"{known.key} was given quota in {queue} by no open decision of epoch {self._epoch}; there were {seen}"
            )
            self.violated(ADMITTED_BY_A_DECISION, why, known.key)
            return
        found.landed = True
        self._count(found, False)
        if not self._is_about(found):
            why = f"{found.id} admitted {known.key} in another state than the one it was taken about"
            self.violated(DECIDED_ABOUT, why, known.key)
        if found.excess:
            self.violated(QUOTA_AT_DECISION, f"{found.id} admitted {known.key}: {found.excess}", known.key)
        self._check_held(known, found)

    def _check_held(self, known: _Known, found: _Decided) -> None:
        """While nothing was edited since the decision, the sum over its tree is within what quota allows."""
        forest, specs = self._present()
        came = (f"queue {queue}" not in found.specs for queue in forest.tree_of(known.queue))
        if any(specs.get(node) != state for node, state in found.specs.items()) or any(came):
            # Edited since, or a queue of another tree has moved here with all that it holds.
            return
        excess = forest.excess(known.queue, lambda queue: self._held[queue], known.usage)
        if excess:
            self.violated(QUOTA_HELD, f"after {known.key}: {excess}", known.key)

    def _present(self) -> tuple[Forest, dict[str, tuple[str, int]]]:
        """The queues as they are, and which state each is in."""
        if self._now_is is None:
            queues: dict[str, ClusterQueue] = {}
            cohorts: dict[str, Cohort] = {}
            specs: dict[str, tuple[str, int]] = {}
            for manifest in every(self._api, CLUSTER_QUEUES):
                queue = projected("clusterqueue", manifest)
                assert isinstance(queue, ClusterQueue)
                queues[queue.name], specs[f"queue {queue.name}"] = queue, (queue.uid, queue.generation)
            for manifest in every(self._api, COHORTS):
                cohort = projected("cohort", manifest)
                assert isinstance(cohort, Cohort)
                cohorts[cohort.name], specs[f"cohort {cohort.name}"] = cohort, (cohort.uid, cohort.generation)
            self._now_is = (Forest(queues, cohorts), specs)
        return self._now_is

    def _check_release(self, known: _Known, user: str) -> None:
        """Whoever gives quota back has made sure that no pod uses it any more."""
        job_uid = known.job_uid
        if user != self._gateway or known.deleting or not self._pods_of.get(job_uid):
            return
        self.violated(RELEASED_STOPPED, f"{known.key} gave its quota back while its pods exist", known.key)

    def _check_eviction(self, known: _Known, evicted: bool, preempted: bool, commit: Commit) -> None:
        if not evicted or known.evicted:
            return
        self.evictions += 1
        if preempted and commit.user == self._gateway:
            self._check_preempted(known)
        if preempted and commit.user == self._gateway and known.key in self._nobody:
            sent = self._nobody.pop(known.key)
            why = f"{known.key} was evicted by a write of {sent:.3f} s, when the gateway knew that nobody waits for its quota"
            self.violated(EVICTED_FOR_SOMEBODY, why, known.key)

    def _check_preempted(self, known: _Known) -> None:
        open_ = [d for d in self._preempts[known.key] if d.outcome is None and d.id.epoch == self._epoch]
        if open_ and not any(self._is_about(d) for d in open_):
            ids = ", ".join(str(d.id) for d in open_)
            why = f"{known.key} was evicted in another state than {ids} was taken about"
            self.violated(DECIDED_ABOUT, why, known.key)

    def _is_about(self, decided: _Decided) -> bool:
        """Is its workload still in the state that it was taken about?"""
        return self._turns.is_about(decided.decision.uid, decided.decision.incarnation)

    def _job(self, old: Manifest | None, new: Manifest, user: str) -> None:
        uid = new["metadata"]["uid"]
        if old is None or not old["spec"].get("suspend") or new["spec"].get("suspend"):
            return
        key = f"{new['metadata']['namespace']}/{new['metadata']['name']}"
        self._story.tell(key, "started", new["metadata"]["resourceVersion"], user)
        if user != self._gateway:
            return
        self._starts[uid] += 1
        holder = next((k for k in self._known.values() if k.job_uid == uid and not k.gone and not k.finished), None)
        if holder is None or not holder.queue or not holder.admitted:
            where = holder.key if holder is not None else key
            self.violated(STARTED_ADMITTED, f"job {key} was started while its workload is not admitted", key, where)
        elif self._starts[uid] > self._admissions[uid]:
            why = f"job {key} was started {self._starts[uid]} times, admitted {self._admissions[uid]} times"
            self.violated(STARTED_ADMITTED, why, key, holder.key)

    def sending(self, store: Store | None, what: str) -> None:
        """A gateway is about to send a call; `what` as links are told it."""
        verb, _, key = what.rpartition(" ")
        if store is None or verb != "patch workloads/status":
            return
        waiting = [d for d in self._preempts.get(key, ()) if d.outcome is None and d.id.epoch == self._epoch]
        # A patch of something else than the eviction is told apart at its commit.
        if waiting and not any(_wants(store, d.decision) for d in waiting if isinstance(d.decision, Preempt)):
            self._nobody[key] = self._now()
        else:
            self._nobody.pop(key, None)

    # --- what streams take -----------------------------------------------------------------------------------------

    def stored(self, message: StoredMessage) -> None:
        """One message."""
        last = self._last.get(message.stream, 0)
        self._last[message.stream] = message.sequence
        if message.sequence <= last:
            self._lost(message)
        if message.stream == "OBJECTS":
            self._versions[0].stored(message)
            found = objects.codec.decode(message.payload)
            if isinstance(found, Workload):
                self._turns.stored(found)
        elif message.stream.startswith("DECISIONS"):
            entry = decisions.codec.decode(message.payload)
            if isinstance(entry, EpochOpened):
                self._opened(entry)
            else:
                self._batch(entry, message.sequence)
        elif message.stream == "OUTCOMES":
            outcome = outcomes.codec.decode(message.payload)
            if isinstance(outcome, DecisionOutcome):
                self._settled(outcome, message.sequence)

    def _lost(self, message: StoredMessage) -> None:
        """Its stream was made anew, or has lost its tail: what stood there is gone."""
        if message.stream == "OBJECTS":
            self._versions.insert(0, self._versions[0].without_tail(message.sequence))
        elif message.stream == "OUTCOMES":
            for decided in self._decided.values():
                if decided.answered_at >= message.sequence:
                    decided.outcome, decided.answered_at = None, 0
        else:
            for decided in self._decided.values():
                if decided.id.epoch == self._epoch and decided.id.sequence >= message.sequence and not decided.lost:
                    decided.lost = True
                    self._unanswered -= not decided.answered
            self._cut_short = True

    def _opened(self, opened: EpochOpened) -> None:
        del self._versions[1:]
        self._cut_short = False
        self._epoch = opened.epoch
        self._unanswered = 0
        # Not those of `_decided`: a log that lost its tail gives the same id twice.
        for of_workload in self._admits.values():
            for decided in of_workload:
                self._count(decided, False)
        self._story.tell("", "epoch opened", opened.epoch, opened.why)

    def _count(self, decided: _Decided, counts: bool) -> None:
        if decided.counts == counts or not isinstance(decided.decision, Admit):
            return
        decided.counts = counts
        spent = self._spent[decided.decision.cluster_queue]
        for cell, amount in decided.usage.items():
            spent[cell] += amount if counts else -amount

    def _batch(self, batch: Batch, sequence: int) -> None:
        epoch = batch.positions.epoch
        if epoch != self._epoch:
            # Appended to a log that is about to be deleted: void from the start.
            return
        self.appended += len(batch.decisions)
        victims = sum(isinstance(decision, Preempt) for decision in batch.decisions)
        self._unanswered += len(batch.decisions)
        # One preemptor's victims stay together, whatever the limit.
        if not self._cut_short and self._unanswered > self._max_unsettled + max(0, victims - 1):
            self.violated(NOT_AHEAD, f"{self._unanswered} decisions have no outcome, K is {self._max_unsettled}")
        for index, decision in enumerate(batch.decisions):
            if not isinstance(decision, Admit | Preempt):
                continue
            id_ = DecisionId(epoch, sequence, index)
            self._story.tell(decision.key, "decided", id_, decision, batch.author, batch.positions)
            if isinstance(decision, Preempt):
                decided = self._decided[id_] = _Decided(id_, decision, {}, {})
                self._preempts[decision.key].append(decided)
                continue
            usage: dict[FlavorResource, int] = {}
            for pod_set in decision.pod_sets:
                for resource, amount in pod_set.usage.items():
                    cell = (pod_set.flavors.get(resource, ""), resource)
                    usage[cell] = usage.get(cell, 0) + amount
            decided = self._decided[id_] = _Decided(id_, decision, {}, usage)
            twin = next((d for d in self._admits[decision.uid] if d.counts and not d.lost), None)
            if twin is not None and not self._cut_short:
                why = f"{id_} admits {decision.key}, of which {twin.id} is not settled"
                self.violated(DECIDED_ONCE, why, decision.key)
            self._admits[decision.uid].append(decided)
            self._count(decided, True)
            position = batch.positions.objects
            for versions in [v for v in self._versions if v.reaches(position)] or self._versions:
                forest, specs = versions.at(position)
                tree = forest.tree_of(decision.cluster_queue)
                decided.excess = (
                    forest.excess(decision.cluster_queue, self._held_and_spent, usage)
                    if tree
                    else f"queue {decision.cluster_queue} is not there"
                )
                if not decided.excess:
                    nodes = {node: state for node, state in specs.items() if node.startswith("cohort ")}
                    nodes |= {node: specs[node] for queue in tree if (node := f"queue {queue}") in specs}
                    decided.specs = nodes
                    break

    def _held_and_spent(self, queue: str) -> Mapping[FlavorResource, int]:
        held, spent = self._held[queue], self._spent[queue]
        return {cell: held.get(cell, 0) + spent.get(cell, 0) for cell in (*held, *spent)}

    def _holds(self, decided: _Decided) -> bool:
        """Is what it asked for still there?"""
        known = self._known.get(decided.decision.uid)
        return known is not None and known.queue == decided.decision.cluster_queue

    def _settled(self, outcome: DecisionOutcome, position: int) -> None:
        decided = self._decided.get(outcome.decision)
        self._story.tell(outcome.key, "outcome", outcome.decision, outcome.status, outcome.version, outcome.why)
        if decided is None:
            return
        if decided.outcome is not None:
            if decided.outcome != outcome:
                why = f"{outcome.decision} of {outcome.key} was {_words(decided.outcome)}, then {_words(outcome)}"
                self.violated(ONE_OUTCOME, why, outcome.key)
            return
        decided.outcome, decided.answered_at = outcome, position
        if outcome.decision.epoch == self._epoch and not decided.lost and not decided.answered:
            self._unanswered -= 1
        decided.answered = True
        if not isinstance(decided.decision, Admit):
            return
        if outcome.status == "rejected":
            if decided.landed and self._holds(decided):
                why = f"{outcome.decision} of {outcome.key} is written, and was said to be {_words(outcome)}"
                self.violated(TRUE_OUTCOME, why, outcome.key)
            self._count(decided, False)
        elif not decided.landed and outcome.decision.epoch == self._epoch:
            why = f"{outcome.decision} of {outcome.key} was said to be {_words(outcome)}, and is written nowhere"
            self.violated(TRUE_OUTCOME, why, outcome.key)

    # --- at the end ------------------------------------------------------------------------------------------------

    def unsettled(self) -> list[str]:
        """Decisions of the open epoch without an outcome."""
        return [
            f"{decided.id} of {decided.decision.key}"
            for decided in self._decided.values()
            if decided.outcome is None and decided.id.epoch == self._epoch and not decided.lost
        ]

    def free(self) -> tuple[Forest, Callable[[str], Mapping[FlavorResource, int]]]:
        """The queues as they are, and what is held in each."""
        return self._present()[0], lambda queue: self._held[queue]


def projected(kind: str, manifest: Manifest) -> objects.Object:
    """A manifest as OBJECTS would carry it."""
    found = project(read(kind, msgspec.json.encode(manifest)))
    assert found is not None
    return found


def _usage_of(admission: Manifest) -> dict[FlavorResource, int]:
    usage: dict[FlavorResource, int] = {}
    for assignment in admission.get("podSetAssignments", ()):
        for resource, amount in assignment.get("resourceUsage", {}).items():
            cell = (assignment.get("flavors", {}).get(resource, ""), resource)
            usage[cell] = usage.get(cell, 0) + request_units(resource, amount)
    return usage


def _wants(store: Store, preempt: Preempt) -> bool:
    """Has this gateway a preemptor in its copy that still wants the quota?"""
    stored = store.get("workload", *preempt.preemptor.split("/"))
    if stored is None or stored.uid != preempt.preemptor_uid:
        return False
    workload = workload_of(stored)
    return workload.metadata.deletion_timestamp is None and workload.spec.active and not is_finished(workload)


def _words(outcome: DecisionOutcome) -> str:
    return f"{outcome.status} at {outcome.version}{f' ({outcome.why})' if outcome.why else ''}"
