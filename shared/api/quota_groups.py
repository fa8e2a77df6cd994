"""Resource groups with their quotas and fair-sharing weights: the types ClusterQueue and Cohort share."""

from typing import Annotated

from shared.api.schema_hints import (
    ApiStruct,
    FlavorName,
    RawQuantity,
    ResourceName,
    atomic_list,
    list_map,
    required,
    rules,
    schema,
)


class ResourceQuota(ApiStruct, frozen=True, kw_only=True):
    """Quota of one resource in one flavor."""

    name: Annotated[ResourceName, schema("The resource, e.g. cpu.")]
    nominal_quota: Annotated[RawQuantity, schema("What this queue owns.")]
    borrowing_limit: Annotated[
        RawQuantity | None, schema("How much it may use beyond nominalQuota; unset means no limit.")
    ] = None
    lending_limit: Annotated[
        RawQuantity | None, schema("How much of nominalQuota others may use; unset means all of it.")
    ] = None


class FlavorQuotas(ApiStruct, frozen=True, kw_only=True):
    """The quotas of one flavor, one per covered resource and in their order."""

    name: Annotated[FlavorName, schema("Name of the ResourceFlavor.")]
    resources: Annotated[
        tuple[ResourceQuota, ...], list_map("Quotas per resource.", "name", minItems=1, maxItems=64)
    ] = required(())


class ResourceGroup(ApiStruct, frozen=True, kw_only=True):
    """Resources that are always taken from one flavor together, and the flavors to try in order."""

    covered_resources: Annotated[
        tuple[ResourceName, ...], atomic_list("Resources of this group.", minItems=1, maxItems=64)
    ] = required(())
    flavors: Annotated[
        tuple[FlavorQuotas, ...], list_map("Flavors in the order of preference.", "name", minItems=1, maxItems=64)
    ] = required(())


ResourceGroups = Annotated[
    tuple[
        Annotated[
            ResourceGroup,
            rules(
                (
                    "self.flavors.all(f, size(f.resources) == size(self.coveredResources))",
                    "every flavor must have as many resources as coveredResources",
                    ".flavors",
                )
            ),
        ],
        ...,
    ],
    atomic_list("Groups of resources with their flavors and quotas.", maxItems=16),
]


class FairSharing(ApiStruct, frozen=True, kw_only=True):
    """How this queue or cohort counts against its neighbours."""

    weight: Annotated[
        RawQuantity, schema("Share relative to the neighbours; 0 means nothing beyond what is lent.", default="1")
    ] = "1"


class FairSharingStatus(ApiStruct, frozen=True, kw_only=True):
    weighted_share: Annotated[
        int,
        schema(
            "Usage above nominal in per mille of what could be lent, divided by the weight; highest int64: weight 0.",
            format="int64",
        ),
    ]
