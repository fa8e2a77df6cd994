"""Steps and expectations of fair sharing: shares of queues and cohorts, and consumption of LocalQueues."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from shared.api.quantity import parse
from shared.decide.fair_share import FairShares
from shared.model.admission_fair_sharing import AfsSettings, UsageRecord
from shared.model.quota_tree import Node
from tests.conformance.scenario import demand_equal

if TYPE_CHECKING:
    from tests.conformance.engine import Engine

Json = dict[str, Any]


def afs_settings(config: Mapping[str, Any], enabled: bool) -> AfsSettings | None:
    """`admissionFairSharing` of a case's configuration; None when it is not in force."""
    raw = config.get("admissionFairSharing")
    if raw is None or not enabled:
        return None
    return AfsSettings(
        half_life_s=_seconds(raw.get("usageHalfLifeTime", "0s")),
        sampling_s=_seconds(raw.get("usageSamplingInterval", "5m")),
        weights={name: float(weight) for name, weight in (raw.get("resourceWeights") or {}).items()},
    )


def _seconds(text: str) -> float:
    """A duration such as 10s, 5m or 1h30m."""
    parts = re.findall(r"([0-9.]+)(ms|h|m|s)", text)
    return sum(float(number) * {"h": 3600, "m": 60, "s": 1, "ms": 0.001}[unit] for number, unit in parts)


def seed_usage(engine: Engine, raw: Mapping[str, Mapping[str, Any]]) -> None:
    """`localQueueUsage`: consumption as of now."""
    if engine.world.afs is None:
        return
    for key, consumed in raw.items():
        record = UsageRecord({name: parse(amount).nano for name, amount in consumed.items()}, engine.now)
        engine.world.afs.take_record(key, record)


def shares(engine: Engine, step: Json) -> None:
    """The step `shares`: every node's share with the extra usage on top of its own."""
    extra = engine.vector(step.get("extraUsage") or {})
    found = FairShares(engine.world)
    rows = []
    for kind, node in _nodes(engine):
        share = found.of(node, extra)
        rows.append(
            {
                "kind": kind,
                "name": node.name,
                "value": share.rounded(),
                "resource": share.resource,
                "borrowing": share.borrowing,
            }
        )
    engine.answers["shares"] = rows


def _nodes(engine: Engine) -> list[tuple[str, Node]]:
    forest = engine.world.forest
    queues = [
        ("ClusterQueue", forest.queue_node(name)) for name in forest.cluster_queues() if engine.world.in_snapshot(name)
    ]
    return [*queues, *(("Cohort", forest.cohort_node(name)) for name in forest.cohorts())]


def borrowing_on(engine: Engine, step: Json) -> None:
    """The step `borrowingOn`."""
    queue = step["clusterQueue"]
    found, node = FairShares(engine.world), engine.world.forest.queue_node(queue)
    requested = engine.vector(step.get("requested") or {})
    engine.answers.setdefault("borrowing", {})[queue] = found.of(node).borrowing
    engine.answers.setdefault("borrowingOnRequested", {})[queue] = found.borrows_on(node, requested)


def check_shares(engine: Engine, wanted: list[Json]) -> None:
    def by_node(rows: list[Json]) -> dict[tuple[str, str], Json]:
        return {(row["kind"], row["name"]): row for row in rows}

    demand_equal("shares", by_node(engine.answers.get("shares", [])), by_node(wanted))
