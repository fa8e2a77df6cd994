"""The table of API resources that the product calls: group, version, plural, kind, scope. Nothing else spells a URL path."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

import msgspec

from shared.api import names


class Resource(msgspec.Struct, frozen=True, gc=False):
    """A resource of the API, e.g. jobs of batch/v1."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """`batch/v1`, or `v1` for the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """URL path of the collection or of one object. An empty namespace means all (or a cluster-scoped kind)."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        scope = f"/namespaces/{quote(namespace, safe='')}" if self.namespaced and namespace else ""
        tail = f"/{quote(name, safe='')}" if name else ""
        return f"{root}{scope}/{self.plural}{tail}" + (f"/{subresource}" if subresource else "")


def _queueing(plural: str, kind: str, namespaced: bool = False) -> Resource:
    return Resource(names.GROUP, names.V1BETA2, plural, kind, namespaced)


WORKLOADS: Final = _queueing("workloads", names.WORKLOAD, namespaced=True)
LOCAL_QUEUES: Final = _queueing("localqueues", names.LOCAL_QUEUE, namespaced=True)
CLUSTER_QUEUES: Final = _queueing("clusterqueues", names.CLUSTER_QUEUE)
COHORTS: Final = _queueing("cohorts", names.COHORT)
RESOURCE_FLAVORS: Final = _queueing("resourceflavors", names.RESOURCE_FLAVOR)
ADMISSION_CHECKS: Final = _queueing("admissionchecks", names.ADMISSION_CHECK)
WORKLOAD_PRIORITY_CLASSES: Final = _queueing("workloadpriorityclasses", names.WORKLOAD_PRIORITY_CLASS)
TOPOLOGIES: Final = _queueing("topologies", names.TOPOLOGY)
PROVISIONING_REQUEST_CONFIGS: Final = _queueing("provisioningrequestconfigs", names.PROVISIONING_REQUEST_CONFIG)
MULTIKUEUE_CLUSTERS: Final = _queueing("multikueueclusters", names.MULTIKUEUE_CLUSTER)
MULTIKUEUE_CONFIGS: Final = _queueing("multikueueconfigs", names.MULTIKUEUE_CONFIG)

JOBS: Final = Resource("batch", "v1", "jobs", "Job")
NAMESPACES: Final = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
NODES: Final = Resource("", "v1", "nodes", "Node", namespaced=False)
PODS: Final = Resource("", "v1", "pods", "Pod")
DEPLOYMENTS: Final = Resource("apps", "v1", "deployments", "Deployment")
STATEFUL_SETS: Final = Resource("apps", "v1", "statefulsets", "StatefulSet")
POD_TEMPLATES: Final = Resource("", "v1", "podtemplates", "PodTemplate")
LIMIT_RANGES: Final = Resource("", "v1", "limitranges", "LimitRange")
RUNTIME_CLASSES: Final = Resource("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", namespaced=False)
DEVICE_CLASSES: Final = Resource("resource.k8s.io", "v1", "deviceclasses", "DeviceClass", namespaced=False)
CLAIM_TEMPLATES: Final = Resource("resource.k8s.io", "v1", "resourceclaimtemplates", "ResourceClaimTemplate")
SECRETS: Final = Resource("", "v1", "secrets", "Secret")
PRIORITY_CLASSES: Final = Resource(
    names.SCHEDULING_GROUP, "v1", "priorityclasses", names.PRIORITY_CLASS, namespaced=False
)
PROVISIONING_REQUESTS: Final = Resource("autoscaling.x-k8s.io", "v1", "provisioningrequests", "ProvisioningRequest")
EVENTS: Final = Resource("events.k8s.io", "v1", "events", "Event")
CORE_EVENTS: Final = Resource("", "v1", "events", "Event")
LEASES: Final = Resource("coordination.k8s.io", "v1", "leases", "Lease")
VALIDATING_WEBHOOKS: Final = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "validatingwebhookconfigurations",
    "ValidatingWebhookConfiguration",
    namespaced=False,
)
MUTATING_WEBHOOKS: Final = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "mutatingwebhookconfigurations",
    "MutatingWebhookConfiguration",
    namespaced=False,
)
SELF_SUBJECT_REVIEWS: Final = Resource(
    "authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", namespaced=False
)
TOKEN_REVIEWS: Final = Resource("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", namespaced=False)
SUBJECT_ACCESS_REVIEWS: Final = Resource(
    "authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", namespaced=False
)
SERVICE_ACCOUNTS: Final = Resource("", "v1", "serviceaccounts", "ServiceAccount")
CLUSTER_ROLES: Final = Resource("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False)
CLUSTER_ROLE_BINDINGS: Final = Resource(
    "rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False
)
ROLES: Final = Resource("rbac.authorization.k8s.io", "v1", "roles", "Role")
ROLE_BINDINGS: Final = Resource("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding")
CRDS: Final = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False
)
