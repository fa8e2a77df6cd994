"""From an object of the API to its projection: what OBJECTS carries of it. Pure.

One function a kind, found by `project`. Workloads, which are most of the work, have projections_workload to themselves; what pods get beside
their template is in projections_pods.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from services.watcher.core_kinds import Namespace, PodTemplate, ProvisioningRequest
from services.watcher.kinds import Stored
from services.watcher.projections_parts import (
    condition_of,
    conditions_of,
    identity,
    owners_of,
    seconds,
    selector_of,
    toleration_of,
)
from services.watcher.projections_pods import claim_template, device_class, limit_range, runtime_class
from services.watcher.projections_workload import incarnation_of, project_workload
from shared.api import names
from shared.api.admission_check import AdmissionCheck
from shared.api.cluster_queue import ClusterQueue, FlavorUsage
from shared.api.cohort import Cohort
from shared.api.conditions import find
from shared.api.local_queue import LocalQueue, LocalQueueFlavorUsage, LocalQueueResourceUsage
from shared.api.provisioning_request_config import ProvisioningRequestConfig
from shared.api.quantity import request_units
from shared.api.quota_groups import FairSharing, ResourceGroup
from shared.api.resource_flavor import ResourceFlavor
from shared.api.topology import Topology
from shared.api.workload import Workload
from shared.api.workload_priority_class import WorkloadPriorityClass
from shared.events import objects

__all__ = ["incarnation_of", "project", "project_workload"]


def project(stored: Stored) -> objects.Object | None:
    """What OBJECTS carries of it; None for kinds that are not on the bus. Raises ValueError for amounts that are no quantities."""
    found = stored.object
    if isinstance(found, Workload):
        return project_workload(found, stored.raw)
    make = _BY_KIND.get(stored.kind)
    return make(found) if make is not None else None


def _cluster_queue(found: ClusterQueue) -> objects.ClusterQueue:
    spec, status = found.spec, found.status
    fungibility, preemption = spec.flavor_fungibility, spec.preemption
    strategy = spec.admission_checks_strategy
    migration = spec.concurrent_admission_policy.migration if spec.concurrent_admission_policy else None
    return objects.ClusterQueue(
        **identity(found.metadata),
        cohort=spec.cohort_name,
        strategy=spec.queueing_strategy,
        groups=_groups(spec.resource_groups),
        namespace_selector=selector_of(spec.namespace_selector),
        when_can_borrow=fungibility.when_can_borrow,
        when_can_preempt=fungibility.when_can_preempt,
        fungibility_preference=fungibility.preference or "",
        reclaim_within_cohort=preemption.reclaim_within_cohort,
        borrow_within_cohort=preemption.borrow_within_cohort.policy,
        borrow_max_priority=preemption.borrow_within_cohort.max_priority_threshold,
        within_cluster_queue=preemption.within_cluster_queue,
        checks=tuple(objects.CheckRule(rule.name, rule.on_flavors) for rule in strategy.admission_checks)
        if strategy
        else (),
        stop_policy=spec.stop_policy,
        fair_weight=_weight(spec.fair_sharing),
        admission_mode=spec.admission_scope.admission_mode if spec.admission_scope else "",
        migration_mode=migration.mode if migration else "",
        last_acceptable_flavor=migration.constraints.last_acceptable_flavor_name
        if migration and migration.constraints
        else "",
        weighted_share=status.fair_sharing.weighted_share if status.fair_sharing else None,
        status_pending=status.pending_workloads,
        status_reserving=status.reserving_workloads,
        status_admitted=status.admitted_workloads,
        status_reservation=_usage(status.flavors_reservation),
        status_usage=_usage(status.flavors_usage),
        conditions=conditions_of(status.conditions),
    )


def _local_queue(found: LocalQueue) -> objects.LocalQueue:
    spec, status = found.spec, found.status
    usage = status.fair_sharing.admission_fair_sharing_status if status.fair_sharing else None
    return objects.LocalQueue(
        **identity(found.metadata),
        cluster_queue=spec.cluster_queue,
        stop_policy=spec.stop_policy,
        fair_weight=_weight(spec.fair_sharing),
        consumed={resource: str(amount) for resource, amount in usage.consumed_resources.items()} if usage else {},
        consumed_at=seconds(usage.last_update) if usage and usage.last_update else None,
        status_pending=status.pending_workloads,
        status_reserving=status.reserving_workloads,
        status_admitted=status.admitted_workloads,
        status_reservation=_usage(status.flavors_reservation),
        status_usage=_usage(status.flavors_usage),
        conditions=conditions_of(status.conditions),
    )


def _cohort(found: Cohort) -> objects.Cohort:
    spec, share = found.spec, found.status.fair_sharing
    return objects.Cohort(
        **identity(found.metadata),
        parent=spec.parent_name,
        groups=_groups(spec.resource_groups),
        fair_weight=_weight(spec.fair_sharing),
        weighted_share=share.weighted_share if share else None,
    )


def _resource_flavor(found: ResourceFlavor) -> objects.ResourceFlavor:
    spec = found.spec
    return objects.ResourceFlavor(
        **identity(found.metadata),
        node_labels=spec.node_labels,
        node_taints=tuple(objects.Taint(t.key, t.value, t.effect) for t in spec.node_taints),
        tolerations=tuple(toleration_of(t) for t in spec.tolerations),
        topology=spec.topology_name,
    )


def _admission_check(found: AdmissionCheck) -> objects.AdmissionCheck:
    parameters = found.spec.parameters
    active = find(found.status.conditions, names.ACTIVE)
    return objects.AdmissionCheck(
        **identity(found.metadata),
        controller=found.spec.controller_name,
        parameters_kind=parameters.kind if parameters else "",
        parameters_group=parameters.api_group if parameters else "",
        parameters_name=parameters.name if parameters else "",
        active=condition_of(active) if active else None,
    )


def _workload_priority_class(found: WorkloadPriorityClass) -> objects.WorkloadPriorityClass:
    return objects.WorkloadPriorityClass(**identity(found.metadata), value=found.value)


def _namespace(found: Namespace) -> objects.Namespace:
    return objects.Namespace(**identity(found.metadata), labels=found.metadata.labels)


def _topology(found: Topology) -> objects.Topology:
    return objects.Topology(**identity(found.metadata), levels=tuple(level.node_label for level in found.spec.levels))


def _provisioning_request_config(found: ProvisioningRequestConfig) -> objects.ProvisioningRequestConfig:
    spec = found.spec
    updates = spec.pod_set_updates.node_selector if spec.pod_set_updates else ()
    return objects.ProvisioningRequestConfig(
        **identity(found.metadata),
        class_name=spec.provisioning_class_name,
        parameters=spec.parameters,
        managed_resources=spec.managed_resources,
        backoff_limit=spec.retry_strategy.backoff_limit_count,
        backoff_base_s=spec.retry_strategy.backoff_base_seconds,
        backoff_max_s=spec.retry_strategy.backoff_max_seconds,
        selector_updates=tuple((update.key, update.value_from_provisioning_class_detail) for update in updates),
        merge_policy=spec.pod_set_merge_policy or "",
    )


def _provisioning_request(found: ProvisioningRequest) -> objects.ProvisioningRequest:
    spec, status = found.spec, found.status
    return objects.ProvisioningRequest(
        **identity(found.metadata),
        class_name=spec.provisioning_class_name,
        parameters=spec.parameters,
        pod_sets=tuple((pod_set.pod_template_ref.name, pod_set.count) for pod_set in spec.pod_sets),
        owners=owners_of(found.metadata),
        conditions=conditions_of(status.conditions),
        class_details=status.provisioning_class_details,
    )


def _pod_template(found: PodTemplate) -> objects.PodTemplate:
    return objects.PodTemplate(**identity(found.metadata), owners=owners_of(found.metadata))


# Each function takes the Struct that services.watcher.kinds gives its kind; the table as a whole has no narrower type.
_BY_KIND: Mapping[str, Callable[[Any], objects.Object]] = {
    "clusterqueue": _cluster_queue,
    "localqueue": _local_queue,
    "cohort": _cohort,
    "resourceflavor": _resource_flavor,
    "admissioncheck": _admission_check,
    "workloadpriorityclass": _workload_priority_class,
    "namespace": _namespace,
    "topology": _topology,
    "provisioningrequestconfig": _provisioning_request_config,
    "provisioningrequest": _provisioning_request,
    "podtemplate": _pod_template,
    "limitrange": limit_range,
    "runtimeclass": runtime_class,
    "deviceclass": device_class,
    "resourceclaimtemplate": claim_template,
}


def _groups(groups: tuple[ResourceGroup, ...]) -> tuple[objects.ResourceGroup, ...]:
    return tuple(
        objects.ResourceGroup(
            covered=group.covered_resources,
            flavors=tuple(
                objects.Flavor(
                    name=flavor.name,
                    quotas=tuple(
                        objects.FlavorQuota(
                            resource=quota.name,
                            nominal=str(quota.nominal_quota),
                            borrowing_limit=None if quota.borrowing_limit is None else str(quota.borrowing_limit),
                            lending_limit=None if quota.lending_limit is None else str(quota.lending_limit),
                        )
                        for quota in flavor.resources
                    ),
                )
                for flavor in group.flavors
            ),
        )
        for group in groups
    )


def _usage(flavors: tuple[FlavorUsage, ...] | tuple[LocalQueueFlavorUsage, ...]) -> objects.QueueUsage:
    return objects.QueueUsage(
        tuple(
            (
                flavor.name,
                usage.name,
                request_units(usage.name, usage.total),
                0 if isinstance(usage, LocalQueueResourceUsage) else request_units(usage.name, usage.borrowed),
            )
            for flavor in flavors
            for usage in flavor.resources
        )
    )


def _weight(sharing: FairSharing | None) -> str:
    return str(sharing.weight) if sharing else "1"
