"""Whether an AdmissionCheck of this controller can work: its Active condition (topology-and-checks spec 15.1)."""

from __future__ import annotations

from collections.abc import Mapping

from shared.api import names
from shared.events.commands import SetCheckActive
from shared.events.objects import AdmissionCheck, Condition, ProvisioningRequestConfig


def parameters_error(check: AdmissionCheck, configs: Mapping[str, ProvisioningRequestConfig]) -> str:
    """What is wrong with the check's parameters; empty if nothing."""
    if not check.parameters_name:
        return "the check has no parameters"
    if check.parameters_group != names.GROUP or check.parameters_kind.lower() != (
        names.PROVISIONING_REQUEST_CONFIG.lower()
    ):
        return (
            f"parameters must name a {names.PROVISIONING_REQUEST_CONFIG} of {names.GROUP}, "
            f"not {check.parameters_kind!r} of {check.parameters_group!r}"
        )
    if check.parameters_name not in configs:
        return f"there is no {names.PROVISIONING_REQUEST_CONFIG} {check.parameters_name!r}"
    return ""


def active_condition(
    check: AdmissionCheck, configs: Mapping[str, ProvisioningRequestConfig], now: float, *, served: bool = True
) -> SetCheckActive | None:
    """The command that sets Active, or None when its truth is as it should be: texts alone are not rewritten. `served`: the cluster has
    ProvisioningRequests, for all that is known."""
    error, reason = parameters_error(check, configs), names.REASON_BAD_PARAMETERS
    if not error and not served:
        error, reason = names.PROVISIONING_NOT_SERVED, names.REASON_NOT_SERVED
    if check.active is not None and check.active.status is (not error):
        return None
    return SetCheckActive(
        id="",
        kind="admissioncheck",
        name=check.name,
        uid=check.uid,
        version=check.version,
        active=Condition(
            names.ACTIVE,
            not error,
            reason if error else names.REASON_ACTIVE,
            error or "The admission check is active",
            int(now),
            check.generation,
        ),
    )


def config_of(
    check: AdmissionCheck | None, configs: Mapping[str, ProvisioningRequestConfig]
) -> ProvisioningRequestConfig | None:
    """The configuration that a check works with; None while the check cannot work."""
    if check is None or check.active is None or not check.active.status or parameters_error(check, configs):
        return None
    return configs.get(check.parameters_name)
