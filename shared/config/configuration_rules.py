"""What a Configuration may not say although each field is of its type: (path, reason) of every fault, for people to correct at once."""

from __future__ import annotations

import ipaddress
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from importlib.metadata import entry_points

from shared.api.names import JOB_KIND_PLUGINS
from shared.api.quantity import QuantityError, parse
from shared.api.selectors import selector_errors
from shared.api.validation import dns_label_errors, label_key_errors, label_value_errors
from shared.config.configuration import (
    DEFAULT_NAMESPACE,
    INCREMENTAL,
    KUBE_SYSTEM,
    Configuration,
    CustomLabel,
    LeaderElection,
    Metrics,
    MultiKueue,
    Resources,
    selects_by_name,
)
from shared.config.device_rules import device_faults
from shared.config.feature_gates import FeatureGates
from shared.config.tls_names import CIPHER_SUITES, CURVES, TLS13_SUITES, TLS_VERSIONS

FRAMEWORKS = (
    "batch/job",
    "kubeflow.org/mpijob",
    "ray.io/rayjob",
    "ray.io/raycluster",
    "ray.io/rayservice",
    "jobset.x-k8s.io/jobset",
    "kubeflow.org/paddlejob",
    "kubeflow.org/pytorchjob",
    "kubeflow.org/tfjob",
    "kubeflow.org/xgboostjob",
    "kubeflow.org/jaxjob",
    "workload.codeflare.dev/appwrapper",
    "trainer.kubeflow.org/trainjob",
    "sparkoperator.k8s.io/sparkapplication",
    "pod",
    "deployment",
    "statefulset",
    "leaderworkerset.x-k8s.io/leaderworkerset",
)
POD = "pod"
SPARK = "sparkoperator.k8s.io/sparkapplication"
BUILT_IN_KINDS = frozenset(
    {
        "Job.v1.batch",
        "MPIJob.v2beta1.kubeflow.org",
        "RayJob.v1.ray.io",
        "RayCluster.v1.ray.io",
        "RayService.v1.ray.io",
        "JobSet.v1alpha2.jobset.x-k8s.io",
        "PaddleJob.v1.kubeflow.org",
        "PyTorchJob.v1.kubeflow.org",
        "TFJob.v1.kubeflow.org",
        "XGBoostJob.v1.kubeflow.org",
        "JAXJob.v1.kubeflow.org",
        "AppWrapper.v1beta2.workload.codeflare.dev",
        "TrainJob.v1alpha1.trainer.kubeflow.org",
        "SparkApplication.v1beta2.sparkoperator.k8s.io",
        "Deployment.v1.apps",
        "StatefulSet.v1.apps",
        "LeaderWorkerSet.v1.leaderworkerset.x-k8s.io",
    }
)
FINAL, INITIAL = "LessThanOrEqualToFinalShare", "LessThanInitialShare"
STRATEGIES = ((FINAL,), (INITIAL,), (FINAL, INITIAL))
_LABEL_NAME = re.compile(r"[a-zA-Z][a-zA-Z0-9_]*")
_DNS_1035 = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_EXTERNAL = re.compile(r"[A-Z][A-Za-z0-9]*\.v[0-9][a-z0-9]*(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)+")

Fault = tuple[str, str]


def broken_rules(configuration: Configuration, gates: FeatureGates) -> list[Fault]:
    """All faults, in the order of the file's sections; empty for a valid configuration."""
    return [
        *_webhook(configuration),
        *_leader_election(configuration.leader_election),
        *_tls(configuration),
        *_metrics(configuration.metrics),
        *_namespaces(configuration),
        *_integrations(configuration, gates),
        *_wait_for_pods_ready(configuration),
        *_resources(configuration.resources),
        *_fair_sharing(configuration),
        *_multi_kueue(configuration.multi_kueue),
        *_certificates(configuration),
        *_retention(configuration),
        *_visibility(configuration),
    ]


def _not_negative(path: str, value: float | None) -> Iterator[Fault]:
    if value is not None and value < 0:
        yield path, f"must not be negative, is {value:g}"


def _repeated(path: str, values: Iterable[str]) -> Iterator[Fault]:
    for value, count in Counter(values).items():
        if count > 1:
            yield path, f"{value} stands there {count} times"


def _port(path: str, value: int) -> Iterator[Fault]:
    if not 1 <= value <= 65535:
        yield path, f"must be between 1 and 65535, is {value}"


def _address(path: str, value: str) -> Iterator[Fault]:
    """Empty and 0 mean that nothing listens."""
    host, colon, port = value.rpartition(":")
    if value in ("", "0"):
        return
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535 or " " in host:
        yield path, f"{value!r} must be HOST:PORT or :PORT"


def _webhook(c: Configuration) -> Iterator[Fault]:
    yield from _port("webhook.port", c.webhook.port)
    yield from _address("metrics.bindAddress", c.metrics.bind_address)
    yield from _address("health.healthProbeBindAddress", c.health.health_probe_bind_address)
    yield from _address("pprofBindAddress", c.pprof_bind_address)
    for name, count in c.controller.group_kind_concurrency.items():
        if count < 1:
            yield f"controller.groupKindConcurrency[{name}]", f"must be at least 1, is {count}"


