"""Every name of the queueing API that goes over the wire, in one place.

Groups, labels, annotations, finalizers, condition types, reasons, states, gates and controller names. Users' manifests,
dashboards and clients depend on these strings; nothing else in the product spells one out.
"""

from typing import Final

GROUP: Final = "kueue.x-k8s.io"
V1BETA1: Final = "v1beta1"
V1BETA2: Final = "v1beta2"
GROUP_VERSION: Final = f"{GROUP}/{V1BETA2}"
V1BETA1_GROUP_VERSION: Final = f"{GROUP}/{V1BETA1}"
SCHEDULING_GROUP: Final = "scheduling.k8s.io"

# Kinds of this group.
CLUSTER_QUEUE: Final = "ClusterQueue"
LOCAL_QUEUE: Final = "LocalQueue"
COHORT: Final = "Cohort"
WORKLOAD: Final = "Workload"
RESOURCE_FLAVOR: Final = "ResourceFlavor"
ADMISSION_CHECK: Final = "AdmissionCheck"
WORKLOAD_PRIORITY_CLASS: Final = "WorkloadPriorityClass"
PROVISIONING_REQUEST_CONFIG: Final = "ProvisioningRequestConfig"
TOPOLOGY: Final = "Topology"
MULTIKUEUE_CLUSTER: Final = "MultiKueueCluster"
MULTIKUEUE_CONFIG: Final = "MultiKueueConfig"
PRIORITY_CLASS: Final = "PriorityClass"
"""The core kind of scheduling.k8s.io that a Workload may take its priority from."""

DEFAULT_PODSET: Final = "main"
DEFAULT_QUEUE: Final = "default"
RESOURCE_PODS: Final = "pods"

# Controllers of admission checks (spec.controllerName).
MULTIKUEUE_CONTROLLER: Final = f"{GROUP}/multikueue"
PROVISIONING_REQUEST_CONTROLLER: Final = f"{GROUP}/provisioning-request"

NOT_THE_WATCHER: Final = "not-the-watcher"
"""The match condition that every webhook of Sluice has; one of Kueue's configurations without it was left there by Kueue."""
CONVERSION_SERVICE: Final = "kueue-conversion-service"
"""The webhook's other Service: it leads to instances that are not ready too."""

# Finalizers.
RESOURCE_IN_USE: Final = f"{GROUP}/resource-in-use"
POD_FINALIZER: Final = f"{GROUP}/managed"

# Labels on jobs.
QUEUE_NAME_LABEL: Final = f"{GROUP}/queue-name"
PRIORITY_CLASS_LABEL: Final = f"{GROUP}/priority-class"
MAX_EXEC_TIME_LABEL: Final = f"{GROUP}/max-exec-time-seconds"
PREBUILT_WORKLOAD: Final = f"{GROUP}/prebuilt-workload-name"
"""Label or annotation on a job."""

# Labels on Workloads, pods, templates and LocalQueues.
JOB_UID_LABEL: Final = f"{GROUP}/job-uid"
MANAGED_LABEL: Final = f"{GROUP}/managed"
PODSET_LABEL: Final = f"{GROUP}/podset"
CLUSTER_QUEUE_NAME_LABEL: Final = f"{GROUP}/cluster-queue-name"
LOCAL_QUEUE_NAME_LABEL: Final = f"{GROUP}/local-queue-name"
CONCURRENT_ADMISSION_PARENT_LABEL: Final = f"{GROUP}/concurrent-admission-parent"
MULTIKUEUE_ORIGIN_LABEL: Final = f"{GROUP}/multikueue-origin"
MULTIKUEUE_WORKER_POD_LABEL: Final = f"{GROUP}/multikueue-worker-workload-pod"
AUTO_GENERATED_LABEL: Final = f"{GROUP}/auto-generated"

