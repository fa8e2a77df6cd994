"""The table of kinds whose CustomResourceDefinitions are generated: names, scope, columns, versions.

v1beta2 is stored. v1beta1 is served too; a kind without a Struct of its own there looks the same in both, and needs no conversion.
"""

import msgspec

from shared.api import names
from shared.api.admission_check import AdmissionCheck
from shared.api.cluster_queue import ClusterQueue
from shared.api.cohort import Cohort
from shared.api.crd import Crd, CrdVersion, PrinterColumn
from shared.api.local_queue import LocalQueue
from shared.api.multikueue import MultiKueueCluster, MultiKueueConfig
from shared.api.provisioning_request_config import ProvisioningRequestConfig
from shared.api.resource_flavor import ResourceFlavor
from shared.api.schema_hints import Rule
from shared.api.topology import Topology
from shared.api.v1beta1 import admission_check as old_check
from shared.api.v1beta1 import cluster_queue as old_cluster_queue
from shared.api.v1beta1 import cohort as old_cohort
from shared.api.v1beta1 import local_queue as old_local_queue
from shared.api.v1beta1 import multikueue as old_multikueue
from shared.api.v1beta1 import topology as old_topology
from shared.api.v1beta1 import workload as old_workload
from shared.api.workload import Workload
from shared.api.workload_priority_class import WorkloadPriorityClass
from shared.api.workload_rules import V1BETA1_WORKLOAD_RULES, WORKLOAD_RULES

DEPRECATED = f"{names.V1BETA1_GROUP_VERSION} is deprecated; use {names.GROUP_VERSION}"

_QUEUE_COLUMNS = (
    PrinterColumn("Strategy", ".spec.queueingStrategy", priority=1),
    PrinterColumn("Pending Workloads", ".status.pendingWorkloads", "integer"),
    PrinterColumn("Admitted Workloads", ".status.admittedWorkloads", "integer", priority=1),
)
_WORKLOAD_COLUMNS = (
    PrinterColumn("Queue", ".spec.queueName"),
    PrinterColumn("Reserved in", ".status.admission.clusterQueue"),
    PrinterColumn("Admitted", ".status.conditions[?(@.type=='Admitted')].status"),
    PrinterColumn("Finished", ".status.conditions[?(@.type=='Finished')].status"),
    PrinterColumn("Age", ".metadata.creationTimestamp", "date"),
)


def _v1beta1(
    struct: type[msgspec.Struct], columns: tuple[PrinterColumn, ...] = (), rules: tuple[Rule, ...] = ()
) -> CrdVersion:
    return CrdVersion(
        struct=struct, name=names.V1BETA1, columns=columns, rules=rules, storage=False, deprecation_warning=DEPRECATED
    )


def _both(
    struct: type[msgspec.Struct],
    old: type[msgspec.Struct] | None = None,
    columns: tuple[PrinterColumn, ...] = (),
) -> tuple[CrdVersion, ...]:
    return _v1beta1(old if old is not None else struct, columns), CrdVersion(struct=struct, columns=columns)


KINDS: tuple[Crd, ...] = (
    Crd(
        kind=names.ADMISSION_CHECK,
        plural="admissionchecks",
        short_names=("ac",),
        status=True,
        converted=True,
        versions=_both(AdmissionCheck, old_check.AdmissionCheck),
    ),
    Crd(
        kind=names.CLUSTER_QUEUE,
        plural="clusterqueues",
        short_names=("cq",),
        status=True,
        converted=True,
        versions=(
            _v1beta1(old_cluster_queue.ClusterQueue, (PrinterColumn("Cohort", ".spec.cohort"), *_QUEUE_COLUMNS)),
            CrdVersion(struct=ClusterQueue, columns=(PrinterColumn("Cohort", ".spec.cohortName"), *_QUEUE_COLUMNS)),
        ),
    ),
    Crd(
        kind=names.COHORT,
        plural="cohorts",
        short_names=("co",),
        status=True,
        converted=True,
        versions=_both(Cohort, old_cohort.Cohort),
    ),
    Crd(
        kind=names.LOCAL_QUEUE,
        plural="localqueues",
        namespaced=True,
        short_names=("queue", "queues", "lq"),
        status=True,
        converted=True,
        versions=_both(
            LocalQueue,
            old_local_queue.LocalQueue,
            (
                PrinterColumn("ClusterQueue", ".spec.clusterQueue"),
                PrinterColumn("Pending Workloads", ".status.pendingWorkloads", "integer"),
                PrinterColumn("Admitted Workloads", ".status.admittedWorkloads", "integer"),
            ),
        ),
    ),
    Crd(
        kind=names.MULTIKUEUE_CLUSTER,
        plural="multikueueclusters",
        short_names=("mkc",),
        status=True,
        converted=True,
        versions=_both(
            MultiKueueCluster,
            old_multikueue.MultiKueueCluster,
            (
                PrinterColumn("Connected", ".status.conditions[?(@.type=='Active')].status"),
                PrinterColumn("Age", ".metadata.creationTimestamp", "date"),
            ),
        ),
    ),
    Crd(
        kind=names.MULTIKUEUE_CONFIG,
        plural="multikueueconfigs",
        short_names=("mkconf",),
        converted=True,
        versions=(
            # Kueue never marked this one as deprecated.
            CrdVersion(struct=old_multikueue.MultiKueueConfig, name=names.V1BETA1, storage=False),
            CrdVersion(struct=MultiKueueConfig),
        ),
    ),
    Crd(
        kind=names.PROVISIONING_REQUEST_CONFIG,
        plural="provisioningrequestconfigs",
        short_names=("prc",),
        versions=_both(ProvisioningRequestConfig),
    ),
    Crd(
        kind=names.RESOURCE_FLAVOR,
        plural="resourceflavors",
        short_names=("flavor", "flavors", "rf"),
        versions=_both(ResourceFlavor),
    ),
    Crd(
        kind=names.TOPOLOGY,
        plural="topologies",
        short_names=("topo",),
        versions=_both(Topology, old_topology.Topology),
    ),
    Crd(
        kind=names.WORKLOAD,
        plural="workloads",
        namespaced=True,
        short_names=("kwl", "kueueworkload", "kueueworkloads"),
        status=True,
        converted=True,
        versions=(
            _v1beta1(old_workload.Workload, _WORKLOAD_COLUMNS, V1BETA1_WORKLOAD_RULES),
            CrdVersion(
                struct=Workload,
                columns=_WORKLOAD_COLUMNS,
                rules=WORKLOAD_RULES,
                selectable_fields=(".status.admission.clusterQueue",),
            ),
        ),
    ),
    Crd(
        kind=names.WORKLOAD_PRIORITY_CLASS,
        plural="workloadpriorityclasses",
        short_names=("wpc",),
        versions=_both(WorkloadPriorityClass, columns=(PrinterColumn("Value", ".value", "integer"),)),
    ),
)
CONVERTED = tuple(crd.name for crd in KINDS if crd.converted)
"""Names of the definitions that need our webhook to serve both versions."""
