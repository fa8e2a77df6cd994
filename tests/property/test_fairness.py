"""Fair sharing on random cohort trees: shares, the tournament and victims against plain readings of the rules.

The references here follow the words of the rules and recompute everything each time; the product keeps what did not change.
"""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.decide import fair_preemption
from shared.decide.candidates import own_candidates, queue_candidates
from shared.decide.fair_share import FairShares, Share, path_of
from shared.decide.order import HeadOrder
from shared.decide.preemption import find_targets
from shared.decide.preemption_request import PreemptionRequest, Target
from shared.decide.preemption_trial import Trial, fill_back
from shared.decide.settings import FairSharing
from shared.decide.tournament import Tournament
from shared.events import objects as o
from shared.model.amounts import add
from shared.model.quota_tree import Node
from shared.model.reservations import Rank
from shared.model.world import World
from tests.unit.model.builders import flavor, info, put, reserved, workload

WEIGHTS = ("0", "500m", "1", "1", "1", "2")
FLAVORS = ("default", "spot")
BOTH = ("LessThanOrEqualToFinalShare", "LessThanInitialShare")

amounts = st.integers(0, 5)
limits = st.none() | st.none() | st.integers(0, 6)


@st.composite
def groups(draw: st.DrawFn, *, lend: bool = True, borrow: bool = True) -> o.ResourceGroup:
    """Quota for cpu in one or two flavors."""

    def quota() -> o.FlavorQuota:
        nominal = draw(amounts)
        lending = draw(limits) if lend else None
        borrowing = draw(limits) if borrow and draw(st.booleans()) else None
        return o.FlavorQuota("cpu", str(nominal), _text(borrowing), _text(lending))

    names = FLAVORS[: draw(st.integers(1, 2))]
    return o.ResourceGroup(("cpu",), tuple(o.Flavor(name, (quota(),)) for name in names))


def _text(value: int | None) -> str | None:
    return None if value is None else str(value)


@st.composite
def trees(draw: st.DrawFn) -> list[o.Object]:
    """One tree of cohorts with two to six ClusterQueues."""
    made: list[o.Object] = []
    cohorts = ["root"]
    made.append(o.Cohort(name="root", version=1, groups=(draw(groups(lend=False, borrow=False)),)))
    for number in range(draw(st.integers(0, 3))):
        name = f"cohort{number}"
        own = (draw(groups()),) if draw(st.booleans()) else ()
        parent, weight = draw(st.sampled_from(cohorts)), draw(st.sampled_from(WEIGHTS))
        made.append(o.Cohort(name=name, version=1, parent=parent, groups=own, fair_weight=weight))
        cohorts.append(name)
    for number in range(draw(st.integers(2, 6))):
        made.append(
            o.ClusterQueue(
                name=f"q{number}",
                version=1,
                cohort=draw(st.sampled_from(cohorts)),
                groups=(draw(groups()),),
                namespace_selector=o.Selector(),
                fair_weight=draw(st.sampled_from(WEIGHTS)),
                reclaim_within_cohort=draw(st.sampled_from(("Never", "LowerPriority", "Any", "Any", "Any"))),
                within_cluster_queue=draw(st.sampled_from(("Never", "LowerPriority", "LowerOrNewerEqualPriority"))),
            )
        )
    return made


@st.composite
def workloads(draw: st.DrawFn, queues: list[str]) -> list[o.Workload]:
    """Workloads that hold quota, over-admission included."""
    made = []
    for number in range(draw(st.integers(2, 16))):
        source = workload(f"w{number}", priority=draw(st.integers(0, 2)))
        cpu, flavor_name = draw(st.integers(1, 4)), draw(st.sampled_from(FLAVORS))
        held = reserved(source, draw(st.sampled_from(queues)), flavor_name, cpu=cpu * 1000)
        at = draw(st.integers(0, 3))
        conditions = [o.Condition("QuotaReserved", True, "QuotaReserved", "", at)]
        if draw(st.integers(0, 5)) == 0:
            conditions.append(o.Condition("Evicted", True, "Preempted", "", at))
        made.append(msgspec.structs.replace(held, conditions=tuple(conditions)))
    return made


