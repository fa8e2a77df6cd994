"""The table of kinds whose CustomResourceDefinitions are generated: names, scope, columns, versions.

Another version of a kind is another entry of its `versions`.
"""

from shared.api import names
from shared.api.admission_check import AdmissionCheck
from shared.api.cluster_queue import ClusterQueue
from shared.api.cohort import Cohort
from shared.api.crd import Crd, CrdVersion, PrinterColumn
from shared.api.local_queue import LocalQueue
from shared.api.multikueue import MultiKueueCluster, MultiKueueConfig
from shared.api.provisioning_request_config import ProvisioningRequestConfig
from shared.api.resource_flavor import ResourceFlavor
from shared.api.topology import Topology
from shared.api.workload import Workload
from shared.api.workload_priority_class import WorkloadPriorityClass
from shared.api.workload_rules import WORKLOAD_RULES

KINDS: tuple[Crd, ...] = (
    Crd(
        kind=names.ADMISSION_CHECK,
        plural="admissionchecks",
        short_names=("ac",),
        status=True,
        versions=(CrdVersion(struct=AdmissionCheck),),
    ),
    Crd(
        kind=names.CLUSTER_QUEUE,
        plural="clusterqueues",
        short_names=("cq",),
        status=True,
        versions=(
            CrdVersion(
                struct=ClusterQueue,
                columns=(
                    PrinterColumn("Cohort", ".spec.cohortName"),
                    PrinterColumn("Strategy", ".spec.queueingStrategy", priority=1),
                    PrinterColumn("Pending Workloads", ".status.pendingWorkloads", "integer"),
                    PrinterColumn("Admitted Workloads", ".status.admittedWorkloads", "integer", priority=1),
                ),
            ),
        ),
    ),
    Crd(
        kind=names.COHORT,
        plural="cohorts",
        short_names=("co",),
        status=True,
        versions=(CrdVersion(struct=Cohort),),
    ),
    Crd(
        kind=names.LOCAL_QUEUE,
        plural="localqueues",
        namespaced=True,
        short_names=("queue", "queues", "lq"),
        status=True,
        versions=(
            CrdVersion(
                struct=LocalQueue,
                columns=(
                    PrinterColumn("ClusterQueue", ".spec.clusterQueue"),
                    PrinterColumn("Pending Workloads", ".status.pendingWorkloads", "integer"),
                    PrinterColumn("Admitted Workloads", ".status.admittedWorkloads", "integer"),
                ),
            ),
        ),
    ),
    Crd(
        kind=names.MULTIKUEUE_CLUSTER,
        plural="multikueueclusters",
        short_names=("mkc",),
        status=True,
        versions=(
            CrdVersion(
                struct=MultiKueueCluster,
                columns=(
                    PrinterColumn("Connected", ".status.conditions[?(@.type=='Active')].status"),
                    PrinterColumn("Age", ".metadata.creationTimestamp", "date"),
                ),
            ),
        ),
    ),
    Crd(
        kind=names.MULTIKUEUE_CONFIG,
        plural="multikueueconfigs",
        short_names=("mkconf",),
        versions=(CrdVersion(struct=MultiKueueConfig),),
    ),
    Crd(
        kind=names.PROVISIONING_REQUEST_CONFIG,
        plural="provisioningrequestconfigs",
        short_names=("prc",),
        versions=(CrdVersion(struct=ProvisioningRequestConfig),),
    ),
    Crd(
        kind=names.RESOURCE_FLAVOR,
        plural="resourceflavors",
        short_names=("flavor", "flavors", "rf"),
        versions=(CrdVersion(struct=ResourceFlavor),),
    ),
    Crd(
        kind=names.TOPOLOGY,
        plural="topologies",
        short_names=("topo",),
        versions=(CrdVersion(struct=Topology),),
    ),
    Crd(
        kind=names.WORKLOAD,
        plural="workloads",
        namespaced=True,
        short_names=("kwl", "kueueworkload", "kueueworkloads"),
        status=True,
        versions=(
            CrdVersion(
                struct=Workload,
                columns=(
                    PrinterColumn("Queue", ".spec.queueName"),
                    PrinterColumn("Reserved in", ".status.admission.clusterQueue"),
                    PrinterColumn("Admitted", ".status.conditions[?(@.type=='Admitted')].status"),
                    PrinterColumn("Finished", ".status.conditions[?(@.type=='Finished')].status"),
                    PrinterColumn("Age", ".metadata.creationTimestamp", "date"),
                ),
                rules=WORKLOAD_RULES,
                selectable_fields=(".status.admission.clusterQueue",),
            ),
        ),
    ),
    Crd(
        kind=names.WORKLOAD_PRIORITY_CLASS,
        plural="workloadpriorityclasses",
        short_names=("wpc",),
        versions=(
            CrdVersion(
                struct=WorkloadPriorityClass,
                columns=(PrinterColumn("Value", ".value", "integer"),),
            ),
        ),
    ),
)