def _leader_election(election: LeaderElection) -> Iterator[Fault]:
    """As client-go has it: a leader that cannot renew gives up before anybody else may take over, and tries more than once until then."""
    if election.resource_lock != "leases":
        yield "leaderElection.resourceLock", f"must be leases, is {election.resource_lock!r}"
    if not election.leader_elect:
        return
    if election.retry_period <= 0:
        yield "leaderElection.retryPeriod", f"must be more than 0, is {election.retry_period:g}"
    if election.renew_deadline <= election.retry_period * 1.2:
        yield "leaderElection.renewDeadline", "must be more than 1.2 times the retryPeriod"
    if election.lease_duration <= election.renew_deadline:
        yield "leaderElection.leaseDuration", "must be more than the renewDeadline"


def _tls(c: Configuration) -> Iterator[Fault]:
    tls = c.tls
    if tls.min_version not in TLS_VERSIONS:
        yield "tls.minVersion", f"{tls.min_version!r} is not one of {', '.join(TLS_VERSIONS)}"
    if tls.cipher_suites and tls.min_version == "VersionTLS13":
        yield "tls.cipherSuites", "cannot be chosen with VersionTLS13"
    for suite in tls.cipher_suites:
        if suite not in CIPHER_SUITES and suite not in TLS13_SUITES:
            yield "tls.cipherSuites", f"{suite!r} is no cipher suite"
    for curve in tls.curve_preferences:
        if curve not in CURVES:
            yield "tls.curvePreferences", f"{curve} is not one of {', '.join(map(str, sorted(CURVES)))}"


def _metrics(metrics: Metrics) -> Iterator[Fault]:
    labels = metrics.custom_labels
    path = "metrics.customLabels"
    if len(labels) > 20:
        yield path, f"at most 20, are {len(labels)}"
    for kind, count in Counter(label.source_kind for label in labels).items():
        most = 2 if kind == "Workload" else 6
        if count > most:
            yield path, f"at most {most} of {kind}, are {count}"
    yield from _repeated(path, (label.name for label in labels))
    for index, label in enumerate(labels):
        yield from _custom_label(f"{path}[{index}]", label)
    selector = metrics.local_queue_metrics.local_queue_selector
    for error in selector_errors(selector.selector()) if selector is not None else ():
        yield "metrics.localQueueMetrics.localQueueSelector", error


def _custom_label(path: str, label: CustomLabel) -> Iterator[Fault]:
    if not _LABEL_NAME.fullmatch(label.name):
        yield f"{path}.name", f"{label.name!r} must be letters, digits and _, a letter first"
    if label.source_label_key and label.source_annotation_key:
        yield path, "only one of sourceLabelKey and sourceAnnotationKey may be given"
    for field, key in (
        ("sourceLabelKey", label.source_label_key),
        ("sourceAnnotationKey", label.source_annotation_key),
    ):
        for error in label_key_errors(key) if key else ():
            yield f"{path}.{field}", error
    least, most = (1, 12) if label.source_kind == "Workload" else (0, 16)
    if not least <= len(label.tracked_values) <= most:
        yield f"{path}.trackedValues", f"must be {least} to {most} values, are {len(label.tracked_values)}"
    yield from _repeated(f"{path}.trackedValues", label.tracked_values)


def _namespaces(c: Configuration) -> Iterator[Fault]:
    for error in dns_label_errors(c.namespace) if c.namespace else ():
        yield "namespace", error
    path = "managedJobsNamespaceSelector"
    if c.managed_jobs_namespace_selector is None:
        return
    selector = c.managed_jobs_namespace_selector.selector()
    errors = selector_errors(selector)
    for error in errors:
        yield path, error
    if not errors:
        for name in (KUBE_SYSTEM, c.namespace or DEFAULT_NAMESPACE):
            if selects_by_name(selector, name):
                yield path, f"must not select the namespace {name}"


def _integrations(c: Configuration, gates: FeatureGates) -> Iterator[Fault]:
    integrations = c.integrations
    path = "integrations.frameworks"
    known = (*FRAMEWORKS, *sorted(entry_points(group=JOB_KIND_PLUGINS).names))
    for name in integrations.frameworks:
        if name not in known:
            yield path, f"{name!r} is not one of {', '.join(known)}"
    yield from _repeated(path, integrations.frameworks)
    if SPARK in integrations.frameworks and not gates["SparkApplicationIntegration"]:
        yield path, f"{SPARK} needs the feature gate SparkApplicationIntegration"
    yield from _external("integrations.externalFrameworks", integrations.external_frameworks)


def _external(path: str, found: Iterable[str]) -> Iterator[Fault]:
    values = tuple(found)
    for name in values:
        if not _EXTERNAL.fullmatch(name):
            yield path, f"{name!r} must be Kind.version.group"
        elif name in BUILT_IN_KINDS:
            yield path, f"{name} is built in"
    yield from _repeated(path, values)


