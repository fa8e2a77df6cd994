"""AdmissionCheck: a second condition, answered by some controller, for workloads that have quota."""

from typing import Annotated

from shared.api import names
from shared.api.conditions import ConditionList
from shared.api.meta import ObjectMeta
from shared.api.schema_hints import ApiStruct, Name63, Name253, always, rules, schema


class AdmissionCheckParameters(ApiStruct, frozen=True, kw_only=True):
    """The object with the controller's settings."""

    api_group: Annotated[Name253, schema("API group of the object.")]
    kind: Annotated[str, schema("Its kind.", minLength=1, maxLength=63, pattern=r"^(?i)[a-z]([-a-z0-9]*[a-z0-9])?$")]
    name: Annotated[Name63, schema("Its name.")]


class AdmissionCheckSpec(ApiStruct, frozen=True, kw_only=True):
    """Who answers the check."""

    controller_name: Annotated[
        str,
        schema("The controller that sets the state of this check on workloads.", minLength=1, maxLength=253),
        rules(("self == oldSelf", "controllerName is immutable")),
    ]
    parameters: AdmissionCheckParameters | None = None


class AdmissionCheckStatus(ApiStruct, frozen=True, kw_only=True):
    """Written by the controller that answers the check."""

    conditions: ConditionList = ()


class AdmissionCheck(ApiStruct, frozen=True, kw_only=True):
    """Something besides quota that has to be Ready before a workload is admitted."""

    api_version: str = always(names.GROUP_VERSION)
    kind: str = always(names.ADMISSION_CHECK)
    metadata: ObjectMeta = ObjectMeta()
    spec: AdmissionCheckSpec
    status: AdmissionCheckStatus = AdmissionCheckStatus()
