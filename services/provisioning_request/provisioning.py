"""What one workload wants of its ProvisioningRequest checks: which requests to make or delete, which states to set.

Pure: a view of values in, commands out (topology-and-checks spec 15.3-15.7). Commands have no id yet. The caller repeats it with every change; when all is
as it should be, nothing comes out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import msgspec

from services.provisioning_request.merging import merged_pod_sets, needed_pod_sets
from services.provisioning_request.naming import attempt_of, request_name, template_name
from shared.api import names
from shared.events.commands import (
    Command,
    CreateProvisioningRequest,
    DeleteProvisioningRequest,
    PodSetUpdate,
    SetCheckState,
    TemplateSource,
)
from shared.events.objects import CheckState, Condition, ProvisioningRequest, ProvisioningRequestConfig, Workload

REQUEST_KIND = "provisioningrequest"
WORKLOAD_KIND = "workload"

CONSUME_ANNOTATION = "autoscaling.x-k8s.io/consume-provisioning-request"
CLASS_ANNOTATION = "autoscaling.x-k8s.io/provisioning-class-name"

NOT_NEEDED = "the provisioning request is not needed"
CHECK_INACTIVE = "the check is not active"


class Current(msgspec.Struct, frozen=True):
    """The request that stands for a check now, and its attempt (from 1)."""

    request: ProvisioningRequest
    attempt: int


def reconcile(
    workload: Workload,
    configs: Mapping[str, ProvisioningRequestConfig | None],
    owned: Iterable[ProvisioningRequest],
    *,
    cleanup_on_eviction: bool = True,
) -> list[Command]:
    """Commands that bring the workload's checks and requests nearer to what they should be.

    `configs`: for each check of the workload that this controller owns, its configuration; None when the check is not active or its configuration is
    missing. `owned`: all requests that the workload controls. `cleanup_on_eviction`: the gate CleanupProvisioningRequestsOnEviction.
    """
    owned = sorted((r for r in owned if not r.deleting), key=lambda r: r.name)
    finished = workload.finished or _is_true(workload.conditions, names.FINISHED)
    evicted = _is_true(workload.conditions, names.EVICTED)
    if finished or (evicted and cleanup_on_eviction):
        return [_delete(r) for r in owned]
    if evicted or workload.deleting or workload.admission is None:
        return []
    if not _is_true(workload.conditions, names.QUOTA_RESERVED):
        return []
    commands: list[Command] = []
    kept: set[str] = set()
    for state in workload.checks:
        if state.name not in configs:
            continue
        config = configs[state.name]
        if config is None:
            commands += _set_state(workload, state, names.CHECK_PENDING, CHECK_INACTIVE)
            continue
        needed = needed_pod_sets(workload, config.managed_resources)
        if not needed:
            commands += _set_state(workload, state, names.CHECK_READY, NOT_NEEDED)
            continue
        current = current_request(workload, state.name, config, owned)
        answers: list[SetCheckState] = []
        if current is not None:
            kept.add(current.request.name)
            answers = check_state(workload, state, config, current)
            commands += answers
        # A check that only now asks for a retry has its next attempt after the eviction.
        becomes = answers[0].state if answers else state.state
        attempt = next_attempt(workload, state.retry_count or 0, becomes, current)
        if attempt is not None:
            commands.append(_create(workload, state.name, config, attempt))
    return [*(_delete(r) for r in owned if r.name not in kept), *commands]


def with_errors(workload: Workload, commands: list[Command], errors: Mapping[str, str]) -> list[Command]:
    """The commands, and for each request that could not be made so far what its check should say. `errors`: by `namespace/name` of requests."""
    states = {state.name: state for state in workload.checks}
    told: list[Command] = []
    for command in commands:
        if isinstance(command, CreateProvisioningRequest) and command.key in errors and command.check in states:
            told += _set_state(workload, states[command.check], names.CHECK_PENDING, errors[command.key])
    return [*commands, *told]


def parameters_of(workload: Workload, config: ProvisioningRequestConfig) -> dict[str, str]:
    """The configuration's parameters, overlaid by the workload's annotations with the provisioning prefix (taken off)."""
    prefix = names.PROVISIONING_ANNOTATION_PREFIX
    own = {k.removeprefix(prefix): v for k, v in workload.annotations.items() if k.startswith(prefix)}
    return {**config.parameters, **own}


def current_request(
    workload: Workload, check: str, config: ProvisioningRequestConfig, owned: Iterable[ProvisioningRequest]
) -> Current | None:
    """Among the owned requests of this check that agree with the configuration, the one with the highest attempt.

    A parameter of the configuration that the workload overrides is compared with the workload's value: else a request would be replaced for ever."""
    wanted = parameters_of(workload, config)
    found: Current | None = None
    for request in owned:
        attempt = attempt_of(request.name, workload.name, check)
        if attempt is None or request.class_name != config.class_name:
            continue
        if any(request.parameters.get(key) != wanted[key] for key in config.parameters):
            continue
        if found is None or attempt > found.attempt:
            found = Current(request, attempt)
    return found


