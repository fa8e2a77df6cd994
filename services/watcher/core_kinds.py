"""Lean views of the kinds the watcher reads that are not of the queueing group: Job, Namespace, PriorityClass, PodTemplate, ProvisioningRequest.

Only fields that are looked at. Whoever writes a Job back, or makes a Workload of it, works on its bytes (`Stored.raw`).
"""

from __future__ import annotations

import msgspec

from shared.api.conditions import Condition
from shared.api.meta import ObjectMeta
from shared.api.schema_hints import ApiStruct, Time


class JobCondition(ApiStruct, frozen=True, kw_only=True):
    """batch/v1 JobCondition; unlike metav1 conditions it may lack a reason."""

    type: str
    status: str
    reason: str = ""
    message: str = ""


class JobSpec(ApiStruct, frozen=True, kw_only=True):
    suspend: bool = False
    parallelism: int | None = None
    completions: int | None = None


class JobStatus(ApiStruct, frozen=True, kw_only=True):
    conditions: tuple[JobCondition, ...] = ()
    start_time: Time | None = None
    active: int = 0
    ready: int = 0
    succeeded: int = 0
    failed: int = 0


class Job(ApiStruct, frozen=True, kw_only=True):
    """batch/v1 Job."""

    metadata: ObjectMeta
    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()

    @property
    def is_finished(self) -> bool:
        """Complete or Failed."""
        return any(c.type in ("Complete", "Failed") and c.status == "True" for c in self.status.conditions)


class Namespace(ApiStruct, frozen=True, kw_only=True):
    """v1 Namespace: its labels."""

    metadata: ObjectMeta


class PriorityClass(ApiStruct, frozen=True, kw_only=True):
    """scheduling.k8s.io/v1 PriorityClass."""

    metadata: ObjectMeta
    value: int = 0
    global_default: bool = False


class PodTemplate(ApiStruct, frozen=True, kw_only=True):
    """v1 PodTemplate: that it exists, and for whom."""

    metadata: ObjectMeta


class PodTemplateReference(ApiStruct, frozen=True, kw_only=True):
    name: str


class ProvisioningPodSet(ApiStruct, frozen=True, kw_only=True):
    pod_template_ref: PodTemplateReference
    count: int = 1


class ProvisioningRequestSpec(ApiStruct, frozen=True, kw_only=True):
    provisioning_class_name: str = ""
    parameters: dict[str, str] = msgspec.field(default_factory=dict)
    pod_sets: tuple[ProvisioningPodSet, ...] = ()


class ProvisioningRequestStatus(ApiStruct, frozen=True, kw_only=True):
    conditions: tuple[Condition, ...] = ()
    provisioning_class_details: dict[str, str] = msgspec.field(default_factory=dict)


class ProvisioningRequest(ApiStruct, frozen=True, kw_only=True):
    """autoscaling.x-k8s.io/v1 ProvisioningRequest."""

    metadata: ObjectMeta
    spec: ProvisioningRequestSpec = ProvisioningRequestSpec()
    status: ProvisioningRequestStatus = ProvisioningRequestStatus()
