"""Lean views of the kinds the watcher reads that are not of the queueing group: Job, Namespace, PriorityClass, PodTemplate, ProvisioningRequest,
and what pods get beside their template: LimitRange, RuntimeClass, DeviceClass, ResourceClaimTemplate.

Only fields that are looked at. Whoever writes a Job back, or makes a Workload of it, works on its bytes (`Stored.raw`).
"""

from __future__ import annotations

import msgspec

from shared.api.conditions import Condition
from shared.api.meta import ObjectMeta
from shared.api.schema_hints import ApiStruct, RawQuantity, Time


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


class JobObject(ApiStruct, frozen=True, kw_only=True):
    """Any other kind of job: all that is the same in each of them. Its integration reads the bytes."""

    metadata: ObjectMeta


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


Amounts = dict[str, RawQuantity]


class LimitRangeItem(ApiStruct, frozen=True, kw_only=True):
    type: str
    max: Amounts = msgspec.field(default_factory=dict)
    min: Amounts = msgspec.field(default_factory=dict)
    default: Amounts = msgspec.field(default_factory=dict)
    default_request: Amounts = msgspec.field(default_factory=dict)


class LimitRangeSpec(ApiStruct, frozen=True, kw_only=True):
    limits: tuple[LimitRangeItem, ...] = ()


class LimitRange(ApiStruct, frozen=True, kw_only=True):
    """v1 LimitRange."""

    metadata: ObjectMeta
    spec: LimitRangeSpec = LimitRangeSpec()


class Overhead(ApiStruct, frozen=True, kw_only=True):
    pod_fixed: Amounts = msgspec.field(default_factory=dict)


class RuntimeClass(ApiStruct, frozen=True, kw_only=True):
    """node.k8s.io/v1 RuntimeClass: what a pod of it costs beside its containers."""

    metadata: ObjectMeta
    overhead: Overhead | None = None


class DeviceClassSpec(ApiStruct, frozen=True, kw_only=True):
    extended_resource_name: str = ""


class DeviceClass(ApiStruct, frozen=True, kw_only=True):
    """resource.k8s.io/v1 DeviceClass."""

    metadata: ObjectMeta
    spec: DeviceClassSpec = DeviceClassSpec()


class ExactDeviceRequest(ApiStruct, frozen=True, kw_only=True):
    """`allocation_mode`: ExactCount (also when unset) or All."""

    device_class_name: str = ""
    allocation_mode: str = ""
    count: int = 1
    admin_access: bool = False


class DeviceRequest(ApiStruct, frozen=True, kw_only=True):
    """One of `exactly` and `first_available` is set."""

    name: str = ""
    exactly: ExactDeviceRequest | None = None


class DeviceClaim(ApiStruct, frozen=True, kw_only=True):
    requests: tuple[DeviceRequest, ...] = ()


class ResourceClaimSpec(ApiStruct, frozen=True, kw_only=True):
    devices: DeviceClaim = DeviceClaim()


class ResourceClaimTemplateSpec(ApiStruct, frozen=True, kw_only=True):
    spec: ResourceClaimSpec = ResourceClaimSpec()


class ResourceClaimTemplate(ApiStruct, frozen=True, kw_only=True):
    """resource.k8s.io/v1 ResourceClaimTemplate: the devices it asks for."""

    metadata: ObjectMeta
    spec: ResourceClaimTemplateSpec = ResourceClaimTemplateSpec()
