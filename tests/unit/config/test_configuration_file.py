"""Reading the file strictly: defaults, every kind of error with its path, what has no effect yet, and the older version."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from shared.api.selectors import matches
from shared.config.configuration import Configuration, Configured, FairSharing
from shared.config.configuration_file import PARTLY_USED_GATES, USED_GATES, ConfigurationError, load

ROOT = Path(__file__).resolve().parents[3]
V1BETA2 = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"
V1BETA1 = "apiVersion: config.kueue.x-k8s.io/v1beta1\nkind: Configuration\n"

SHIPPED = """
health: {healthProbeBindAddress: ":8081"}
metrics: {bindAddress: ":8443"}
webhook: {port: 9443}
leaderElection: {leaderElect: true, resourceName: c1f6bfd2.kueue.x-k8s.io}
controller:
  groupKindConcurrency: {Job.batch: 5, Pod: 5, Workload.kueue.x-k8s.io: 10}
clientConnection: {qps: 300, burst: 500}
integrations:
  frameworks: [batch/job, kubeflow.org/mpijob, pod, deployment]
"""


class File:
    """A configuration file of a test."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def load(self, body: str, flag: str = "", head: str = V1BETA2) -> Configured:
        self.path.write_text(head + body)
        return load(str(self.path), flag)

    def error(self, body: str, flag: str = "", head: str = V1BETA2) -> str:
        """What is wrong, without the name of the file."""
        with pytest.raises(ConfigurationError) as caught:
            self.load(body, flag, head)
        return str(caught.value).replace(f"{self.path}: ", "")


@pytest.fixture
def file(tmp_path: Path) -> File:
    return File(tmp_path / "config.yaml")


def test_no_file_is_all_defaults() -> None:
    configured = load()
    assert configured == Configured()
    assert configured.wait_for_pods_ready is not None
    assert configured.wait_for_pods_ready.timeout_s == 1800
    assert configured.wait_for_pods_ready.recovery_timeout_s == 1800
    assert configured.namespace() == "kueue-system"


def test_an_empty_configuration_is_no_configuration(file: File) -> None:
    assert file.load("").configuration == Configuration()


def test_the_shipped_file(file: File) -> None:
    configured = file.load(SHIPPED)
    assert configured.configuration.controller.group_kind_concurrency["Job.batch"] == 5
    assert configured.unused == (
        "controller",
        "clientConnection",
    )


def test_namespaces_whose_jobs_are_managed(file: File) -> None:
    by_name = {name: {"kubernetes.io/metadata.name": name} for name in ("kube-system", "kueue-system", "own", "team")}
    default = load().configuration.managed_namespaces("kueue-system")
    assert [n for n, labels in by_name.items() if matches(default, labels)] == ["own", "team"]
    configured = file.load("namespace: own\n")
    own = configured.configuration.managed_namespaces(configured.namespace())
    assert [n for n, labels in by_name.items() if matches(own, labels)] == ["kueue-system", "team"]
    chosen = file.load("managedJobsNamespaceSelector: {matchLabels: {team: a}}\n").configuration
    assert matches(chosen.managed_namespaces("kueue-system"), {"team": "a"})
    assert not matches(chosen.managed_namespaces("kueue-system"), {"team": "b"})


@pytest.mark.parametrize(
    ("metrics", "local_queues"),
    [("", True), ("metrics: {bindAddress: ':1'}\n", True), ("metrics: {localQueueMetrics: {}}\n", False),
     ("metrics: {localQueueMetrics: {enable: true}}\n", True), ("metrics: {localQueueMetrics: null}\n", True)],
)  # fmt: skip
def test_series_of_local_queues_are_on_unless_there_is_a_block(file: File, metrics: str, local_queues: bool) -> None:
    assert file.load(metrics).configuration.metrics.local_queue_metrics.enable is local_queues