# Annotations.
WORKLOAD_ANNOTATION: Final = f"{GROUP}/workload"
WORKLOAD_SLICE_NAME: Final = f"{GROUP}/workload-slice-name"
WORKLOAD_SLICE_REPLACEMENT_FOR: Final = f"{GROUP}/workload-slice-replacement-for"
ELASTIC_JOB: Final = f"{GROUP}/elastic-job"
"""Annotation on an elastic job, and the scheduling gate of its pods."""
ADMISSION_GATED_BY: Final = f"{GROUP}/admission-gated-by"
PRIORITY_BOOST: Final = f"{GROUP}/priority-boost"
ALLOWED_FLAVORS: Final = f"{GROUP}/workload-allowed-resource-flavors"
SAFE_TO_FORCEFULLY_DELETE: Final = f"{GROUP}/safe-to-forcefully-delete"
JOB_OWNER_GVK: Final = f"{GROUP}/job-owner-gvk"
JOB_OWNER_NAME: Final = f"{GROUP}/job-owner-name"
COMPONENT_WORKLOAD_INDEX: Final = f"{GROUP}/component-workload-index"
JOB_MIN_PARALLELISM: Final = f"{GROUP}/job-min-parallelism"
JOB_COMPLETIONS_EQUAL_PARALLELISM: Final = f"{GROUP}/job-completions-equal-parallelism"
STOPPING: Final = f"{GROUP}/stopping"
PODSET_REQUIRED_TOPOLOGY: Final = f"{GROUP}/podset-required-topology"
PODSET_PREFERRED_TOPOLOGY: Final = f"{GROUP}/podset-preferred-topology"
PODSET_UNCONSTRAINED_TOPOLOGY: Final = f"{GROUP}/podset-unconstrained-topology"
PODSET_SLICE_TOPOLOGY: Final = f"{GROUP}/podset-slice-required-topology"
PODSET_SLICE_SIZE: Final = f"{GROUP}/podset-slice-size"
PODSET_SLICE_CONSTRAINTS: Final = f"{GROUP}/podset-slice-required-topology-constraints"
PODSET_GROUP_NAME: Final = f"{GROUP}/podset-group-name"
V1BETA1_FIELDS: Final = f"{GROUP}/v1beta1-fields"
"""On an object in version v1beta2: what only v1beta1 can say of it, as JSON. Conversion puts it there and takes it away."""
V1BETA2_FIELDS: Final = f"{GROUP}/v1beta2-fields"
"""The same the other way round."""
PROVISIONING_ANNOTATION_PREFIX: Final = f"provreq.{GROUP}/"
"""Annotations with this prefix are copied from a job to its Workload."""
PROVISIONING_NOT_SERVED: Final = "the cluster does not serve ProvisioningRequests (autoscaling.x-k8s.io/v1)"

# Scheduling gates on pods, and preemption gates on Workloads.
TOPOLOGY_SCHEDULING_GATE: Final = f"{GROUP}/topology"
ADMISSION_SCHEDULING_GATE: Final = f"{GROUP}/admission"
MULTIKUEUE_PREEMPTION_GATE: Final = f"{GROUP}/multikueue"
CONCURRENT_ADMISSION_PREEMPTION_GATE: Final = f"{GROUP}/concurrent-admission"

# Field managers of server-side apply.
ADMISSION_MANAGER: Final = "kueue-admission"
RECLAIMABLE_PODS_MANAGER: Final = "kueue-reclaimable-pods"
PODS_READY_MANAGER: Final = "kueue-job-controller-PodsReady"
POD_CONTROLLER_MANAGER: Final = "kueue-pod-controller"
"""Of conditions that only groups of pods have."""

HOSTNAME_LABEL: Final = "kubernetes.io/hostname"

# Condition types of a Workload.
QUOTA_RESERVED: Final = "QuotaReserved"
ADMITTED: Final = "Admitted"
EVICTED: Final = "Evicted"
PREEMPTED: Final = "Preempted"
REQUEUED: Final = "Requeued"
PODS_READY: Final = "PodsReady"
DEACTIVATION_TARGET: Final = "DeactivationTarget"
FINISHED: Final = "Finished"
BLOCKED_ON_PREEMPTION_GATES: Final = "BlockedOnPreemptionGates"
WAITING_FOR_REPLACEMENT_PODS: Final = "WaitingForReplacementPods"

# Condition type of queues and checks.
ACTIVE: Final = "Active"

