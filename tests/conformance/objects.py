"""Kubernetes objects of the scenario files as projections, read leniently.

Scenario objects pass no webhook: fields may be missing and names odd. Nothing is validated or defaulted beyond what the
format pages say.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from shared.api.quantity import request_units
from shared.events import objects as o

Json = Mapping[str, Any]


def seconds(raw: str | None) -> int:
    """RFC 3339 text as seconds since the epoch; absent = the zero time, older than everything."""
    if not raw:
        return 0
    return int(datetime.fromisoformat(raw.replace("Z", "+00:00")).astimezone(UTC).timestamp())


def key_of(raw: Json) -> str:
    """`namespace/name`, or the bare name."""
    meta = raw["metadata"]
    return f"{meta['namespace']}/{meta['name']}" if meta.get("namespace") else str(meta["name"])


def _meta(raw: Json) -> dict[str, Any]:
    meta = raw["metadata"]
    return {
        "namespace": meta.get("namespace", ""),
        "name": meta["name"],
        "uid": meta.get("uid", ""),
        "version": 1,
        "generation": meta.get("generation", 0),
        "created": seconds(meta.get("creationTimestamp")),
        "deleting": bool(meta.get("deletionTimestamp")),
    }


def _texts(raw: Json | None) -> dict[str, str]:
    return {name: str(value) for name, value in (raw or {}).items()}


def _requirements(raw: Any) -> tuple[o.Requirement, ...]:
    return tuple(o.Requirement(one["key"], one["operator"], tuple(one.get("values") or ())) for one in raw or ())


def selector(raw: Json | None) -> o.Selector | None:
    """A label selector; None stays None (matches nothing)."""
    if raw is None:
        return None
    return o.Selector(_texts(raw.get("matchLabels")), _requirements(raw.get("matchExpressions")))


def _tolerations(raw: Any) -> tuple[o.Toleration, ...]:
    return tuple(
        o.Toleration(one.get("key", ""), one.get("operator", "Equal"), one.get("value", ""), one.get("effect", ""))
        for one in raw or ()
    )


def _groups(raw: Any) -> tuple[o.ResourceGroup, ...]:
    return tuple(
        o.ResourceGroup(
            covered=tuple(group.get("coveredResources") or ()),
            flavors=tuple(_flavor(one) for one in group.get("flavors") or ()),
        )
        for group in raw or ()
    )


def _flavor(raw: Json) -> o.Flavor:
    return o.Flavor(
        raw["name"],
        tuple(
            o.FlavorQuota(
                resource=one["name"],
                nominal=str(one.get("nominalQuota", "0")),
                borrowing_limit=_limit(one.get("borrowingLimit")),
                lending_limit=_limit(one.get("lendingLimit")),
            )
            for one in raw.get("resources") or ()
        ),
    )


def _limit(raw: Any) -> str | None:
    return None if raw is None else str(raw)


def cluster_queue(raw: Json) -> o.ClusterQueue:
    spec = raw.get("spec") or {}
    fungibility = spec.get("flavorFungibility") or {}
    preemption = spec.get("preemption") or {}
    borrow = preemption.get("borrowWithinCohort") or {}
    checks = (spec.get("admissionChecksStrategy") or {}).get("admissionChecks") or ()
    return o.ClusterQueue(
        **_meta(raw),
        cohort=spec.get("cohortName", ""),
        strategy=spec.get("queueingStrategy", "BestEffortFIFO"),
        groups=_groups(spec.get("resourceGroups")),
        namespace_selector=selector(spec.get("namespaceSelector")),
        when_can_borrow=fungibility.get("whenCanBorrow") or "MayStopSearch",
        when_can_preempt=fungibility.get("whenCanPreempt") or "TryNextFlavor",
        fungibility_preference=fungibility.get("preference") or "",
        reclaim_within_cohort=preemption.get("reclaimWithinCohort") or "Never",
        borrow_within_cohort=borrow.get("policy") or "Never",
        borrow_max_priority=borrow.get("maxPriorityThreshold"),
        within_cluster_queue=preemption.get("withinClusterQueue") or "Never",
        checks=tuple(o.CheckRule(one["name"], tuple(one.get("onFlavors") or ())) for one in checks),
        stop_policy=spec.get("stopPolicy") or "None",
        fair_weight=str((spec.get("fairSharing") or {}).get("weight", "1")),
        admission_mode=(spec.get("admissionScope") or {}).get("admissionMode", ""),
        last_acceptable_flavor=_last_acceptable(spec),
    )


def _last_acceptable(spec: Json) -> str:
    migration = (spec.get("concurrentAdmissionPolicy") or {}).get("migration") or {}
    return str((migration.get("constraints") or {}).get("lastAcceptableFlavorName", ""))


def local_queue(raw: Json) -> o.LocalQueue:
    spec = raw.get("spec") or {}
    return o.LocalQueue(
        **_meta(raw),
        cluster_queue=spec.get("clusterQueue", ""),
        stop_policy=spec.get("stopPolicy") or "None",
        fair_weight=str((spec.get("fairSharing") or {}).get("weight", "1")),
    )


def cohort(raw: Json) -> o.Cohort:
    spec = raw.get("spec") or {}
    return o.Cohort(
        **_meta(raw),
        parent=spec.get("parentName", ""),
        groups=_groups(spec.get("resourceGroups")),
        fair_weight=str((spec.get("fairSharing") or {}).get("weight", "1")),
    )


def resource_flavor(raw: Json) -> o.ResourceFlavor:
    spec = raw.get("spec") or {}
    return o.ResourceFlavor(
        **_meta(raw),
        node_labels=_texts(spec.get("nodeLabels")),
        node_taints=tuple(
            o.Taint(one["key"], one.get("value", ""), one.get("effect", "")) for one in spec.get("nodeTaints") or ()
        ),
        tolerations=_tolerations(spec.get("tolerations")),
        topology=spec.get("topologyName", ""),
    )


def admission_check(raw: Json) -> o.AdmissionCheck:
    found = [one for one in conditions((raw.get("status") or {}).get("conditions")) if one.type == "Active"]
    return o.AdmissionCheck(
        **_meta(raw),
        controller=(raw.get("spec") or {}).get("controllerName", ""),
        active=found[0] if found else None,
    )


def conditions(raw: Any) -> tuple[o.Condition, ...]:
    """Conditions with their times in seconds."""
    return tuple(
        o.Condition(
            type=one["type"],
            status=one.get("status") == "True",
            reason=one.get("reason", ""),
            message=one.get("message", ""),
            changed=seconds(one.get("lastTransitionTime")),
        )
        for one in raw or ()
    )


def _container(raw: Json) -> o.Container:
    resources = raw.get("resources") or {}
    return o.Container(
        requests=_texts(resources.get("requests")),
        limits=_texts(resources.get("limits")),
        sidecar=raw.get("restartPolicy") == "Always",
    )


def _pod_set(raw: Json) -> o.PodSet:
    spec = (raw.get("template") or {}).get("spec") or {}
    affinity = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    pod_level = spec.get("resources")
    terms = (affinity or {}).get("nodeSelectorTerms") or ()
    return o.PodSet(
        name=raw.get("name", "main"),
        count=raw.get("count", 1),
        min_count=raw.get("minCount"),
        containers=tuple(_container(one) for one in spec.get("containers") or ()),
        init_containers=tuple(_container(one) for one in spec.get("initContainers") or ()),
        pod_requests=_texts(pod_level.get("requests")) if pod_level else None,
        pod_limits=_texts(pod_level.get("limits")) if pod_level else None,
        overhead=_texts(spec.get("overhead")),
        runtime_class=spec.get("runtimeClassName", ""),
        node_selector=_texts(spec.get("nodeSelector")),
        affinity_terms=tuple(_requirements(term.get("matchExpressions")) for term in terms) if affinity else None,
        tolerations=_tolerations(spec.get("tolerations")),
        topology=_texts(raw.get("topologyRequest")),
    )


def admission(raw: Json | None) -> o.Admission | None:
    """A reservation, usage in base units; None when there is none."""
    if not raw:
        return None
    return o.Admission(
        raw.get("clusterQueue", ""),
        tuple(
            o.PodSetAssignment(
                name=one.get("name", "main"),
                count=one.get("count", 0),
                flavors=_texts(one.get("flavors")),
                usage={name: request_units(name, value) for name, value in (one.get("resourceUsage") or {}).items()},
                delayed_topology=one.get("delayedTopologyRequest") == "Pending" and not one.get("topologyAssignment"),
            )
            for one in raw.get("podSetAssignments") or ()
        ),
    )


def workload(raw: Json) -> o.Workload:
    spec, status = raw.get("spec") or {}, raw.get("status") or {}
    requeue = status.get("requeueState") or {}
    annotations = _texts(raw["metadata"].get("annotations"))
    requeue_at = requeue.get("requeueAt")
    read = conditions(status.get("conditions"))
    class_ref = spec.get("priorityClassRef") or {}
    return o.Workload(
        **_meta(raw),
        queue_name=spec.get("queueName", ""),
        priority_class=class_ref.get("name", ""),
        priority_class_source=class_ref.get("kind", ""),
        priority=spec.get("priority") or 0,
        priority_boost=_boost(annotations.get("kueue.x-k8s.io/priority-boost", "")),
        active=spec.get("active", True),
        pod_sets=tuple(_pod_set(one) for one in spec.get("podSets") or ()),
        conditions=read,
        admission=admission(status.get("admission")),
        checks=tuple(
            o.CheckState(
                name=one["name"],
                state=one.get("state", "Pending"),
                changed=seconds(one.get("lastTransitionTime")),
                requeue_after_s=one.get("requeueAfterSeconds"),
            )
            for one in status.get("admissionChecks") or ()
        ),
        preemption_gates=_gates(spec, status),
        owners=tuple(
            o.Owner(one["apiVersion"], one["kind"], one["name"], one["uid"], bool(one.get("controller")))
            for one in raw["metadata"].get("ownerReferences") or ()
        ),
        requeue_count=requeue.get("count", 0),
        requeue_at=seconds(requeue_at) if requeue_at else None,
        has_requeue_state=bool(requeue),
        past_execution_s=status.get("accumulatedPastExecutionTimeSeconds") or 0,
        reclaimable={one["name"]: one["count"] for one in status.get("reclaimablePods") or ()},
        annotations=annotations,
        job_uid=(raw["metadata"].get("labels") or {}).get("kueue.x-k8s.io/job-uid", ""),
        finished=any(one.type == "Finished" and one.status for one in read),
    )


def _gates(spec: Json, status: Json) -> tuple[o.PreemptionGate, ...]:
    positions = {one["name"]: one.get("position") == "Open" for one in status.get("preemptionGates") or ()}
    return tuple(
        o.PreemptionGate(one["name"], positions.get(one["name"], False)) for one in spec.get("preemptionGates") or ()
    )


def _boost(raw: str) -> int:
    try:
        boost = int(raw)
    except ValueError:
        return 0
    return boost if -(2**31) <= boost < 2**31 else 0