def next_attempt(workload: Workload, retries: int, state: str, current: Current | None) -> int | None:
    """The attempt to make a request for now, or None. `state`: of the check."""
    if state == names.CHECK_READY:
        return None
    if current is None:
        return retries + 1
    conditions = current.request.conditions
    lost = _is_true(conditions, "Failed") or (
        _is_true(conditions, "BookingExpired") and not _is_true(workload.conditions, names.ADMITTED)
    )
    return current.attempt + 1 if lost and state == names.CHECK_PENDING else None


def backoff_s(base_s: int, max_s: int, retry_count: int) -> int:
    """Whole seconds to wait after failure number `retry_count` + 1: doubling, up to `max_s`."""
    return min(base_s << min(retry_count, 62), max_s)


def check_state(
    workload: Workload, state: CheckState, config: ProvisioningRequestConfig, current: Current
) -> list[SetCheckState]:
    """What the request's conditions make of the check: the first that is true counts."""
    conditions = current.request.conditions
    admitted = _is_true(workload.conditions, names.ADMITTED)
    failed = _find_true(conditions, "Failed")
    if failed is not None:
        return _after_failure(workload, state, config, current, failed, "failure")
    revoked = _find_true(conditions, "CapacityRevoked")
    if revoked is not None:
        return _set_state(workload, state, names.CHECK_REJECTED, revoked.message) if workload.active else []
    expired = _find_true(conditions, "BookingExpired")
    if expired is not None and not admitted:
        return _after_failure(workload, state, config, current, expired, "booking expired")
    provisioned = next((c for c in conditions if c.type == "Provisioned"), None)
    if provisioned is not None and provisioned.status:
        if state.state == names.CHECK_READY:
            return []
        updates = pod_set_updates(workload, config, current.request)
        return _set_state(workload, state, names.CHECK_READY, provisioned.message, updates=updates)
    if _is_true(conditions, "Accepted"):
        return [] if provisioned is None else _set_state(workload, state, names.CHECK_PENDING, provisioned.message)
    return _set_state(workload, state, names.CHECK_PENDING, "")


def pod_set_updates(
    workload: Workload, config: ProvisioningRequestConfig, request: ProvisioningRequest
) -> tuple[PodSetUpdate, ...]:
    """What pods need to find the capacity: one entry per pod set of the request; pod sets that were merged away have none."""
    selector = {
        key: request.class_details[detail] for key, detail in config.selector_updates if detail in request.class_details
    }
    templates = {template for template, _ in request.pod_sets}
    return tuple(
        PodSetUpdate(
            name=pod_set.name,
            annotations={CONSUME_ANNOTATION: request.name, CLASS_ANNOTATION: request.class_name},
            node_selector=selector,
        )
        for pod_set in workload.pod_sets
        if template_name(request.name, pod_set.name) in templates
    )


def _after_failure(
    workload: Workload,
    state: CheckState,
    config: ProvisioningRequestConfig,
    current: Current,
    condition: Condition,
    what: str,
) -> list[SetCheckState]:
    if current.attempt > config.backoff_limit:
        return _set_state(workload, state, names.CHECK_REJECTED, condition.message)
    message = f"Retrying after {what}: {condition.message}"
    retries = state.retry_count or 0
    if current.attempt <= retries or state.state == names.CHECK_RETRY:
        return _set_state(workload, state, state.state, message)
    wait = backoff_s(config.backoff_base_s, config.backoff_max_s, retries)
    return _set_state(workload, state, names.CHECK_RETRY, message, requeue_after_s=wait)


def _set_state(
    workload: Workload,
    old: CheckState,
    state: Literal["Pending", "Ready", "Retry", "Rejected"],
    message: str,
    *,
    requeue_after_s: int | None = None,
    updates: Sequence[PodSetUpdate] = (),
) -> list[SetCheckState]:
    if old.state == state and old.message == message:
        return []
    return [
        SetCheckState(
            id="",
            kind=WORKLOAD_KIND,
            namespace=workload.namespace,
            name=workload.name,
            uid=workload.uid,
            incarnation=workload.incarnation,
            version=workload.version,
            check=old.name,
            state=state,
            message=message,
            requeue_after_s=old.requeue_after_s if requeue_after_s is None else requeue_after_s,
            pod_set_updates=tuple(updates),
        )
    ]


def _create(workload: Workload, check: str, config: ProvisioningRequestConfig, attempt: int) -> Command:
    name = request_name(workload.name, check, attempt)
    return CreateProvisioningRequest(
        id="",
        kind=REQUEST_KIND,
        namespace=workload.namespace,
        name=name,
        version=workload.version,
        workload=workload.name,
        workload_uid=workload.uid,
        check=check,
        class_name=config.class_name,
        parameters=parameters_of(workload, config),
        templates=tuple(
            TemplateSource(name=template_name(name, pod_set), pod_set=pod_set, count=count)
            for pod_set, count in merged_pod_sets(workload, config)
        ),
    )


def _delete(request: ProvisioningRequest) -> Command:
    return DeleteProvisioningRequest(
        id="",
        kind=REQUEST_KIND,
        namespace=request.namespace,
        name=request.name,
        uid=request.uid,
        version=request.version,
    )


def _find_true(conditions: Iterable[Condition], type_: str) -> Condition | None:
    return next((c for c in conditions if c.type == type_ and c.status), None)


def _is_true(conditions: Iterable[Condition], type_: str) -> bool:
    return _find_true(conditions, type_) is not None
