"""ProvisioningRequestConfig: settings of checks that ask the cluster-autoscaler for nodes first."""

from typing import Annotated, Literal

import msgspec

from shared.api import names
from shared.api.meta import ObjectMeta
from shared.api.schema_hints import (
    DNS_SUBDOMAIN,
    LABEL_KEY,
    ApiStruct,
    Int32,
    ResourceName,
    always,
    list_map,
    schema,
    set_list,
)

PodSetMergePolicy = Literal["IdenticalPodTemplates", "IdenticalWorkloadSchedulingRequirements"]


class RetryStrategy(ApiStruct, frozen=True, kw_only=True):
    """How often and how fast a failed request is tried again."""

    backoff_limit_count: Annotated[Int32, schema("Retries before the check is rejected; 0: none.", default=3)] = 3
    backoff_base_seconds: Annotated[Int32, schema("Wait before the first retry; doubles each time.", default=60)] = 60
    backoff_max_seconds: Annotated[Int32, schema("Longest wait.", default=1800)] = 1800


class NodeSelectorUpdate(ApiStruct, frozen=True, kw_only=True):
    """One node selector taken from the provisioning result."""

    key: Annotated[str, schema("Node label to select by.", minLength=1, maxLength=317, pattern=LABEL_KEY)]
    value_from_provisioning_class_detail: Annotated[
        str, schema("Detail of the request's status that holds the value.", minLength=1, maxLength=32768)
    ]


class ProvisioningPodSetUpdates(ApiStruct, frozen=True, kw_only=True):
    """What is written into the pods once nodes are provisioned."""

    node_selector: Annotated[tuple[NodeSelectorUpdate, ...], list_map("Node selectors to add.", "key", maxItems=8)] = ()


class ProvisioningRequestConfigSpec(ApiStruct, frozen=True, kw_only=True):
    """What is asked for, and for which resources."""

    provisioning_class_name: Annotated[
        str, schema("Class of the requests.", minLength=1, maxLength=253, pattern=DNS_SUBDOMAIN)
    ]
    parameters: Annotated[
        dict[str, Annotated[str, schema(maxLength=255)]],
        schema("Parameters handed to the provisioning class.", maxProperties=100),
    ] = msgspec.field(default_factory=dict)
    managed_resources: Annotated[
        tuple[ResourceName, ...],
        set_list("Only pod sets that ask for one of these need a request; empty means all do.", maxItems=100),
    ] = ()
    retry_strategy: Annotated[
        RetryStrategy,
        schema(default={"backoffLimitCount": 3, "backoffBaseSeconds": 60, "backoffMaxSeconds": 1800}),
    ] = RetryStrategy()
    pod_set_updates: ProvisioningPodSetUpdates | None = None
    pod_set_merge_policy: Annotated[
        PodSetMergePolicy | None, schema("Which pod sets may share one template in a request; unset means none.")
    ] = None


class ProvisioningRequestConfig(ApiStruct, frozen=True, kw_only=True):
    """Settings for checks of the provisioning-request controller."""

    api_version: str = always(names.GROUP_VERSION)
    kind: str = always(names.PROVISIONING_REQUEST_CONFIG)
    metadata: ObjectMeta = ObjectMeta()
    spec: ProvisioningRequestConfigSpec