@pytest.mark.parametrize(
    ("text", "timeout", "recovery"),
    [
        ("{}", 1800, 1800),
        ("{timeout: 0s}", 1800, 1800),
        ("{timeout: 10m}", 600, 600),
        ("{timeout: 10m, recoveryTimeout: 0s}", 600, 0),
        ("{recoveryTimeout: 3m}", 1800, 180),
        ("{timeout: 60000000000}", 60, 60),
    ],
)
def test_wait_for_pods_ready(file: File, text: str, timeout: float, recovery: float) -> None:
    wait = file.load(f"waitForPodsReady: {text}\n").wait_for_pods_ready
    assert wait is not None
    assert (wait.timeout_s, wait.recovery_timeout_s) == (timeout, recovery)
    assert not wait.block_admission


def test_wait_for_pods_ready_is_switched_off_by_its_gate(file: File) -> None:
    configured = file.load("featureGates: {DisableWaitForPodsReady: true}\n")
    assert configured.wait_for_pods_ready is None


@pytest.mark.parametrize(
    ("body", "error"),
    [
        # YAML and head
        ("a: [", "not YAML"),
        ("namespace: a\nnamespace: b\n", "line 4: namespace: stands there twice"),
        ("webhook: {port: 1, port: 2}\n", "line 3: port: stands there twice"),
        # shape
        ("nonsense: 1\n", "nonsense: no such field"),
        ("webhook: {prt: 1}\n", "webhook.prt: no such field"),
        ("metrics: {localQueueMetrics: {enabled: true}}\n", "metrics.localQueueMetrics.enabled: no such field"),
        ("managedJobsNamespaceSelector: {matchlabels: {}}\n", "managedJobsNamespaceSelector.matchlabels: no such field"),
        ("waitForPodsReady: {enable: true}\n", "waitForPodsReady.enable: no such field"),
        ("queueVisibility: {}\n", "queueVisibility: no such field"),
        ("webhook: {port: x}\n", "webhook.port: Expected `int`, got `str`"),
        ("webhook: 1\n", "webhook: Expected `object`, got `int`"),
        ("namespace: 1\n", "namespace: Expected `str`, got `int`"),
        ("manageJobsWithoutQueueName: 'true'\n", "manageJobsWithoutQueueName: Expected `bool`, got `str`"),
        ("waitForPodsReady: {timeout: 5x}\n", "waitForPodsReady.timeout: not a duration: '5x'"),
        ("waitForPodsReady: {timeout: [1]}\n", "waitForPodsReady.timeout: not a duration"),
        ("waitForPodsReady: {requeuingStrategy: {timestamp: Later}}\n", "waitForPodsReady.requeuingStrategy.timestamp"),
        ("integrations: {frameworks: batch/job}\n", "integrations.frameworks: Expected `array`, got `str`"),
        ("resources: {transformations: [{strategy: Retain}]}\n", "resources.transformations[0].input: must be set"),
        ("resources: {transformations: [{input: cpu, strategy: Keep}]}\n", "resources.transformations[0].strategy"),
        ("metrics: {customLabels: [{name: a, sourceKind: Job}]}\n", "metrics.customLabels[0].sourceKind"),
        ("featureGates: {PartialAdmission: maybe}\n", "featureGates[...]: Expected `bool`, got `str`"),
        # rules
        ("webhook: {port: 0}\n", "webhook.port: must be between 1 and 65535, is 0"),
        ("leaderElection: {retryPeriod: 0s}\n", "leaderElection.retryPeriod: must be more than 0, is 0"),
        ("leaderElection: {retryPeriod: 9s}\n", "leaderElection.renewDeadline: must be more than 1.2 times"),
        ("leaderElection: {leaseDuration: 10s}\n", "leaderElection.leaseDuration: must be more than the renewDeadline"),
        ("controller: {groupKindConcurrency: {Pod: 0}}\n", "controller.groupKindConcurrency[Pod]: must be at least 1"),
        ("tls: {minVersion: VersionTLS11}\n", "tls.minVersion: 'VersionTLS11' is not one of"),
        ("tls: {minVersion: VersionTLS13, cipherSuites: [TLS_AES_128_GCM_SHA256]}\n", "tls.cipherSuites: cannot be"),
        ("tls: {cipherSuites: [rot13]}\n", "tls.cipherSuites: 'rot13' is no cipher suite"),
        ("tls: {curvePreferences: [1]}\n", "tls.curvePreferences: 1 is not one of"),
        ("metrics: {customLabels: [{name: 1a}]}\n", "metrics.customLabels[0].name: '1a' must be"),
        ("metrics: {customLabels: [{name: a}, {name: a}]}\n", "metrics.customLabels: a stands there 2 times"),
        ("metrics: {customLabels: [{name: a, sourceLabelKey: x, sourceAnnotationKey: y}]}\n", "metrics.customLabels[0]: only"),
        ("metrics: {customLabels: [{name: a, sourceKind: Workload}]}\n", "trackedValues: must be 1 to 12 values, are 0"),
        ("metrics: {customLabels: [{name: a, trackedValues: [x, x]}]}\n", "trackedValues: x stands there 2 times"),
        ("metrics: {localQueueMetrics: {localQueueSelector: {matchLabels: {'-': x}}}}\n", "localQueueSelector: matchLabels"),
        ("managedJobsNamespaceSelector: {}\n", "managedJobsNamespaceSelector: must not select the namespace kube-system"),
        ("namespace: own\nmanagedJobsNamespaceSelector: {matchLabels: {kubernetes.io/metadata.name: own}}\n",
         "managedJobsNamespaceSelector: must not select the namespace own"),
        ("managedJobsNamespaceSelector: {matchExpressions: [{key: a, operator: Like}]}\n", "'Like' is not one of"),
        ("integrations: {frameworks: [batch/jobs]}\n", "integrations.frameworks: 'batch/jobs' is not one of batch/job,"),
        ("integrations: {frameworks: [pod, pod]}\n", "integrations.frameworks: pod stands there 2 times"),
        ("integrations: {frameworks: [sparkoperator.k8s.io/sparkapplication]}\n", "needs the feature gate Spark"),
        ("integrations: {externalFrameworks: [foo]}\n", "integrations.externalFrameworks: 'foo' must be Kind.version.group"),
        ("integrations: {externalFrameworks: [Job.v1.batch]}\n", "integrations.externalFrameworks: Job.v1.batch is built in"),
        ("integrations: {externalFrameworks: [A.v1.b.c, A.v1.b.c]}\n", "A.v1.b.c stands there 2 times"),
        ("waitForPodsReady: {timeout: -1s}\n", "waitForPodsReady.timeout: must not be negative, is -1"),
        ("waitForPodsReady: {recoveryTimeout: -1s}\n", "waitForPodsReady.recoveryTimeout: must not be negative"),
        ("waitForPodsReady: {requeuingStrategy: {backoffLimitCount: -1}}\n", "backoffLimitCount: must not be negative"),
        ("waitForPodsReady: {requeuingStrategy: {backoffBaseSeconds: -1}}\n", "backoffBaseSeconds: must not be negative"),
        ("waitForPodsReady: {requeuingStrategy: {backoffMaxSeconds: -1}}\n", "backoffMaxSeconds: must not be negative"),
        ("resources: {quotaCheckStrategy: IgnoreUndeclared, excludeResourcePrefixes: [x]}\n", "resources.quotaCheckStrategy"),
        ("resources: {transformations: [{input: a}, {input: a}]}\n", "resources.transformations: a stands there 2 times"),
        ("resources: {transformations: [{input: a, outputs: {b: 1q}}]}\n", "resources.transformations[0].outputs[b]: "),
        ("resources: {deviceClassMappings: [{name: a, deviceClassNames: []}]}\n", "deviceClassNames: must be 1 to 8 names"),
        ("fairSharing: {}\n", "fairSharing.preemptionStrategies: must be ["),
        ("fairSharing: {preemptionStrategies: [LessThanInitialShare, LessThanOrEqualToFinalShare]}\n", "must be ["),
        ("admissionFairSharing: {usageHalfLifeTime: -1s}\n", "admissionFairSharing.usageHalfLifeTime: must not be negative"),
        ("admissionFairSharing: {usageSamplingInterval: 0s}\n", "usageSamplingInterval: must be more than 0"),
        ("admissionFairSharing: {resourceWeights: {cpu: -1}}\n", "resourceWeights[cpu]: must not be negative"),
        ("multiKueue: {gcInterval: -1s}\n", "multiKueue.gcInterval: must not be negative"),
        ("multiKueue: {workerLostTimeout: -1s}\n", "multiKueue.workerLostTimeout: must not be negative"),
        ("multiKueue: {origin: 'a b'}\n", "multiKueue.origin: "),
        ("multiKueue: {incrementalDispatcherConfig: {}}\n", "multiKueue.incrementalDispatcherConfig: needs dispatcherName"),
        ("multiKueue: {dispatcherName: kueue.x-k8s.io/multikueue-dispatcher-incremental,"
         " incrementalDispatcherConfig: {stepSize: 0}}\n", "stepSize: must be at least 1"),
        ("multiKueue: {externalFrameworks: [{name: Job.v1.batch}]}\n", "multiKueue.externalFrameworks: Job.v1.batch is"),
        ("multiKueue: {clusterProfile: {accessProviders: [{name: a}]}}\n", "accessProviders[0].execConfig: must be set"),
        ("internalCertManagement: {webhookServiceName: 1x}\n", "internalCertManagement.webhookServiceName: '1x'"),
        ("internalCertManagement: {webhookSecretName: X}\n", "internalCertManagement.webhookSecretName: 'X'"),
        ("objectRetentionPolicies: {workloads: {afterFinished: -1s}}\n", "afterFinished: must not be negative"),
        ("objectRetentionPolicies: {workloads: {afterDeactivatedByKueue: -1s}}\n", "afterDeactivatedByKueue: must not be"),
        ("visibilityServer: {bindPort: 70000}\n", "visibilityServer.bindPort: must be between 1 and 65535"),
        ("visibilityServer: {bindAddress: host}\n", "visibilityServer.bindAddress: 'host' is no IP address"),
        ("featureGates: {NoSuchGate: true}\n", "featureGates.NoSuchGate: no such feature gate"),
        ("featureGates: {TLSOptions: false}\n", "featureGates.TLSOptions: cannot be set to false"),
    ],
)  # fmt: skip
def test_errors_name_path_and_reason(file: File, body: str, error: str) -> None:
    assert error in file.error(body)


