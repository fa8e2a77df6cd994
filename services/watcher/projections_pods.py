"""Projections of what pods get beside their template: LimitRange, RuntimeClass, DeviceClass, ResourceClaimTemplate. Pure.

Amounts travel as written, even where they are no quantities: whoever counts with them says so. A request for devices that is no plain number of them
carries what it is instead.
"""

from __future__ import annotations

from services.watcher.core_kinds import DeviceClass, DeviceRequest, LimitRange, ResourceClaimTemplate, RuntimeClass
from services.watcher.projections_parts import identity, texts
from shared.events import objects


def limit_range(found: LimitRange) -> objects.LimitRange:
    return objects.LimitRange(
        **identity(found.metadata),
        items=tuple(
            objects.LimitItem(
                type=item.type,
                max=texts(item.max),
                min=texts(item.min),
                default=texts(item.default),
                default_request=texts(item.default_request),
            )
            for item in found.spec.limits
        ),
    )


def runtime_class(found: RuntimeClass) -> objects.RuntimeClass:
    overhead = texts(found.overhead.pod_fixed) if found.overhead is not None else {}
    return objects.RuntimeClass(**identity(found.metadata), overhead=overhead)


def device_class(found: DeviceClass) -> objects.DeviceClass:
    return objects.DeviceClass(**identity(found.metadata), extended_resource=found.spec.extended_resource_name)


def claim_template(found: ResourceClaimTemplate) -> objects.ResourceClaimTemplate:
    requests = tuple(_device_request(request) for request in found.spec.spec.devices.requests)
    return objects.ResourceClaimTemplate(**identity(found.metadata), requests=requests)


def _device_request(request: DeviceRequest) -> objects.DeviceRequest:
    exactly = request.exactly
    if exactly is None:
        return objects.DeviceRequest(name=request.name, unsupported="a choice of several requests")
    if exactly.allocation_mode not in ("", "ExactCount"):
        unsupported = f"allocation mode {exactly.allocation_mode}"
    else:
        unsupported = "admin access" if exactly.admin_access else ""
    return objects.DeviceRequest(
        name=request.name, device_class=exactly.device_class_name, count=exactly.count, unsupported=unsupported
    )
