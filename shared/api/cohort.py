"""Cohort: a node of the tree in which ClusterQueues share unused quota."""

from typing import Annotated

from shared.api import names
from shared.api.meta import ObjectMeta
from shared.api.quota_groups import FairSharing, FairSharingStatus, ResourceGroups
from shared.api.schema_hints import ApiStruct, Name253, always, schema


class CohortSpec(ApiStruct, frozen=True, kw_only=True):
    """Its place in the tree and the quota it adds for everything below."""

    parent_name: Annotated[Name253, schema("Cohort above; need not exist as an object. Empty makes a root.")] = ""
    resource_groups: ResourceGroups = ()
    fair_sharing: FairSharing | None = None


class CohortStatus(ApiStruct, frozen=True, kw_only=True):
    """How the cohort stands against its neighbours."""

    fair_sharing: Annotated[FairSharingStatus | None, schema("Present with fair sharing only.")] = None


class Cohort(ApiStruct, frozen=True, kw_only=True):
    """A group of ClusterQueues and cohorts that lend to each other."""

    api_version: str = always(names.GROUP_VERSION)
    kind: str = always(names.COHORT)
    metadata: ObjectMeta = ObjectMeta()
    spec: CohortSpec = CohortSpec()
    status: CohortStatus = CohortStatus()