@pytest.mark.parametrize("count", [(20, ""), (21, "at most 20, are 21")])
def test_number_of_labels(file: File, count: tuple[int, str]) -> None:
    number, error = count
    kinds = ("ClusterQueue", "LocalQueue", "Cohort", "Workload")
    labels = [f"{{name: n{i}, sourceKind: {kinds[i // 6]}, trackedValues: [x]}}" for i in range(min(number, 20))] + [
        "{name: more, sourceKind: Cohort}"
    ] * (number - 20)
    body = f"metrics: {{customLabels: [{', '.join(labels)}]}}\n"
    if error:
        assert error in file.error(body)
    else:
        assert len(file.load(body).configuration.metrics.custom_labels) == 20


def test_too_many_labels_of_a_kind(file: File) -> None:
    labels = ", ".join(f"{{name: n{i}}}" for i in range(7))
    assert "at most 6 of ClusterQueue, are 7" in file.error(f"metrics: {{customLabels: [{labels}]}}\n")


def test_all_broken_rules_at_once(file: File) -> None:
    error = file.error("webhook: {port: 0}\nfairSharing: {}\n")
    assert [line.split(":")[0] for line in error.splitlines()] == ["webhook.port", "fairSharing.preemptionStrategies"]


def test_every_error_names_the_file(file: File) -> None:
    with pytest.raises(ConfigurationError) as caught:
        file.load("webhook: {port: 0}\nvisibilityServer: {bindPort: 0}\n")
    assert all(line.startswith(f"{file.path}: ") for line in str(caught.value).splitlines())


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "must be a map"),
        ("- a\n", "must be a map"),
        ("1: 2\n", "must be a map"),
        ("{}\n", "apiVersion: must be"),
        ("kind: Configuration\n", "apiVersion: must be"),
        ("apiVersion: v1\nkind: Configuration\n", "apiVersion: must be"),
        (
            "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: ConfigMap\n",
            "kind: must be Configuration, not 'ConfigMap'",
        ),
    ],
)
def test_what_is_no_configuration(file: File, text: str, error: str) -> None:
    assert error in file.error(text, head="")


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"absent\.yaml: No such file"):
        load(str(tmp_path / "absent.yaml"))
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigurationError, match=r"binary\.yaml: "):
        load(str(tmp_path / "binary.yaml"))