def _wait_for_pods_ready(c: Configuration) -> Iterator[Fault]:
    wait = c.wait_for_pods_ready
    if wait is None:
        return
    strategy = wait.requeuing_strategy
    yield from _not_negative("waitForPodsReady.timeout", wait.timeout)
    yield from _not_negative("waitForPodsReady.recoveryTimeout", wait.recovery_timeout)
    path = "waitForPodsReady.requeuingStrategy"
    yield from _not_negative(f"{path}.backoffLimitCount", strategy.backoff_limit_count)
    yield from _not_negative(f"{path}.backoffBaseSeconds", strategy.backoff_base_seconds)
    yield from _not_negative(f"{path}.backoffMaxSeconds", strategy.backoff_max_seconds)


def _resources(resources: Resources) -> Iterator[Fault]:
    if resources.quota_check_strategy == "IgnoreUndeclared" and resources.exclude_resource_prefixes:
        yield "resources.quotaCheckStrategy", "IgnoreUndeclared does not go together with excludeResourcePrefixes"
    yield from _repeated("resources.transformations", (t.input for t in resources.transformations))
    for index, transformation in enumerate(resources.transformations):
        path = f"resources.transformations[{index}]"
        if not transformation.input:
            yield f"{path}.input", "must be set"
        for output, amount in transformation.outputs.items():
            try:
                parse(str(amount))
            except QuantityError as error:
                yield f"{path}.outputs[{output}]", str(error)
    yield from device_faults(resources.device_class_mappings)


def _fair_sharing(c: Configuration) -> Iterator[Fault]:
    path = "fairSharing.preemptionStrategies"
    if c.fair_sharing is not None and c.fair_sharing.preemption_strategies not in STRATEGIES:
        known = " or ".join(f"[{', '.join(s)}]" for s in STRATEGIES)
        yield path, f"must be {known}"
    admission = c.admission_fair_sharing
    if admission is None:
        return
    yield from _not_negative("admissionFairSharing.usageHalfLifeTime", admission.usage_half_life_time)
    if admission.usage_sampling_interval <= 0:
        yield "admissionFairSharing.usageSamplingInterval", "must be more than 0"
    for resource, weight in admission.resource_weights.items():
        yield from _not_negative(f"admissionFairSharing.resourceWeights[{resource}]", weight)


def _multi_kueue(multi: MultiKueue) -> Iterator[Fault]:
    yield from _not_negative("multiKueue.gcInterval", multi.gc_interval)
    yield from _not_negative("multiKueue.workerLostTimeout", multi.worker_lost_timeout)
    for error in label_value_errors(multi.origin):
        yield "multiKueue.origin", error
    steps = multi.incremental_dispatcher_config
    if steps is not None and multi.dispatcher_name != INCREMENTAL:
        yield "multiKueue.incrementalDispatcherConfig", f"needs dispatcherName {INCREMENTAL}"
    if steps is not None and steps.step_size < 1:
        yield "multiKueue.incrementalDispatcherConfig.stepSize", f"must be at least 1, is {steps.step_size}"
    yield from _external("multiKueue.externalFrameworks", (f.name for f in multi.external_frameworks))
    profile = multi.cluster_profile
    if profile is None:
        return
    if profile.access_providers and profile.credentials_providers:
        yield "multiKueue.clusterProfile", "only one of accessProviders and credentialsProviders may be given"
    for kind, providers in (
        ("accessProviders", profile.access_providers),
        ("credentialsProviders", profile.credentials_providers),
    ):
        for index, provider in enumerate(providers):
            path = f"multiKueue.clusterProfile.{kind}[{index}]"
            run = provider.exec_config
            required = {
                "name": provider.name,
                "execConfig.command": run.command,
                "execConfig.apiVersion": run.api_version,
                "execConfig.interactiveMode": run.interactive_mode,
            }
            yield from ((f"{path}.{field}", "must be set") for field, value in required.items() if not value)


def _certificates(c: Configuration) -> Iterator[Fault]:
    own = c.internal_cert_management
    if not own.enable:
        return
    if not _DNS_1035.fullmatch(own.webhook_service_name):
        yield "internalCertManagement.webhookServiceName", f"{own.webhook_service_name!r} is no name of a Service"
    if len(own.webhook_secret_name) > 253 or not _SUBDOMAIN.fullmatch(own.webhook_secret_name):
        yield "internalCertManagement.webhookSecretName", f"{own.webhook_secret_name!r} is no name of a Secret"


def _retention(c: Configuration) -> Iterator[Fault]:
    if c.object_retention_policies is None:
        return
    path = "objectRetentionPolicies.workloads"
    kept = c.object_retention_policies.workloads
    yield from _not_negative(f"{path}.afterFinished", kept.after_finished)
    yield from _not_negative(f"{path}.afterDeactivatedByKueue", kept.after_deactivated_by_kueue)


def _visibility(c: Configuration) -> Iterator[Fault]:
    server = c.visibility_server
    yield from _port("visibilityServer.bindPort", server.bind_port)
    if server.bind_address:
        try:
            ipaddress.ip_address(server.bind_address)
        except ValueError:
            yield "visibilityServer.bindAddress", f"{server.bind_address!r} is no IP address"
