"""Status of fair sharing in v1beta1: one type for all queues, so that those without admission fair sharing have its field too."""

from typing import Annotated

from shared.api.local_queue import AdmissionFairSharingStatus
from shared.api.quota_groups import FairSharingStatus as FairSharingStatusV1beta2
from shared.api.schema_hints import schema


class FairSharingStatus(FairSharingStatusV1beta2, frozen=True, kw_only=True):
    """How it stands against its neighbours."""

    admission_fair_sharing_status: Annotated[AdmissionFairSharingStatus | None, schema("Not filled for this kind.")] = (
        None
    )