def test_gates_of_the_flag(file: File) -> None:
    assert load(flag="PriorityBoost=true").gates["PriorityBoost"]
    assert file.load("", "PriorityBoost=true").gates["PriorityBoost"]
    with pytest.raises(ConfigurationError, match=r"^feature gates: Foo: no such feature gate$"):
        load(flag="Foo=true")
    with pytest.raises(ConfigurationError, match=r"^feature gates: Foo: no value"):
        load(flag="Foo")


def test_gates_come_from_one_place(file: File) -> None:
    assert "only one of both may be" in file.error("featureGates: {PriorityBoost: true}\n", "PartialAdmission=false")
    assert not file.load("featureGates: {}\n", "PartialAdmission=false").gates["PartialAdmission"]


def test_what_has_no_effect_yet_is_told(file: File) -> None:
    configured = file.load(
        "waitForPodsReady: {timeout: 5m, requeuingStrategy: {timestamp: Creation, backoffLimitCount: 2}}\n"
        "resources: {excludeResourcePrefixes: [x], deviceClassMappings: []}\n"
        "metrics: {enableClusterQueueResources: true, customLabels: []}\n"
        "fairSharing: {preemptionStrategies: [LessThanInitialShare]}\n"
        "multiKueue: {origin: here}\n"
        "featureGates: {ShortWorkloadNames: true, PartialAdmission: false}\n"
    )
    assert configured.unused == (
        "multiKueue",
        "feature gate ShortWorkloadNames=true",
    )


