"""MultiKueueCluster and MultiKueueConfig: the clusters that workloads can be sent to, and which of them a check may choose from."""

from typing import Annotated, Literal

from shared.api import names
from shared.api.conditions import ConditionList
from shared.api.meta import ObjectMeta
from shared.api.schema_hints import ApiStruct, always, atomic_list, rules, schema

LocationType = Literal["Secret", "Path"]
QuotaManagement = Literal["Manual", "Automated"]


class KubeConfig(ApiStruct, frozen=True, kw_only=True):
    """Credentials as a kubeconfig."""

    location: Annotated[str, schema("Name of the Secret, or path of the file.", minLength=1, maxLength=256)]
    location_type: Annotated[LocationType, schema("What location means.", default="Secret")] = "Secret"


class ClusterProfileReference(ApiStruct, frozen=True, kw_only=True):
    """A ClusterProfile that says how to reach the cluster."""

    name: Annotated[str, schema("Its name.", minLength=1, maxLength=256)]


class ClusterSource(ApiStruct, frozen=True, kw_only=True):
    """How the cluster is reached; exactly one of these."""

    kube_config: KubeConfig | None = None
    cluster_profile_ref: ClusterProfileReference | None = None


class MultiKueueClusterSpec(ApiStruct, frozen=True, kw_only=True):
    """Where the cluster is."""

    cluster_source: Annotated[
        ClusterSource,
        rules(
            ("has(self.kubeConfig) != has(self.clusterProfileRef)", "exactly one of kubeConfig and clusterProfileRef")
        ),
    ]


class MultiKueueClusterStatus(ApiStruct, frozen=True, kw_only=True):
    """Whether it can be reached."""

    conditions: ConditionList = ()


class MultiKueueCluster(ApiStruct, frozen=True, kw_only=True):
    """A cluster that workloads can be sent to."""

    api_version: str = always(names.GROUP_VERSION)
    kind: str = always(names.MULTIKUEUE_CLUSTER)
    metadata: ObjectMeta = ObjectMeta()
    spec: MultiKueueClusterSpec
    status: MultiKueueClusterStatus = MultiKueueClusterStatus()


class MultiKueueConfigSpec(ApiStruct, frozen=True, kw_only=True):
    """Clusters of one check."""

    clusters: Annotated[
        tuple[Annotated[str, schema(maxLength=256)], ...],
        atomic_list("MultiKueueClusters, in the order in which they are tried.", minItems=1, maxItems=20),
        rules(("self.all(one, self.exists_one(other, other == one))", "clusters must be unique")),
    ]
    quota_management: Annotated[
        QuotaManagement | None,
        schema("Who sets the quota of the ClusterQueue: its owner, or the sum of the clusters. Unset means Manual."),
    ] = None


class MultiKueueConfig(ApiStruct, frozen=True, kw_only=True):
    """Settings for checks of MultiKueue."""

    api_version: str = always(names.GROUP_VERSION)
    kind: str = always(names.MULTIKUEUE_CONFIG)
    metadata: ObjectMeta = ObjectMeta()
    spec: MultiKueueConfigSpec
