"""Kueue's Configuration (`config.kueue.x-k8s.io/v1beta2`) as Structs with its defaults. Reading a file is `configuration_file`, what may not be
together is `configuration_rules`.

One file configures all services. Fields of features that are not built yet are here too, so that a typing error in them is found today.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from shared.api.selectors import LabelSelector, LabelSelectorRequirement, matches
from shared.config.durations import Duration
from shared.config.feature_gates import DEFAULT_GATES, FeatureGates

GROUP = "config.kueue.x-k8s.io"
KIND = "Configuration"
DEFAULT_NAMESPACE = "kueue-system"
KUBE_SYSTEM = "kube-system"
METRICS_ADDRESS, HEALTH_ADDRESS = ":8443", ":8081"
NAMESPACE_NAME_LABEL = "kubernetes.io/metadata.name"
ALL_AT_ONCE = "kueue.x-k8s.io/multikueue-dispatcher-all-at-once"
INCREMENTAL = "kueue.x-k8s.io/multikueue-dispatcher-incremental"


class Section(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A map of the file; every key has to be known."""


class Webhook(Section, frozen=True, kw_only=True):
    port: int = 9443
    host: str = ""
    """Empty: all addresses."""
    cert_dir: str = "/tmp/k8s-webhook-server/serving-certs"


class LeaderElection(Section, frozen=True, kw_only=True):
    leader_elect: bool = True
    resource_name: str = "c1f6bfd2.kueue.x-k8s.io"
    resource_namespace: str = ""
    resource_lock: str = "leases"
    lease_duration: Duration = Duration(15)
    renew_deadline: Duration = Duration(10)
    retry_period: Duration = Duration(2)


class Requirement(Section, frozen=True, kw_only=True):
    key: str
    operator: str
    values: tuple[str, ...] = ()


class Selector(Section, frozen=True, kw_only=True):
    match_labels: dict[str, str] = {}
    match_expressions: tuple[Requirement, ...] = ()

    def selector(self) -> LabelSelector:
        """As the rest of the code reads it."""
        return LabelSelector(
            match_labels=self.match_labels,
            match_expressions=tuple(
                LabelSelectorRequirement(key=r.key, operator=r.operator, values=r.values)
                for r in self.match_expressions
            ),
        )


class CustomLabel(Section, frozen=True, kw_only=True):
    name: str
    source_label_key: str = ""
    source_annotation_key: str = ""
    source_kind: Literal["ClusterQueue", "LocalQueue", "Cohort", "Workload"] = "ClusterQueue"
    tracked_values: tuple[str, ...] = ()


class LocalQueueMetrics(Section, frozen=True, kw_only=True):
    enable: bool = False
    local_queue_selector: Selector | None = None


class Metrics(Section, frozen=True, kw_only=True):
    bind_address: str = METRICS_ADDRESS
    enable_cluster_queue_resources: bool = False
    # As upstream: an empty block switches them off, no block switches them on.
    local_queue_metrics: LocalQueueMetrics = LocalQueueMetrics(enable=True)
    custom_labels: tuple[CustomLabel, ...] = ()

    @property
    def address(self) -> str:
        """Where metrics are served; `0`: nowhere. Empty in the file stands for the default."""
        return self.bind_address or METRICS_ADDRESS


class Health(Section, frozen=True, kw_only=True):
    health_probe_bind_address: str = HEALTH_ADDRESS
    readiness_endpoint_name: str = "/readyz"
    liveness_endpoint_name: str = "/healthz"

    @property
    def address(self) -> str:
        """Where probes are answered. Empty in the file stands for the default."""
        return self.health_probe_bind_address or HEALTH_ADDRESS


class Controller(Section, frozen=True, kw_only=True):
    group_kind_concurrency: dict[str, int] = {}
    cache_sync_timeout: Duration = Duration(120)


class Tls(Section, frozen=True, kw_only=True):
    min_version: str = "VersionTLS12"
    cipher_suites: tuple[str, ...] = ()
    curve_preferences: tuple[int, ...] = ()


class ClientConnection(Section, frozen=True, kw_only=True):
    qps: float = 300
    burst: int = 500


class Integrations(Section, frozen=True, kw_only=True):
    frameworks: tuple[str, ...] = ("batch/job",)
    external_frameworks: tuple[str, ...] = ()
    label_keys_to_copy: tuple[str, ...] = ()


class RequeuingStrategy(Section, frozen=True, kw_only=True):
    timestamp: Literal["Eviction", "Creation"] = "Eviction"
    backoff_limit_count: int | None = None
    backoff_base_seconds: int = 60
    backoff_max_seconds: int = 3600


class WaitForPodsReady(Section, frozen=True, kw_only=True):
    timeout: Duration = Duration(0)
    block_admission: bool = False
    recovery_timeout: Duration | None = None
    requeuing_strategy: RequeuingStrategy = RequeuingStrategy()

    @property
    def timeout_s(self) -> float:
        """Seconds; 0 in the file stands for the default."""
        return float(self.timeout) or 1800.0

    @property
    def recovery_timeout_s(self) -> float:
        """Seconds; 0 switches it off."""
        return self.timeout_s if self.recovery_timeout is None else float(self.recovery_timeout)


class Transformation(Section, frozen=True, kw_only=True):
    input: str
    strategy: Literal["Retain", "Replace"] = "Retain"
    multiply_by: str = ""
    outputs: dict[str, str | int | float] = {}


class DeviceExpression(Section, frozen=True, kw_only=True):
    expression: str


class DeviceSelector(Section, frozen=True, kw_only=True):
    cel: DeviceExpression


class DeviceAmount(Section, frozen=True, kw_only=True):
    """A counter or a capacity that devices of a driver have."""

    name: str
    driver: str
    device_selector: DeviceSelector | None = None