def test_what_has_some_of_its_effects_is_told_with_which(file: File) -> None:
    configured = file.load(
        "leaderElection: {renewDeadline: 12s, leaseDuration: 15s}\n"
        "tls: {minVersion: VersionTLS12, curvePreferences: [23, 29]}\n"
        "featureGates: {TASMultiLayerTopology: false}\n"
    )
    assert configured.unused == (
        "leaderElection.renewDeadline (checked only)",
        "tls.curvePreferences",
        "feature gate TASMultiLayerTopology=false (only the rules for annotations of Jobs)",
    )
    assert file.load("tls: {curvePreferences: [29]}\n").unused == ()


def read_gates() -> set[str]:
    """Gates that the product asks for anywhere."""
    sources = [path for top in ("shared", "services", "cli") for path in (ROOT / top).rglob("*.py")]
    asked = re.compile(r"""gates\[['"](\w+)['"]\]""")
    return {gate for path in sources for gate in asked.findall(path.read_text())}


def test_gates_are_said_to_be_used_if_and_only_if_they_are() -> None:
    """A gate that nobody reads must be told as without effect; one that is read must not be."""
    of_kinds_without_webhooks = {"LWSImmutableGroupSize"}
    assert read_gates() - of_kinds_without_webhooks == USED_GATES | PARTLY_USED_GATES.keys()