class Scene(msgspec.Struct):
    """A tree with workloads, and one that wants in."""

    objects: list[o.Object]
    running: list[o.Workload]
    incoming: o.Workload
    queue: str
    demand: dict[str, int]
    need: list[str]
    fair: FairSharing

    def world(self) -> World:
        built = World()
        built.set_namespace("ns", {})
        for name in FLAVORS:
            built.set_resource_flavor(flavor(name))
        put(built, *self.objects, *self.running)
        return built

    def request(self, built: World) -> PreemptionRequest:
        index = built.interned.index
        return PreemptionRequest(
            preemptor=info(self.incoming),
            queue=built.cluster_queues[self.queue],
            need=frozenset(index(name, "cpu") for name in self.need),
            demand={index(name, "cpu"): amount for name, amount in self.demand.items()},
        )


@st.composite
def scenes(draw: st.DrawFn) -> Scene:
    objects = draw(trees())
    queues = [one.name for one in objects if isinstance(one, o.ClusterQueue)]
    demand = {name: 1000 * draw(st.integers(1, 6)) for name in FLAVORS[: draw(st.integers(1, 2))]}
    need = draw(st.lists(st.sampled_from(sorted(demand)), min_size=1, unique=True))
    strategies = draw(st.sampled_from((BOTH, BOTH, BOTH[:1], BOTH[1:], ())))
    return Scene(
        objects,
        draw(workloads(queues)),
        workload("new", priority=draw(st.integers(0, 2)), created=5),
        draw(st.sampled_from(queues)),
        demand,
        need,
        FairSharing(strategies=strategies, preempt_within_nominal=draw(st.booleans())),
    )


# --- shares --------------------------------------------------------------------------------------------------------


def plain_share(built: World, node: Node) -> Share:
    """Core 8.1 from declared quotas and the usage of ClusterQueues alone."""
    if node.parent is None:
        return Share()
    borrowed: dict[str, int] = {}
    lendable: dict[str, int] = {}
    root = path_of(node)[-1]
    for index in sorted(_declared(root)):
        resource = built.interned.pair(index)[1]
        lendable[resource] = add(lendable.get(resource, 0), _potential(node.parent, index))
        if index in _declared(node):
            over = _usage(node, index) - _subtree(node, index)
            borrowed[resource] = borrowed.get(resource, 0) + max(0, over)
    ratio, dominant = 0.0, ""
    for resource in sorted(borrowed):
        if lendable[resource] > 0 and borrowed[resource] * 1000.0 / lendable[resource] > ratio:
            ratio, dominant = borrowed[resource] * 1000.0 / lendable[resource], resource
    weights: Any = built.cohorts if node.is_cohort else built.cluster_queues
    weight = weights[node.name].fair_weight if node.name in weights else 1.0
    infinite = weight == 0 and ratio > 0
    return Share(infinite, ratio if weight == 0 else ratio / weight, dominant, any(borrowed.values()))


def _declared(node: Node) -> set[int]:
    return set(node.quotas).union(*(_declared(child) for child in node.children.values()))


def _subtree(node: Node, index: int) -> int:
    own = node.quotas[index].nominal if index in node.quotas else 0
    return own + sum(_subtree(child, index) - _local(child, index) for child in node.children.values())


def _local(node: Node, index: int) -> int:
    lending = node.quotas[index].lending_limit if index in node.quotas else None
    return 0 if lending is None else max(0, _subtree(node, index) - lending)


def _usage(node: Node, index: int) -> int:
    if not node.is_cohort:
        return node.cells[index].usage if index in node.cells else 0
    return sum(max(0, _usage(child, index) - _local(child, index)) for child in node.children.values())


def _potential(node: Node, index: int) -> int:
    if node.parent is None:
        return _subtree(node, index)
    found = _local(node, index) + _potential(node.parent, index)
    limit = node.quotas[index].borrowing_limit if index in node.quotas else None
    return found if limit is None else min(found, _subtree(node, index) + limit)


def nodes(built: World) -> list[Node]:
    forest = built.forest
    return [*map(forest.queue_node, forest.cluster_queues()), *map(forest.cohort_node, forest.cohorts())]