# Reasons of QuotaReserved=False.
REASON_PENDING_EVALUATION: Final = "PendingEvaluation"
REASON_WAITING_FOR_QUOTA: Final = "WaitingForQuota"
REASON_WAITING_FOR_PREEMPTED: Final = "WaitingForPreemptedWorkloads"
REASON_NO_MATCHING_FLAVOR: Final = "NoMatchingFlavor"
REASON_EXCEEDS_MAX_QUOTA: Final = "ExceedsMaxQuota"
REASON_TOPOLOGY_PLACEMENT_FAILED: Final = "TopologyPlacementFailed"
REASON_MISCONFIGURED: Final = "Misconfigured"
REASON_SUSPENDED: Final = "Suspended"
REASON_WAITING_FOR_PODS_READY: Final = "WaitingForPodsReady"
REASON_ADMISSION_GATED: Final = "AdmissionGated"
REASON_ON_HOLD: Final = "OnHold"
REASON_DEACTIVATED: Final = "Deactivated"
"""Also a reason of Evicted."""

# Reasons of Admitted=False.
REASON_NO_RESERVATION: Final = "NoReservation"
REASON_UNSATISFIED_CHECKS: Final = "UnsatisfiedAdmissionChecks"
REASON_PENDING_DELAYED_TOPOLOGY: Final = "PendingDelayedTopologyRequests"

# Reasons of Evicted=True (and of Requeued=False after it).
REASON_PREEMPTED: Final = "Preempted"
REASON_PODS_READY_TIMEOUT: Final = "PodsReadyTimeout"
REASON_ADMISSION_CHECK: Final = "AdmissionCheck"
REASON_CLUSTER_QUEUE_STOPPED: Final = "ClusterQueueStopped"
REASON_LOCAL_QUEUE_STOPPED: Final = "LocalQueueStopped"
REASON_NODE_FAILURES: Final = "NodeFailures"
REASON_FLAVOR_MIGRATION: Final = "FlavorMigration"
REASON_VARIANT_EVICTED: Final = "VariantEvicted"
REASON_CONCURRENT_ADMISSION: Final = "ConcurrentAdmission"
REASON_EVICTED_ON_MANAGER: Final = "EvictedOnManagerCluster"
REASON_DEACTIVATED_DUE_TO: Final = "DeactivatedDueTo"
"""Prefix: the cause follows, e.g. DeactivatedDueToAdmissionCheck."""

# Reasons of DeactivationTarget (the causes of a deactivation).
REASON_REQUEUING_LIMIT_EXCEEDED: Final = "RequeuingLimitExceeded"
REASON_MAXIMUM_EXECUTION_TIME_EXCEEDED: Final = "MaximumExecutionTimeExceeded"

# Reasons of Preempted=True.
REASON_IN_CLUSTER_QUEUE: Final = "InClusterQueue"
REASON_IN_COHORT_RECLAMATION: Final = "InCohortReclamation"
REASON_IN_COHORT_FAIR_SHARING: Final = "InCohortFairSharing"
REASON_IN_COHORT_RECLAIM_WHILE_BORROWING: Final = "InCohortReclaimWhileBorrowing"
REASON_PREEMPTION_GATED: Final = "PreemptionGated"

# Reasons of Requeued=True.
REASON_BACKOFF_FINISHED: Final = "BackoffFinished"
REASON_REACTIVATED: Final = "Reactivated"
REASON_CLUSTER_QUEUE_RESTARTED: Final = "ClusterQueueRestarted"
REASON_LOCAL_QUEUE_RESTARTED: Final = "LocalQueueRestarted"
REASON_INADMISSIBLE: Final = "Inadmissible"

# Reasons of PodsReady.
REASON_STARTED: Final = "Started"
REASON_RECOVERED: Final = "Recovered"
REASON_WAIT_FOR_START: Final = "WaitForStart"
REASON_WAIT_FOR_RECOVERY: Final = "WaitForRecovery"

# Reasons of Finished=True.
REASON_SUCCEEDED: Final = "Succeeded"
REASON_FAILED: Final = "Failed"
REASON_OUT_OF_SYNC: Final = "OutOfSync"
REASON_OWNER_NOT_FOUND: Final = "OwnerNotFound"
REASON_SLICE_REPLACED: Final = "WorkloadSliceReplaced"
REASON_FAILED_TO_START: Final = "FailedToStart"