@pytest.mark.parametrize(
    ("body", "timeout", "block"),
    [
        ("waitForPodsReady: {enable: true}\n", 300, True),
        ("waitForPodsReady: {enable: true, timeout: 0s}\n", 300, True),
        ("waitForPodsReady: {enable: true, timeout: 7m, blockAdmission: false}\n", 420, False),
    ],
)
def test_v1beta1_waits_when_told_to(file: File, body: str, timeout: float, block: bool) -> None:
    wait = file.load(body, head=V1BETA1).wait_for_pods_ready
    assert wait is not None
    assert (wait.timeout_s, wait.recovery_timeout_s, wait.block_admission) == (timeout, timeout, block)


@pytest.mark.parametrize("body", ["", "waitForPodsReady: {}\n", "waitForPodsReady: {enable: false, timeout: 7m}\n"])
def test_v1beta1_does_not_wait_otherwise(file: File, body: str) -> None:
    assert file.load(body, head=V1BETA1).wait_for_pods_ready is None


@pytest.mark.parametrize(
    ("body", "strategies"),
    [
        ("", None),
        ("fairSharing: {}\n", None),
        ("fairSharing: {enable: false, preemptionStrategies: [LessThanInitialShare]}\n", None),
        ("fairSharing: {enable: true}\n", ("LessThanOrEqualToFinalShare", "LessThanInitialShare")),
        ("fairSharing: {enable: true, preemptionStrategies: [LessThanInitialShare]}\n", ("LessThanInitialShare",)),
    ],
)
def test_v1beta1_fair_sharing(file: File, body: str, strategies: tuple[str, ...] | None) -> None:
    expected = FairSharing(preemption_strategies=strategies) if strategies is not None else None
    assert file.load(body, head=V1BETA1).configuration.fair_sharing == expected


def test_v1beta1_fields_without_effect(file: File) -> None:
    body = (
        "queueVisibility: {clusterQueues: {maxCount: 5}, updateIntervalSeconds: 5}\n"
        "integrations: {frameworks: [batch/job], podOptions: {namespaceSelector: {}, podSelector: {}}}\n"
    )
    assert file.load(body, head=V1BETA1).configuration.integrations.frameworks == ("batch/job",)


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ("visibilityServer: {}\n", "visibilityServer: no such field in v1beta1"),
        (
            "resources: {quotaCheckStrategy: BlockUndeclared}\n",
            "resources.quotaCheckStrategy: no such field in v1beta1",
        ),
        ("multiKueue: {clusterProfile: {}}\n", "multiKueue.clusterProfile: no such field in v1beta1"),
        ("multiKueue: {incrementalDispatcherConfig: {}}\n", "incrementalDispatcherConfig: no such field in v1beta1"),
        (
            "metrics: {customLabels: [{name: a, sourceKind: Cohort}]}\n",
            "customLabels[0].sourceKind: no such field in v1",
        ),
        ("resources: {deviceClassMappings: [{name: a, deviceClassNames: [x], sources: []}]}\n", "[0].sources: no such"),
        ("waitForPodsReady: {enable: 1}\n", "waitForPodsReady.enable: Expected `bool`"),
        ("waitForPodsReady: {enable: false, foo: 1}\n", "waitForPodsReady.foo: no such field"),
        ("fairSharing: {enable: x}\n", "fairSharing.enable: Expected `bool`"),
        ("queueVisibility: {foo: 1}\n", "queueVisibility.foo: no such field"),
        ("queueVisibility: {clusterQueues: {foo: 1}}\n", "queueVisibility.clusterQueues.foo: no such field"),
        ("integrations: {podOptions: {foo: 1}}\n", "integrations.podOptions.foo: no such field"),
        ("waitForPodsReady: 1\n", "waitForPodsReady: Expected `object | null`, got `int`"),
    ],
)
def test_v1beta1_errors(file: File, body: str, error: str) -> None:
    assert error in file.error(body, head=V1BETA1)
