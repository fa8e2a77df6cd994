"""LocalQueue: the door of a namespace to one ClusterQueue."""

from typing import Annotated

import msgspec

from shared.api import names
from shared.api.cluster_queue import StopPolicyField
from shared.api.conditions import ConditionList
from shared.api.meta import ObjectMeta
from shared.api.quota_groups import FairSharing
from shared.api.schema_hints import (
    ApiStruct,
    FlavorName,
    Int32,
    Name253,
    RawQuantity,
    ResourceList,
    ResourceName,
    Time,
    always,
    list_map,
    rules,
    schema,
)


class LocalQueueSpec(ApiStruct, frozen=True, kw_only=True):
    """Where the workloads of this queue go."""

    cluster_queue: Annotated[
        Name253,
        schema("The ClusterQueue that admits them."),
        rules(("self == oldSelf", "clusterQueue is immutable")),
    ] = ""
    stop_policy: StopPolicyField = "None"
    fair_sharing: Annotated[FairSharing | None, schema("Weight among the queues of the same ClusterQueue.")] = None


class LocalQueueResourceUsage(ApiStruct, frozen=True, kw_only=True):
    """Usage of one resource in one flavor."""

    name: Annotated[ResourceName, schema("The resource.")]
    total: Annotated[RawQuantity, schema("What is used.")] = always("0")


class LocalQueueFlavorUsage(ApiStruct, frozen=True, kw_only=True):
    """Usage of one flavor."""

    name: Annotated[FlavorName, schema("Name of the ResourceFlavor.")]
    resources: Annotated[tuple[LocalQueueResourceUsage, ...], list_map("Usage per resource.", "name", maxItems=64)]


class AdmissionFairSharingStatus(ApiStruct, frozen=True, kw_only=True):
    """Usage of the past, decayed over time."""

    consumed_resources: Annotated[ResourceList, schema("Decayed usage per resource.")] = msgspec.field(
        default_factory=dict
    )
    last_update: Annotated[Time | None, schema("When it was last computed.")] = None


class LocalQueueFairSharingStatus(ApiStruct, frozen=True, kw_only=True):
    weighted_share: Annotated[int, schema("Always 0 for a LocalQueue.", format="int64")]
    admission_fair_sharing_status: AdmissionFairSharingStatus | None = None


UsageByFlavor = Annotated[
    tuple[LocalQueueFlavorUsage, ...], list_map("Quota held by admitted workloads.", "name", maxItems=64)
]


class LocalQueueStatusBase(ApiStruct, frozen=True, kw_only=True):
    """What both versions say alike."""

    conditions: ConditionList = ()
    pending_workloads: Annotated[Int32, schema("Workloads waiting.")] = always(0)
    reserving_workloads: Annotated[Int32, schema("Workloads with quota reserved.")] = always(0)
    admitted_workloads: Annotated[Int32, schema("Workloads admitted and not finished.")] = always(0)
    flavors_reservation: Annotated[
        tuple[LocalQueueFlavorUsage, ...], list_map("Quota held by workloads with a reservation.", "name", maxItems=64)
    ] = ()
    fair_sharing: Annotated[LocalQueueFairSharingStatus | None, schema("Present with fair sharing only.")] = None


class LocalQueueStatus(LocalQueueStatusBase, frozen=True, kw_only=True):
    """What the queue holds at present."""

    flavors_usage: UsageByFlavor = ()


class LocalQueue(ApiStruct, frozen=True, kw_only=True):
    """The queue that the jobs of one namespace name."""

    api_version: str = always(names.GROUP_VERSION)
    kind: str = always(names.LOCAL_QUEUE)
    metadata: ObjectMeta = ObjectMeta()
    spec: LocalQueueSpec = LocalQueueSpec()
    status: LocalQueueStatus = LocalQueueStatus()
