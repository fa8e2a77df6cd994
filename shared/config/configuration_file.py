"""Reads Kueue's configuration file and the feature gates strictly: the first thing that does not fit is one ConfigurationError with file, path and reason.

Unknown and repeated keys are errors, values have to be of their type, what must not be together is found by `configuration_rules`. A v1beta1 file is
turned into a v1beta2 one with the defaults of v1beta1 (`configuration_v1beta1`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
import yaml

from shared.config.configuration import GROUP, KIND, Configuration, Configured
from shared.config.configuration_rules import FRAMEWORKS, broken_rules
from shared.config.configuration_v1beta1 import converted
from shared.config.durations import Duration, parse_duration
from shared.config.feature_gates import FeatureGates, GateError, parse_flag, resolve

FLAG = "feature gates"
"""How errors of the flag (or its environment variable) name their source."""

USED = frozenset(
    {
        "namespace",
        "webhook",
        "leaderElection.leaderElect",
        "leaderElection.resourceName",
        "leaderElection.resourceNamespace",
        "leaderElection.leaseDuration",
        "leaderElection.retryPeriod",
        "metrics",
        "health.healthProbeBindAddress",
        "tls.minVersion",
        "tls.cipherSuites",
        "featureGates",
        "manageJobsWithoutQueueName",
        "managedJobsNamespaceSelector",
        "integrations.frameworks",
        "integrations.externalFrameworks",
        "integrations.labelKeysToCopy",
        "waitForPodsReady",
        "resources.quotaCheckStrategy",
        "resources.excludeResourcePrefixes",
        "resources.transformations",
        "resources.deviceClassMappings",
        "fairSharing",
        "admissionFairSharing",
        "internalCertManagement",
        "objectRetentionPolicies",
    }
)
"""Paths that have an effect today, with all below them."""
USED_GATES = frozenset(
    {
        "AdmissionFairSharing",
        "AdmissionGatedBy",
        "CleanupProvisioningRequestsOnEviction",
        "ConcurrentAdmission",
        "CustomMetricLabels",
        "DeferRayServiceFinalizationForRedisCleanup",
        "DisableWaitForPodsReady",
        "ElasticJobsViaWorkloadSlices",
        "FailureRecoveryPolicy",
        "FairSharingPreemptWithinNominal",
        "FairSharingPrioritizeNonBorrowing",
        "FastQuotaReleaseInPodIntegration",
        "FinishOrphanedWorkloads",
        "FlavorFungibility",
        "FlavorFungibilityPreserveScanProgress",
        "KueueDRAIntegration",
        "KueueDRAIntegrationExtendedResource",
        "KueueDRARejectWorkloadsWhenDRADisabled",
        "LocalQueueMetrics",
        "MetricForWorkloadCreationLatency",
        "MetricsForCohorts",
        "PartialAdmission",
        "PodIntegrationValidateGroupOwner",
        "PrioritizePreemptorWorkloads",
        "PriorityBoost",
        "PrioritySortingWithinCohort",
        "QuotaCheckStrategy",
        "ReclaimablePods",
        "RecomputeAssignmentUponPreemptionTargetsOverlap",
        "RejectUpdatesToCQWithInvalidOnFlavors",
        "SchedulingEquivalenceHashing",
        "SkipReassignmentForPodOwnedWorkloads",
        "SparkApplicationIntegration",
        "TASValidateWorkloadSliceSize",
        "UnadmittedWorkloadsExplicitStatus",
        "UnadmittedWorkloadsObservability",
        "WorkloadIdentifierAnnotations",
        "WorkloadPriorityClassDefaulting",
        "WorkloadValidateResourcesAreNonNegative",
        "WorkloadValidationForPodSetMetadata",
    }
)
PARTLY_USED_GATES = {
    "MultiKueue": " (only: Jobs of queues with a MultiKueue check are handed to it)",
    "MultiKueueOrchestratedPreemption": " (only: the scheduler heeds preemption gates)",
    "TASMultiLayerTopology": " (only the rules for annotations of Jobs)",
    "TopologyAwareScheduling": " (only the rules for annotations of Jobs)",
    "WorkloadIdentifierAnnotations": " (only the rules for Jobs)",
}
"""Gates that have some of their effects, and which."""
NOTES = {"leaderElection.renewDeadline": " (checked only)", "leaderElection.resourceLock": " (always a Lease)"}
"""What else is to be said of paths without an effect."""
USED_FRAMEWORKS = frozenset(
    {
        "batch/job",
        "pod",
        "deployment",
        "statefulset",
        "leaderworkerset.x-k8s.io/leaderworkerset",
        "jobset.x-k8s.io/jobset",
        *(f"kubeflow.org/{kind}" for kind in ("tfjob", "pytorchjob", "xgboostjob", "paddlejob", "jaxjob", "mpijob")),
        *(f"ray.io/{kind}" for kind in ("rayjob", "raycluster", "rayservice")),
        "trainer.kubeflow.org/trainjob",
        "workload.codeflare.dev/appwrapper",
        "sparkoperator.k8s.io/sparkapplication",
    }
)
"""Those that there are integrations of; packages may bring more."""


class ConfigurationError(ValueError):
    """What is wrong with file or gates, a line each: `file: path: reason`."""


class _Loader(yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader):  # type: ignore[misc]
    """YAML in which no key may stand twice."""


class _Repeated(Exception):
    def __init__(self, key: object, line: int) -> None:
        super().__init__(f"line {line}: {key}: stands there twice")


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict[object, object]:
    seen: set[object] = set()
    for key_node, _ in node.value:
        key = loader.construct_object(key_node, deep=True)
        if isinstance(key, str) and key in seen:
            raise _Repeated(key, key_node.start_mark.line + 1)
        if isinstance(key, str):
            seen.add(key)
    found: dict[object, object] = yaml.SafeLoader.construct_mapping(loader, node, deep=True)
    return found


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)


def load(path: str = "", flag: str = "") -> Configured:
    """The file (none: all defaults) and the gates of the flag. Raises ConfigurationError."""
    document = _document(path) if path else {}
    raw, configuration = _read(path, document)
    gates = _gates(path, configuration.feature_gates, flag)
    wrong = broken_rules(configuration, gates)
    if wrong:
        raise ConfigurationError("\n".join(f"{path}: {where}: {why}" for where, why in wrong))
    return Configured(configuration=configuration, gates=gates, unused=tuple(_unused(raw, configuration, gates)))


def _document(path: str) -> dict[str, object]:
    try:
        document = yaml.load(Path(path).read_text(), Loader=_Loader)
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path}: not a text in UTF-8") from error
    except _Repeated as error:
        raise ConfigurationError(f"{path}: {error}") from error
    except yaml.YAMLError as error:
        raise ConfigurationError(f"{path}: not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(document, dict) or not all(isinstance(key, str) for key in document):
        raise ConfigurationError(f"{path}: must be a map with apiVersion {GROUP}/v1beta2 and kind {KIND}")
    return document


def _read(path: str, document: Mapping[str, object]) -> tuple[dict[str, object], Configuration]:
    """The fields as given, and what they mean."""
    if not document:
        if path:
            raise ConfigurationError(f"{path}: apiVersion: must be {GROUP}/v1beta2 or {GROUP}/v1beta1")
        return {}, Configuration()
    version, kind = document.get("apiVersion"), document.get("kind")
    if kind != KIND:
        raise ConfigurationError(f"{path}: kind: must be {KIND}, not {kind!r}")
    given = {key: value for key, value in document.items() if key not in ("apiVersion", "kind", "metadata")}
    fields = _without_nulls(given)
    off: tuple[str, ...] = ()
    if version == f"{GROUP}/v1beta1":
        try:
            fields, off = converted(fields)
        except ValueError as error:
            raise ConfigurationError(f"{path}: {error}") from error
    elif version != f"{GROUP}/v1beta2":
        raise ConfigurationError(f"{path}: apiVersion: must be {GROUP}/v1beta2 or {GROUP}/v1beta1, not {version!r}")
    try:
        configuration = msgspec.convert(fields, Configuration, dec_hook=_custom)
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"{path}: {_where_and_why(str(error))}") from error
    return _without_nulls(given), msgspec.structs.replace(configuration, **dict.fromkeys(off))


def _custom(type_: type, value: object) -> object:
    if type_ is not Duration:
        raise NotImplementedError(type_)
    if isinstance(value, str):
        return parse_duration(value)
    if isinstance(value, int) and not isinstance(value, bool):
        # Go reads a bare number as nanoseconds.
        return Duration(value / 1e9)
    raise ValueError(f"not a duration: {value!r} (for example 30s, 5m, 1h30m)")


def _without_nulls(fields: Mapping[str, object]) -> dict[str, object]:
    """A null stands for what was not given."""
    return {
        key: _without_nulls(value) if isinstance(value, dict) else value
        for key, value in fields.items()
        if value is not None
    }


_AT = re.compile(r"^(.*?)(?: - at `\$?\.?(.*)`)?$", re.DOTALL)
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`")
_MISSING = re.compile(r"Object missing required field `(.*)`")


def _where_and_why(text: str) -> str:
    """msgspec's words as `path: reason`."""
    found = _AT.match(text)
    why, path = (found[1], found[2] or "") if found else (text, "")
    if unknown := _UNKNOWN.match(why):
        return f"{_joined(path, unknown[1])}: no such field"
    if missing := _MISSING.match(why):
        return f"{_joined(path, missing[1])}: must be set"
    return f"{path}: {why}" if path else why