@given(scenes(), st.lists(st.tuples(st.integers(0, 5), st.sampled_from(FLAVORS), st.integers(-3, 4)), max_size=6))
@settings(max_examples=300, deadline=None)
def test_shares_equal_a_computation_from_scratch_after_any_changes(
    scene: Scene, moves: list[tuple[int, str, int]]
) -> None:
    built = scene.world()
    shares = FairShares(built)
    queues = list(built.forest.cluster_queues())
    for place, flavor_name, cpu in [*moves, (0, "default", 0)]:
        vector = {built.interned.index(flavor_name, "cpu"): abs(cpu) * 1000}
        change = built.forest.add_usage if cpu > 0 else built.forest.remove_usage
        change(queues[place % len(queues)], vector)
        for node in nodes(built):
            assert shares.of(node) == plain_share(built, node)


@given(scenes())
@settings(max_examples=300, deadline=None)
def test_imagined_usage_shares_as_real_usage_would(scene: Scene) -> None:
    built = scene.world()
    shares = FairShares(built)
    demand = scene.request(built).demand
    extra = dict(demand)
    imagined = []
    for node in path_of(built.forest.queue_node(scene.queue)):
        imagined.append((shares.of(node, extra), shares.borrows_on(node, demand, extra)))
        extra = shares.spilled(node, extra)
    built.forest.add_usage(scene.queue, demand)
    path = path_of(built.forest.queue_node(scene.queue))
    assert imagined == [(shares.of(node), shares.borrows_on(node, demand)) for node in path]


# --- the tournament ------------------------------------------------------------------------------------------------


def plain_winner(built: World, asks: dict[str, dict[int, int]], ties: dict[str, tuple[int, int, str]]) -> str | None:
    """Core 8.2: shares of every entry on every level, then bottom up from the root."""
    standing: dict[tuple[Node, str], tuple[bool, tuple[bool, float]]] = {}
    for name, asked in asks.items():
        mark = built.forest.mark()
        built.forest.add_usage(name, asked)
        for node in path_of(built.forest.queue_node(name)):
            borrows = any(
                amount > 0 and index in _declared(node) and _usage(node, index) > _subtree(node, index)
                for index, amount in asked.items()
            )
            standing[node, name] = (borrows, plain_share(built, node).key)
        built.forest.undo_to(mark)

    def best(node: Node) -> str | None:
        if not node.is_cohort:
            return node.name if node.name in asks else None
        found = [(standing[child, name], ties[name], name) for child in node.children.values() if (name := best(child))]
        return min(found)[2] if found else None

    return best(built.forest.cohort_node("root"))


@given(scenes(), st.data())
@settings(max_examples=200, deadline=None)
def test_the_tournament_is_that_of_playing_all_rounds_anew(scene: Scene, data: st.DataObject) -> None:
    built = scene.world()
    tournament: Tournament[str] = Tournament(built, HeadOrder())
    asks: dict[str, dict[int, int]] = {}
    ties: dict[str, tuple[int, int, str]] = {}
    for name in built.forest.cluster_queues():
        priority, created = data.draw(st.integers(0, 1)), data.draw(st.integers(0, 1))
        head = info(workload(f"head-{name}", priority=priority, created=created))
        asks[name] = {built.interned.index(f, "cpu"): 1000 * data.draw(st.integers(0, 4)) for f in FLAVORS}
        ties[name] = (-priority, created, head.uid)
        tournament.add(name, head, name, asks[name])
    while asks:
        winner = plain_winner(built, asks, ties)
        assert tournament.pop() == winner
        assert winner is not None
        asked = asks.pop(winner)
        if data.draw(st.booleans()):
            built.forest.add_usage(winner, asked)
    assert tournament.pop() is None


# --- victims -------------------------------------------------------------------------------------------------------


class Watched(Trial):
    """A trial that notes in which state each victim was taken."""

    __slots__ = ("filling", "strategies", "taken")

    def __init__(self, built: World, request: PreemptionRequest, strategies: tuple[str, ...]) -> None:
        super().__init__(built, request)
        self.strategies = strategies or BOTH
        self.taken: list[Target] = []
        self.filling = False

    def remove(self, target: Target) -> None:
        if not self.filling:
            self.check(target)
            self.taken.append(target)
        super().remove(target)

    def restore(self, target: Target) -> None:
        self.filling = True
        super().restore(target)

    def check(self, target: Target) -> None:
        built, own = self.world, self.world.forest.queue_node(self.request.queue.name)
        node = built.forest.queue_node(target.cluster_queue)
        if node is own:
            assert target.reason == "InClusterQueue"
            return
        assert plain_share(built, node).borrowing, "a ClusterQueue that borrows nothing loses nothing"
        if target.reason == "InCohortReclamation":
            for index in self.request.need:
                assert own.cells[index].usage + self.request.demand[index] <= own.cells[index].nominal or self.taken
            return
        assert target.reason == "InCohortFairSharing"
        own_side, side = sides(own, node)
        forest = built.forest
        mark = forest.mark()
        forest.add_usage(own.name, self.request.demand)
        mine, before = plain_share(built, own_side).key, plain_share(built, side).key
        forest.remove_usage(node.name, target.vector)
        after = plain_share(built, side).key
        forest.undo_to(mark)
        assert (BOTH[0] in self.strategies and mine <= after) or (BOTH[1] in self.strategies and mine < before)