# Reasons of Active on queues.
REASON_READY: Final = "Ready"
REASON_STOPPED: Final = "Stopped"
REASON_FLAVOR_NOT_FOUND: Final = "FlavorNotFound"
REASON_CHECK_NOT_FOUND: Final = "AdmissionCheckNotFound"
REASON_CHECK_INACTIVE: Final = "AdmissionCheckInactive"
REASON_MULTIPLE_MULTIKUEUE_CHECKS: Final = "MultipleMultiKueueAdmissionChecks"
REASON_MULTIKUEUE_CHECK_PER_FLAVOR: Final = "MultiKueueAdmissionCheckAppliedPerFlavor"
REASON_MULTIKUEUE_WITH_PROVISIONING: Final = "MultiKueueWithProvisioningRequest"
REASON_TOPOLOGY_NOT_FOUND: Final = "TopologyNotFound"
REASON_TERMINATING: Final = "Terminating"
REASON_NOT_FOUND: Final = "NotFound"
REASON_UNKNOWN: Final = "Unknown"
REASON_CLUSTER_QUEUE_DOES_NOT_EXIST: Final = "ClusterQueueDoesNotExist"
REASON_CLUSTER_QUEUE_IS_INACTIVE: Final = "ClusterQueueIsInactive"

# Reasons of Active on checks of the provisioning controller.
REASON_ACTIVE: Final = "Active"
REASON_BAD_PARAMETERS: Final = "BadParametersRef"
REASON_NOT_SERVED: Final = "ProvisioningRequestNotServed"

# States of an admission check on a Workload.
CHECK_PENDING: Final = "Pending"
CHECK_READY: Final = "Ready"
CHECK_RETRY: Final = "Retry"
CHECK_REJECTED: Final = "Rejected"

# Stop policies of queues.
STOP_NONE: Final = "None"
STOP_HOLD: Final = "Hold"
STOP_HOLD_AND_DRAIN: Final = "HoldAndDrain"

# What the integrations of single kinds of jobs use.
POD_INDEX_OFFSET: Final = f"{GROUP}/pod-index-offset"
"""Annotation of pods: what their index is to be lessened by, so that ranks begin behind those of another pod set."""
RAYCLUSTER_GENERATION: Final = f"{GROUP}/raycluster-generation"
RUNTIME_PATCH_MANAGER: Final = f"{GROUP}/manager"
"""Who writes the entry of a TrainJob's `runtimePatches` that is ours."""

JOB_KIND_PLUGINS: Final = "sluice.job_kinds"
"""The group of entry points by which other packages bring kinds of jobs; the name of an entry point is the framework's in the configuration."""
MULTIKUEUE_ORIGIN_UID: Final = f"{GROUP}/multikueue-origin-uid"
"""Annotation on a mirrored StatefulSet or LeaderWorkerSet: the uid of the original."""
IS_GROUP_WORKLOAD: Final = f"{GROUP}/is-group-workload"
"""Annotation of the Workload of a group of pods."""
POD_SUSPENDING_PARENT: Final = f"{GROUP}/pod-suspending-parent"
"""Annotation of pods: the framework of what makes them and queues by them."""
POD_GROUP_NAME: Final = f"{GROUP}/pod-group-name"
POD_GROUP_TOTAL_COUNT: Final = f"{GROUP}/pod-group-total-count"
POD_GROUP_FAST_ADMISSION: Final = f"{GROUP}/pod-group-fast-admission"
POD_GROUP_SERVING: Final = f"{GROUP}/pod-group-serving"
POD_GROUP_POD_INDEX: Final = f"{GROUP}/pod-group-pod-index"
POD_GROUP_POD_INDEX_LABEL: Final = f"{GROUP}/pod-group-pod-index-label"
"""Annotation of pods: the label that holds their index in the group."""
RETRIABLE_IN_GROUP: Final = f"{GROUP}/retriable-in-group"
ROLE_HASH: Final = f"{GROUP}/role-hash"