class DeviceSource(Section, frozen=True, kw_only=True):
    """Exactly one of both."""

    counter: DeviceAmount | None = None
    capacity: DeviceAmount | None = None


class DeviceClassMapping(Section, frozen=True, kw_only=True):
    name: str
    device_class_names: tuple[str, ...]
    sources: tuple[DeviceSource, ...] = ()


class Resources(Section, frozen=True, kw_only=True):
    quota_check_strategy: Literal["BlockUndeclared", "IgnoreUndeclared"] = "BlockUndeclared"
    exclude_resource_prefixes: tuple[str, ...] = ()
    transformations: tuple[Transformation, ...] = ()
    device_class_mappings: tuple[DeviceClassMapping, ...] = ()


class FairSharing(Section, frozen=True, kw_only=True):
    preemption_strategies: tuple[str, ...] = ()


class AdmissionFairSharing(Section, frozen=True, kw_only=True):
    usage_half_life_time: Duration = Duration(0)
    usage_sampling_interval: Duration = Duration(300)
    resource_weights: dict[str, float] = {}


class NamedFramework(Section, frozen=True, kw_only=True):
    name: str


class EnvironmentValue(Section, frozen=True, kw_only=True):
    name: str
    value: str = ""


class ExecConfig(Section, frozen=True, kw_only=True):
    command: str
    api_version: str
    interactive_mode: str
    args: tuple[str, ...] = ()
    env: tuple[EnvironmentValue, ...] = ()
    install_hint: str = ""
    provide_cluster_info: bool = False


class AccessProvider(Section, frozen=True, kw_only=True):
    name: str
    exec_config: ExecConfig


class ClusterProfile(Section, frozen=True, kw_only=True):
    access_providers: tuple[AccessProvider, ...] = ()
    credentials_providers: tuple[AccessProvider, ...] = ()


class IncrementalDispatcher(Section, frozen=True, kw_only=True):
    step_size: int = 3


class MultiKueue(Section, frozen=True, kw_only=True):
    gc_interval: Duration = Duration(60)
    origin: str = "multikueue"
    worker_lost_timeout: Duration = Duration(900)
    dispatcher_name: str = ALL_AT_ONCE
    incremental_dispatcher_config: IncrementalDispatcher | None = None
    external_frameworks: tuple[NamedFramework, ...] = ()
    cluster_profile: ClusterProfile | None = None


class InternalCertManagement(Section, frozen=True, kw_only=True):
    enable: bool = True
    webhook_service_name: str = "kueue-webhook-service"
    webhook_secret_name: str = "kueue-webhook-server-cert"


class WorkloadRetention(Section, frozen=True, kw_only=True):
    after_finished: Duration | None = None
    after_deactivated_by_kueue: Duration | None = None


class RetentionPolicies(Section, frozen=True, kw_only=True):
    workloads: WorkloadRetention = WorkloadRetention()


class VisibilityServer(Section, frozen=True, kw_only=True):
    bind_address: str = ""
    bind_port: int = 8082


class Configuration(Section, frozen=True, kw_only=True):
    """The whole file."""

    namespace: str = ""
    """Empty: where the pod runs, else `kueue-system`."""
    webhook: Webhook = Webhook()
    leader_election: LeaderElection = LeaderElection()
    metrics: Metrics = Metrics()
    health: Health = Health()
    pprof_bind_address: str = ""
    controller: Controller = Controller()
    tls: Tls = Tls()
    client_connection: ClientConnection = ClientConnection()
    feature_gates: dict[str, bool] = {}
    manage_jobs_without_queue_name: bool = False
    managed_jobs_namespace_selector: Selector | None = None
    integrations: Integrations = Integrations()
    wait_for_pods_ready: WaitForPodsReady | None = WaitForPodsReady()
    """None only for a v1beta1 file: there it has to be switched on."""
    resources: Resources = Resources()
    fair_sharing: FairSharing | None = None
    admission_fair_sharing: AdmissionFairSharing | None = None
    multi_kueue: MultiKueue = MultiKueue()
    internal_cert_management: InternalCertManagement = InternalCertManagement()
    object_retention_policies: RetentionPolicies | None = None
    visibility_server: VisibilityServer = VisibilityServer()

    def managed_namespaces(self, own: str) -> LabelSelector:
        """Selects the namespaces whose jobs may be managed. `own`: where Sluice runs."""
        if self.managed_jobs_namespace_selector is not None:
            return self.managed_jobs_namespace_selector.selector()
        excluded = (KUBE_SYSTEM, own)
        return LabelSelector(
            match_expressions=(LabelSelectorRequirement(key=NAMESPACE_NAME_LABEL, operator="NotIn", values=excluded),)
        )


class Configured(msgspec.Struct, frozen=True, kw_only=True):
    """What the services go by: the configuration, the gates of file and flag, and what was given but has no effect yet."""

    configuration: Configuration = Configuration()
    gates: FeatureGates = DEFAULT_GATES
    unused: tuple[str, ...] = ()
    """Paths, for one line each in the log."""

    @property
    def wait_for_pods_ready(self) -> WaitForPodsReady | None:
        """None when the feature is off."""
        return None if self.gates["DisableWaitForPodsReady"] else self.configuration.wait_for_pods_ready

    def namespace(self, otherwise: str = DEFAULT_NAMESPACE) -> str:
        """Where Sluice runs: as the file says, else `otherwise`."""
        return self.configuration.namespace or otherwise


def selects_by_name(selector: LabelSelector, namespace: str) -> bool:
    """Whether the selector takes a namespace that has no labels but the one of its name."""
    return matches(selector, {NAMESPACE_NAME_LABEL: namespace})
