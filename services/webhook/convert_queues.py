"""Conversion of queues, cohorts, checks and worker clusters (core specification 1.8). Pure.

Each function changes the object in place. It is given what the wanted version can say beyond the object (checked before it is used), and returns what
the wanted version cannot say.
"""

from __future__ import annotations

from services.webhook.convert_fields import Path, fits, renamed, restore_status, take_status
from shared.api.cluster_queue import ConcurrentAdmissionPolicy
from shared.api.local_queue import AdmissionFairSharingStatus
from shared.api.multikueue import QuotaManagement
from shared.api.v1beta1.admission_check import RETRY_DELAY_MINUTES
from shared.api.v1beta1.cluster_queue import AdmissionChecksStrategy, PendingWorkloadsStatus
from shared.api.v1beta1.local_queue import LocalQueueFlavorStatus
from shared.jobs.manifest import JsonObject, section

CHECKS, STRATEGY, POLICY = "admissionChecks", "admissionChecksStrategy", "concurrentAdmissionPolicy"
QUOTA = "quotaManagement"
STOP = "MayStopSearch"
OLDER_NAMES = {"whenCanBorrow": "Borrow", "whenCanPreempt": "Preempt"}
"""What v1beta1 can call MayStopSearch, per field of flavorFungibility."""

_FAIR_SHARING: dict[Path, object] = {("fairSharing", "admissionFairSharingStatus"): AdmissionFairSharingStatus}
_CLUSTER_QUEUE: dict[Path, object] = {**_FAIR_SHARING, ("pendingWorkloadsStatus",): PendingWorkloadsStatus}
_LOCAL_QUEUE: dict[Path, object] = {("flavors",): tuple[LocalQueueFlavorStatus, ...]}


def cluster_queue_to_v1beta2(queue: JsonObject, kept: JsonObject) -> JsonObject:
    """Names of checks become a strategy; the policy of concurrent admission comes back."""
    rest = take_status(queue, list(_CLUSTER_QUEUE))
    spec = section(queue, "spec")
    renamed(spec, "cohort", "cohortName")
    checks = spec.get(CHECKS)
    if fits(checks, tuple[str, ...]):
        rest[CHECKS] = spec.pop(CHECKS)
        if checks:
            if STRATEGY in spec:
                rest[STRATEGY] = spec[STRATEGY]
            spec[STRATEGY] = _strategy(checks)
    fungibility = section(spec, "flavorFungibility")
    for field, older in OLDER_NAMES.items():
        if fungibility.get(field) == older:
            fungibility[field] = STOP
            rest[field] = older
    if "spec" in queue and fits(kept.get(POLICY), ConcurrentAdmissionPolicy):
        spec[POLICY] = kept[POLICY]
    return rest


def cluster_queue_to_v1beta1(queue: JsonObject, kept: JsonObject) -> JsonObject:
    """Names of checks come back unless the strategy is another one by now."""
    restore_status(queue, kept, _CLUSTER_QUEUE)
    spec = section(queue, "spec")
    renamed(spec, "cohortName", "cohort")
    checks = kept.get(CHECKS)
    if fits(checks, tuple[str, ...]) and (not checks or spec.get(STRATEGY) == _strategy(checks)):
        if checks:
            spec.pop(STRATEGY)
            if fits(kept.get(STRATEGY), AdmissionChecksStrategy):
                spec[STRATEGY] = kept[STRATEGY]
        spec[CHECKS] = checks
    fungibility = section(spec, "flavorFungibility")
    for field, older in OLDER_NAMES.items():
        if kept.get(field) == older and fungibility.get(field) == STOP:
            fungibility[field] = older
    return {POLICY: spec.pop(POLICY)} if POLICY in spec else {}


def _strategy(checks: object) -> JsonObject:
    """One rule per check, for all flavors; a check can be named once only."""
    names = dict.fromkeys(checks) if isinstance(checks, list | tuple) else ()
    return {CHECKS: [{"name": name} for name in names]}


def local_queue_to_v1beta2(queue: JsonObject, kept: JsonObject) -> JsonObject:
    """`flavorsUsage`, without a description of the flavors."""
    renamed(section(queue, "status"), "flavorUsage", "flavorsUsage")
    return take_status(queue, list(_LOCAL_QUEUE))


def local_queue_to_v1beta1(queue: JsonObject, kept: JsonObject) -> JsonObject:
    """`flavorUsage`."""
    restore_status(queue, kept, _LOCAL_QUEUE)
    renamed(section(queue, "status"), "flavorsUsage", "flavorUsage")
    return {}


def cohort_to_v1beta2(cohort: JsonObject, kept: JsonObject) -> JsonObject:
    """Without the status of admission fair sharing, which no cohort has."""
    return take_status(cohort, list(_FAIR_SHARING))


def cohort_to_v1beta1(cohort: JsonObject, kept: JsonObject) -> JsonObject:
    """As it is."""
    restore_status(cohort, kept, _FAIR_SHARING)
    return {}


def admission_check_to_v1beta2(check: JsonObject, kept: JsonObject) -> JsonObject:
    """Without the delay that nobody looks at."""
    minutes = section(check, "spec").pop("retryDelayMinutes", RETRY_DELAY_MINUTES)
    return {"retryDelayMinutes": minutes} if minutes != RETRY_DELAY_MINUTES else {}


def admission_check_to_v1beta1(check: JsonObject, kept: JsonObject) -> JsonObject:
    """With that delay."""
    minutes = kept.get("retryDelayMinutes")
    section(check, "spec")["retryDelayMinutes"] = minutes if isinstance(minutes, int) else RETRY_DELAY_MINUTES
    return {}


def multikueue_cluster_to_v1beta2(cluster: JsonObject, kept: JsonObject) -> JsonObject:
    """The ways to reach the cluster under one roof."""
    spec = section(cluster, "spec")
    source: JsonObject = {key: spec.pop(key) for key in ("kubeConfig", "clusterProfileRef") if key in spec}
    if not section(source, "kubeConfig").get("location"):
        source.pop("kubeConfig", None)
    if source:
        spec["clusterSource"] = source
    return {}


def multikueue_cluster_to_v1beta1(cluster: JsonObject, kept: JsonObject) -> JsonObject:
    """The ways to reach the cluster at the top; `kubeConfig` is required there, if only an empty one."""
    spec = section(cluster, "spec")
    source = spec.pop("clusterSource", None)
    spec["kubeConfig"] = {"location": "", "locationType": "Secret"}
    if isinstance(source, dict):
        spec.update(source)
    return {}


def multikueue_config_to_v1beta2(config: JsonObject, kept: JsonObject) -> JsonObject:
    """Who sets the quota comes back."""
    if fits(kept.get(QUOTA), QuotaManagement):
        section(config, "spec")[QUOTA] = kept[QUOTA]
    return {}


def multikueue_config_to_v1beta1(config: JsonObject, kept: JsonObject) -> JsonObject:
    """Without who sets the quota."""
    spec = section(config, "spec")
    return {QUOTA: spec.pop(QUOTA)} if QUOTA in spec else {}