def _joined(path: str, field: str) -> str:
    return f"{path}.{field}" if path else field


def _gates(path: str, in_file: Mapping[str, bool], flag: str) -> FeatureGates:
    source = f"{path}: featureGates." if not flag.strip() else f"{FLAG}: "
    try:
        if flag.strip():
            if in_file:
                raise ConfigurationError(f"{path}: featureGates: given here and by the flag; only one of both may be")
            return resolve(parse_flag(flag))
        return resolve(in_file)
    except GateError as error:
        raise ConfigurationError("\n".join(f"{source}{gate}: {why}" for gate, why in error.errors)) from error


def _unused(raw: Mapping[str, object], configuration: Configuration, gates: FeatureGates) -> Iterator[str]:
    for path in _unused_paths(raw, ""):
        if path != "tls.curvePreferences" or len(configuration.tls.curve_preferences) > 1:
            yield f"{path}{NOTES.get(path, '')}"
    for framework in configuration.integrations.frameworks:
        if framework in FRAMEWORKS and framework not in USED_FRAMEWORKS:
            yield f"integrations.frameworks: {framework}"
    for gate, state in gates.changed().items():
        if gate not in USED_GATES or gate in PARTLY_USED_GATES:
            yield f"feature gate {gate}={str(state).lower()}{PARTLY_USED_GATES.get(gate, '')}"


def _unused_paths(fields: Mapping[str, object], prefix: str) -> Iterator[str]:
    for key, value in fields.items():
        path = f"{prefix}{key}"
        if path in USED:
            continue
        if isinstance(value, dict) and value and any(used.startswith(f"{path}.") for used in USED):
            yield from _unused_paths(value, f"{path}.")
        elif value != {}:
            yield path
