"""MultiKueueCluster and MultiKueueConfig of v1beta1: the ways to reach a cluster stand at the top, and clusters have no order."""

from typing import Annotated

from shared.api import names
from shared.api.meta import ObjectMeta
from shared.api.multikueue import ClusterProfileReference, LocationType, MultiKueueClusterStatus
from shared.api.schema_hints import ApiStruct, always, schema, set_list


class KubeConfig(ApiStruct, frozen=True, kw_only=True):
    """Credentials as a kubeconfig; empty where a ClusterProfile is used."""

    location: Annotated[str, schema("Name of the Secret, or path of the file.", maxLength=256)]
    location_type: Annotated[LocationType, schema("What location means.", default="Secret")] = "Secret"


class MultiKueueClusterSpec(ApiStruct, frozen=True, kw_only=True):
    """Where the cluster is."""

    kube_config: KubeConfig
    cluster_profile_ref: ClusterProfileReference | None = None


class MultiKueueCluster(ApiStruct, frozen=True, kw_only=True):
    """A cluster that workloads can be sent to."""

    api_version: str = always(names.V1BETA1_GROUP_VERSION)
    kind: str = always(names.MULTIKUEUE_CLUSTER)
    metadata: ObjectMeta = ObjectMeta()
    spec: MultiKueueClusterSpec
    status: MultiKueueClusterStatus = MultiKueueClusterStatus()


class MultiKueueConfigSpec(ApiStruct, frozen=True, kw_only=True):
    """Clusters of one check."""

    clusters: Annotated[
        tuple[Annotated[str, schema(maxLength=256)], ...], set_list("MultiKueueClusters.", minItems=1, maxItems=20)
    ]


class MultiKueueConfig(ApiStruct, frozen=True, kw_only=True):
    """Settings for checks of MultiKueue."""

    api_version: str = always(names.V1BETA1_GROUP_VERSION)
    kind: str = always(names.MULTIKUEUE_CONFIG)
    metadata: ObjectMeta = ObjectMeta()
    spec: MultiKueueConfigSpec
