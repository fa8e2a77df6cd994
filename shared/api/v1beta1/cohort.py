"""Cohort of v1beta1: its status can say more about fair sharing than is ever filled."""

from typing import Annotated

from shared.api import names
from shared.api.cohort import CohortSpec
from shared.api.meta import ObjectMeta
from shared.api.schema_hints import ApiStruct, always, schema
from shared.api.v1beta1.fair_sharing import FairSharingStatus


class CohortStatus(ApiStruct, frozen=True, kw_only=True):
    """How the cohort stands against its neighbours."""

    fair_sharing: Annotated[FairSharingStatus | None, schema("Present with fair sharing only.")] = None


class Cohort(ApiStruct, frozen=True, kw_only=True):
    """A group of ClusterQueues and cohorts that lend to each other."""

    api_version: str = always(names.V1BETA1_GROUP_VERSION)
    kind: str = always(names.COHORT)
    metadata: ObjectMeta = ObjectMeta()
    spec: CohortSpec = CohortSpec()
    status: CohortStatus = CohortStatus()