def sides(own: Node, node: Node) -> tuple[Node, Node]:
    """Children of the lowest common ancestor on both ways."""
    mine, theirs = path_of(own), path_of(node)
    while mine[-1] is theirs[-1]:
        mine.pop()
        theirs.pop()
    return mine[-1], theirs[-1]


@given(scenes())
@settings(max_examples=400, deadline=None)
def test_each_victim_was_taken_by_a_strategy_that_allowed_it(scene: Scene) -> None:
    built = scene.world()
    request = scene.request(built)
    before = built.forest.dump()
    borrowing = {
        name
        for name in built.forest.cluster_queues()
        if any(
            (cell := built.forest.queue_node(name).cells.get(index)) and cell.usage > cell.nominal
            for index in request.need
        )
    }
    mark = built.forest.mark()
    trial = Watched(built, request, scene.fair.strategies)
    targets = fair_preemption.search(trial, scene.fair)
    built.forest.undo_to(mark)
    assert built.forest.dump() == before, "undone bit for bit"
    assert {target.key for target in targets} <= {target.key for target in trial.taken}
    for target in targets:
        assert target.cluster_queue in borrowing | {scene.queue}
    if targets and not Trial(built, request).fits(True):
        fits_and_is_minimal(built, request, targets)


def fits_and_is_minimal(built: World, request: PreemptionRequest, targets: list[Target]) -> None:
    trial = Trial(built, request)
    mark = built.forest.mark()
    for target in targets:
        trial.remove(target)
    assert trial.fits(True)
    for target in targets:
        trial.restore(target)
        assert not trial.fits(True), "no victim can be kept"
        trial.remove(target)
    built.forest.undo_to(mark)


