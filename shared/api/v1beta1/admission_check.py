"""AdmissionCheck of v1beta1: has a delay that nobody looks at any more."""

from typing import Annotated

from shared.api import names
from shared.api.admission_check import AdmissionCheckSpec as AdmissionCheckSpecV1beta2
from shared.api.admission_check import AdmissionCheckStatus
from shared.api.meta import ObjectMeta
from shared.api.schema_hints import ApiStruct, always, schema

RETRY_DELAY_MINUTES = 15


class AdmissionCheckSpec(AdmissionCheckSpecV1beta2, frozen=True, kw_only=True):
    """Who answers the check."""

    retry_delay_minutes: Annotated[
        int, schema("Without effect; checks say themselves when to retry.", format="int64", default=15)
    ] = RETRY_DELAY_MINUTES


class AdmissionCheck(ApiStruct, frozen=True, kw_only=True):
    """Something besides quota that has to be Ready before a workload is admitted."""

    api_version: str = always(names.V1BETA1_GROUP_VERSION)
    kind: str = always(names.ADMISSION_CHECK)
    metadata: ObjectMeta = ObjectMeta()
    spec: AdmissionCheckSpec
    status: AdmissionCheckStatus = AdmissionCheckStatus()
