"""Pods for tests of the rules about them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from shared.api import names
from shared.api.pods import SchedulingGate
from shared.jobs.pod_view import Pod, PodCondition, PodMeta, PodSpecView, PodStatusView

NOW = datetime(2026, 1, 2, 4, 0, 0, tzinfo=UTC)


def pod(
    name: str,
    *,
    age: int = 0,
    role: str = "a",
    phase: str = "Running",
    gated: bool = False,
    finalizer: bool = True,
    deleted: int | None = None,
    node: str = "n",
    total: str = "3",
    failed: int | None = None,
    ready: bool = False,
    queue: str = "q",
    annotations: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
) -> Pod:
    """`age`, `deleted`, `failed`: seconds before NOW (of the deletion time: after it, when negative)."""
    conditions = [PodCondition(type="Ready", status="True" if ready else "False")]
    if failed is not None:
        at = NOW - timedelta(seconds=failed)
        conditions.append(
            PodCondition(type="ContainersReady", status="False", reason="PodFailed", last_transition_time=at)
        )
    return Pod(
        metadata=PodMeta(
            name=name,
            uid=f"uid-{name}",
            creation_timestamp=NOW - timedelta(seconds=age),
            deletion_timestamp=None if deleted is None else NOW - timedelta(seconds=deleted),
            finalizers=(names.POD_FINALIZER,) if finalizer else (),
            labels={names.QUEUE_NAME_LABEL: queue, **(labels or {})},
            annotations={names.ROLE_HASH: role, names.POD_GROUP_TOTAL_COUNT: total, **(annotations or {})},
        ),
        spec=PodSpecView(
            node_name=node, scheduling_gates=(SchedulingGate(name=names.ADMISSION_SCHEDULING_GATE),) if gated else ()
        ),
        status=PodStatusView(phase=phase, conditions=tuple(conditions)),
    )


def names_of(pods: object) -> list[str]:
    assert isinstance(pods, list | tuple)
    return [one.metadata.name for one in pods]
