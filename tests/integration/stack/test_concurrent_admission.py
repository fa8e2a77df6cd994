"""A queue that tries several flavors of a Job at once: the variants race, the first one wins, better ones follow, and nothing stays behind."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from cli.observe import Observer, observing
from devcluster.stack import Stack
from shared.api.conditions import find, is_true
from shared.api.workload import Workload
from shared.kube.client import KubeClient
from tests.integration.stack.configured import configured_stack
from tests.integration.stack.manifests import (
    Manifest,
    as_list,
    cluster_queue,
    create_job,
    flavor,
    job,
    local_queue,
    priority_class,
)

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(240)]

Watched = tuple[KubeClient, Observer]
CONFIGURATION = """
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
featureGates: {ConcurrentAdmission: true}
"""
PARENT = "kueue.x-k8s.io/concurrent-admission-parent"
FLAVOR = "kueue.x-k8s.io/workload-allowed-resource-flavors"
PRIORITY = "kueue.x-k8s.io/priority-class"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def racing(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stack]:
    async with configured_stack(tmp_path_factory.mktemp("concurrent"), CONFIGURATION) as running:
        await running.cluster.kubectl("apply", "-f", "-", stdin=as_list(flavor("first"), flavor("second")))
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def watched(racing: Stack) -> AsyncIterator[Watched]:
    async with observing(racing.cluster.kubeconfig) as pair:
        yield pair


def race(name: str, mode: str = "TryPreferredFlavors", last: str = "", cpu: str = "1", **spec: Any) -> list[Manifest]:
    """A queue of two flavors with room for one Job each."""
    migration: Manifest = {"mode": mode}
    if last:
        migration["constraints"] = {"lastAcceptableFlavorName": last}
    policy = {"migration": migration}
    whole = cluster_queue(name, cpu, flavors=("first", "second"), concurrentAdmissionPolicy=policy, **spec)
    return [whole, local_queue(name)]


def family(seen: Observer, uid: str) -> list[Workload]:
    """Parent and variants of a Job."""
    return [w for w in seen.workloads.values() if w.metadata.labels.get("kueue.x-k8s.io/job-uid") == uid]


def parent(seen: Observer, uid: str) -> Workload | None:
    return next((w for w in family(seen, uid) if PARENT in w.metadata.labels), None)


def variants(seen: Observer, uid: str) -> dict[str, Workload]:
    return {w.metadata.annotations[FLAVOR]: w for w in family(seen, uid) if FLAVOR in w.metadata.annotations}


def runs_on(seen: Observer, uid: str, name: str) -> str:
    """Flavor of the parent of a Job that runs, when that of its one admitted variant is the same; else empty."""
    found = parent(seen, uid)
    state = seen.jobs.get(f"default/{name}")
    if found is None or found.status.admission is None or state is None or state.suspended:
        return ""
    admitted = [f for f, w in variants(seen, uid).items() if is_true(w.status.conditions, "QuotaReserved")]
    flavors = set(found.status.admission.pod_set_assignments[0].flavors.values())
    return admitted[0] if flavors == set(admitted) else ""


def active(seen: Observer, uid: str) -> dict[str, bool]:
    return {flavor: w.spec.active for flavor, w in variants(seen, uid).items()}


async def reasons(stack: Stack, about: str) -> set[str]:
    found = await stack.cluster.kubectl(
        "get", "events.events.k8s.io", "-o", f'jsonpath={{.items[?(@.regarding.name=="{about}")].reason}}'
    )
    return set(found.split())


async def gone(stack: Stack, seen: Observer, uid: str, name: str) -> None:
    await stack.cluster.kubectl("delete", "job", name, "--wait=false")
    assert await seen.until(lambda: not family(seen, uid), 40), family(seen, uid)


async def test_variants_race_the_winner_runs_and_moves_to_a_better_flavor(racing: Stack, watched: Watched) -> None:
    client, seen = watched
    await racing.cluster.kubectl("apply", "-f", "-", stdin=as_list(*race("moving")))
    one = await create_job(client, job("moving-one", "moving", run_seconds="forever"))
    assert await seen.until(lambda: runs_on(seen, one, "moving-one") == "first", 30), family(seen, one)
    assert await seen.until(lambda: active(seen, one) == {"first": True, "second": False}, 20)

    two = await create_job(client, job("moving-two", "moving", run_seconds="forever"))
    assert await seen.until(lambda: runs_on(seen, two, "moving-two") == "second", 30), family(seen, two)
    assert active(seen, two) == {"first": True, "second": True}
    assert await seen.until(lambda: seen.cluster_queues["moving"].status.admitted_workloads == 2, 20)
    loser = variants(seen, two)["first"]
    assert loser.metadata.controller_owner() == reference_to(parent(seen, two))

    await gone(racing, seen, one, "moving-one")
    assert await seen.until(lambda: runs_on(seen, two, "moving-two") == "first", 40), family(seen, two)
    assert await seen.until(lambda: active(seen, two) == {"first": True, "second": False}, 20)
    left = variants(seen, two)["second"]
    evicted = find(left.status.conditions, "Evicted")
    assert evicted is not None
    assert evicted.reason == "FlavorMigration"
    assert variants(seen, two)["first"].metadata.uid in evicted.message
    whole = parent(seen, two)
    assert whole is not None
    told = await reasons(racing, whole.metadata.name)
    assert {"CreatedVariant", "Admitted", "EvictedDueToVariantEvicted"} <= told
    assert "DeactivatedVariant" in await reasons(racing, left.metadata.name)
    await gone(racing, seen, two, "moving-two")
    assert await seen.until(lambda: seen.cluster_queues["moving"].status.reserving_workloads == 0, 20)


def reference_to(found: Workload | None) -> Any:
    """The reference that a variant has to its parent."""
    assert found is not None
    return next(
        type(o)(
            api_version="kueue.x-k8s.io/v1beta2",
            kind="Workload",
            name=found.metadata.name,
            uid=found.metadata.uid,
            controller=True,
            block_owner_deletion=True,
        )
        for o in found.metadata.owner_references
    )


async def test_the_first_admission_is_retained_where_the_queue_says_so(racing: Stack, watched: Watched) -> None:
    client, seen = watched
    await racing.cluster.kubectl("apply", "-f", "-", stdin=as_list(*race("staying", "RetainFirstAdmission")))
    one = await create_job(client, job("staying-one", "staying", run_seconds="forever"))
    assert await seen.until(lambda: bool(runs_on(seen, one, "staying-one")), 30), family(seen, one)
    at = runs_on(seen, one, "staying-one")
    assert await seen.until(lambda: active(seen, one) == {"first": at == "first", "second": at == "second"}, 20)
    two = await create_job(client, job("staying-two", "staying", run_seconds="forever"))
    other = "second" if at == "first" else "first"
    assert await seen.until(lambda: runs_on(seen, two, "staying-two") == other, 30), family(seen, two)
    await gone(racing, seen, one, "staying-one")
    three = await create_job(client, job("staying-three", "staying", run_seconds="forever"))
    assert await seen.until(lambda: runs_on(seen, three, "staying-three") == at, 30), family(seen, three)
    assert runs_on(seen, two, "staying-two") == other
    moved = parent(seen, two)
    assert moved is not None
    assert find(moved.status.conditions, "Evicted") is None
    for uid, name in ((two, "staying-two"), (three, "staying-three")):
        await gone(racing, seen, uid, name)


async def test_one_variant_after_the_other_may_preempt(racing: Stack, watched: Watched) -> None:
    client, seen = watched
    preemption = {"withinClusterQueue": "LowerPriority"}
    objects = [priority_class("race-high", 100), *race("pushing", preemption=preemption)]
    await racing.cluster.kubectl("apply", "-f", "-", stdin=as_list(*objects))
    lows = {}
    for name, at in (("pushing-one", "first"), ("pushing-two", "second")):
        lows[name] = await create_job(client, job(name, "pushing", run_seconds="forever"))
        assert await seen.until(lambda name=name, at=at: runs_on(seen, lows[name], name) == at, 30)  # type: ignore[misc]
    high = await create_job(
        client, job("pushing-high", "pushing", run_seconds="forever", labels={PRIORITY: "race-high"})
    )
    assert await seen.until(lambda: runs_on(seen, high, "pushing-high") == "first", 40), family(seen, high)
    opened = {f: [g.position for g in w.status.preemption_gates] for f, w in variants(seen, high).items()}
    assert opened["first"] == ["Open"]
    assert "Open" not in opened["second"]
    assert "PreemptionUngatedVariant" in await reasons(racing, variants(seen, high)["first"].metadata.name)
    assert await seen.until(lambda: seen.jobs["default/pushing-one"].suspended, 20)
    assert runs_on(seen, lows["pushing-two"], "pushing-two") == "second"
    await gone(racing, seen, high, "pushing-high")
    assert await seen.until(lambda: bool(runs_on(seen, lows["pushing-one"], "pushing-one")), 40)
    for name, uid in lows.items():
        await gone(racing, seen, uid, name)


async def test_a_job_that_ends_is_deactivated_or_deleted_leaves_nothing(racing: Stack, watched: Watched) -> None:
    client, seen = watched
    await racing.cluster.kubectl("apply", "-f", "-", stdin=as_list(*race("leaving")))
    # It ends: so have all of its family.
    short = await create_job(client, job("leaving-short", "leaving"))

    def finished() -> bool:
        reasons_ = [c.reason for w in family(seen, short) if (c := find(w.status.conditions, "Finished")) is not None]
        return reasons_ == ["Succeeded"] * 3

    assert await seen.until(finished, 40), family(seen, short)
    await gone(racing, seen, short, "leaving-short")

    # It waits: too large for either flavor.
    waits = await create_job(client, job("leaving-waits", "leaving", cpu="5"))
    assert await seen.until(lambda: len(variants(seen, waits)) == 2, 20)
    assert await seen.until(
        lambda: all(
            (c := find(w.status.conditions, "QuotaReserved")) is not None and c.reason == "ExceedsMaxQuota"
            for w in variants(seen, waits).values()
        ),
        20,
    ), variants(seen, waits)
    await gone(racing, seen, waits, "leaving-waits")

    # Its user deactivates it while it runs, and activates it again.
    runs = await create_job(client, job("leaving-runs", "leaving", run_seconds="forever"))
    assert await seen.until(lambda: runs_on(seen, runs, "leaving-runs") == "first", 30)
    name = parent(seen, runs)
    assert name is not None
    for wanted in ("false", "true"):
        await racing.cluster.kubectl(
            "patch", "workload", name.metadata.name, "--type=merge", "-p", f'{{"spec":{{"active":{wanted}}}}}'
        )
        if wanted == "false":
            assert await seen.until(lambda: not any(w.spec.active for w in family(seen, runs)), 30)
            assert await seen.until(
                lambda: not any(is_true(w.status.conditions, "QuotaReserved") for w in family(seen, runs)), 30
            ), family(seen, runs)
            assert seen.jobs["default/leaving-runs"].suspended
    assert await seen.until(lambda: runs_on(seen, runs, "leaving-runs") == "first", 40), family(seen, runs)

    # Somebody deletes the variant that it runs by: it is made again, and the Job goes on by one of them.
    by = variants(seen, runs)["first"]
    await racing.cluster.kubectl("delete", "workload", by.metadata.name, "--wait=false")
    assert await seen.until(
        lambda: "first" in variants(seen, runs) and variants(seen, runs)["first"].metadata.uid != by.metadata.uid, 20
    )
    assert await seen.until(lambda: runs_on(seen, runs, "leaving-runs") == "first", 40), family(seen, runs)
    await gone(racing, seen, runs, "leaving-runs")
    assert await seen.until(lambda: seen.cluster_queues["leaving"].status.reserving_workloads == 0, 20)
    assert not seen.malformed