class PlainSearch:
    """Core 7.6 and 7.7 word by word, the preemptor's usage in the forest all along."""

    def __init__(self, built: World, request: PreemptionRequest, fair: FairSharing) -> None:
        self.world = built
        self.request = request
        self.fair = fair
        self.own = built.forest.queue_node(request.queue.name)
        self.root = path_of(self.own)[-1]
        self.trial = Trial(built, request)
        self.targets: list[Target] = []
        self.retry: dict[str, list[Rank]] = {}

    def run(self) -> list[Target]:
        lines = {self.own.name: list(own_candidates(self.world, self.request))}
        reclaims = self.request.queue.preemption.reclaim_within_cohort != "Never"
        for name in self.world.forest.cluster_queues() if reclaims else ():
            node = self.world.forest.queue_node(name)
            if node is not self.own and any(
                index in node.cells and node.cells[index].usage > node.cells[index].nominal
                for index in self.request.need
            ):
                lines[name] = list(queue_candidates(self.world, self.request, name))
        within = self.fair.preempt_within_nominal and all(
            self.own.cells[index].usage + self.request.demand[index] <= self.own.cells[index].nominal
            if index in self.own.cells
            else self.request.demand[index] <= 0
            for index in self.request.need
        )
        strategies = self.fair.strategies or BOTH
        self.world.forest.add_usage(self.own.name, self.request.demand)
        done = self.first(lines, within, strategies[0]) or (len(strategies) > 1 and self.second(self.retry))
        self.world.forest.remove_usage(self.own.name, self.request.demand)
        return fill_back(self.trial, self.targets, True) if done else []

    def first(self, lines: dict[str, list[Rank]], within: bool, strategy: str) -> bool:
        pruned: set[Node] = set()
        while (node := self.following(lines, pruned)) is not None:
            line = lines[node.name]
            if node is self.own:
                if self.take(node, line.pop(0), "InClusterQueue"):
                    return True
                continue
            if within:
                if self.take(node, line.pop(0), "InCohortReclamation"):
                    return True
                continue
            own_side, side = sides(self.own, node)
            mine, before = plain_share(self.world, own_side), plain_share(self.world, side)
            if mine.infinite and not before.infinite:
                self.retry.setdefault(node.name, []).extend(line)
                line.clear()
            while line:
                candidate = line.pop(0)
                if self.passes(strategy, mine, before, node, side, candidate):
                    if self.take(node, candidate, "InCohortFairSharing"):
                        return True
                    break
                self.retry.setdefault(node.name, []).append(candidate)
        return False

    def second(self, lines: dict[str, list[Rank]]) -> bool:
        pruned: set[Node] = set()
        while (node := self.following(lines, pruned)) is not None:
            own_side, side = sides(self.own, node)
            candidate = lines.pop(node.name)[0]
            if plain_share(self.world, own_side).key < plain_share(self.world, side).key and self.take(
                node, candidate, "InCohortFairSharing"
            ):
                return True
        return False

    def passes(self, strategy: str, mine: Share, before: Share, node: Node, side: Node, candidate: Rank) -> bool:
        if strategy == BOTH[1]:
            return mine.key < before.key
        mark = self.world.forest.mark()
        self.world.forest.remove_usage(node.name, self.world.charges[candidate[4]].vector)
        after = plain_share(self.world, side)
        self.world.forest.undo_to(mark)
        return mine.key <= after.key

    def take(self, node: Node, candidate: Rank, reason: str) -> bool:
        forest = self.world.forest
        target = self.trial.target(candidate[4], node.name, reason)
        self.trial.remove(target)
        self.targets.append(target)
        forest.remove_usage(self.own.name, self.request.demand)
        fits = self.trial.fits(True)
        forest.add_usage(self.own.name, self.request.demand)
        return fits

    def following(self, lines: dict[str, list[Rank]], pruned: set[Node]) -> Node | None:
        while self.root not in pruned:
            node: Node | None = self.root
            while node is not None and node.is_cohort:
                node = self.child(node, lines, pruned)
            if node is not None:
                return node
        return None

    def child(self, parent: Node, lines: dict[str, list[Rank]], pruned: set[Node]) -> Node | None:
        queues, cohorts = [], []
        for child in parent.children.values():
            if child in pruned:
                continue
            share = plain_share(self.world, child)
            if child.is_cohort:
                if share.borrowing or child in path_of(self.own):
                    cohorts.append((share.key, child))
                else:
                    pruned.add(child)
            elif lines.get(child.name) and (share.borrowing or child is self.own):
                head = lines[child.name][0]
                queues.append((share.key, (head[0], child is self.own, *head[1:]), child))
            else:
                pruned.add(child)
        if not queues and not cohorts:
            pruned.add(parent)
            return None
        queue = min(queues, key=lambda one: (not one[0][0], -one[0][1], one[1])) if queues else None
        cohort = min(cohorts, key=lambda one: (not one[0][0], -one[0][1], one[1].name)) if cohorts else None
        if queue is None or (cohort is not None and cohort[0] >= queue[0]):
            assert cohort is not None
            return cohort[1]
        return queue[2]


@given(scenes())
@settings(max_examples=500, deadline=None)
def test_victims_are_those_of_a_plain_reading_of_the_rules(scene: Scene) -> None:
    built = scene.world()
    request = scene.request(built)
    found = find_targets(built, request, scene.fair)
    mark = built.forest.mark()
    expected = PlainSearch(built, request, scene.fair).run()
    built.forest.undo_to(mark)
    policy = request.queue.preemption
    if policy.within_cluster_queue == "Never" and policy.reclaim_within_cohort == "Never":
        expected = []
    assert list(found) == expected


@given(scenes(), st.randoms(use_true_random=False))
@settings(max_examples=200, deadline=None)
def test_the_order_of_arrival_does_not_matter(scene: Scene, random: Any) -> None:
    def found(one: Scene) -> list[tuple[str, str]]:
        built = one.world()
        return [(t.key, t.reason) for t in find_targets(built, one.request(built), one.fair)]

    objects, running = list(scene.objects), list(scene.running)
    random.shuffle(objects)
    random.shuffle(running)
    assert found(scene) == found(msgspec.structs.replace(scene, objects=objects, running=running))
