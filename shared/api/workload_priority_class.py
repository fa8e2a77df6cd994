"""WorkloadPriorityClass: a named priority for workloads that does not touch their pods."""

from typing import Annotated

from shared.api import names
from shared.api.meta import ObjectMeta
from shared.api.schema_hints import ApiStruct, Int32, always, schema


class WorkloadPriorityClass(ApiStruct, frozen=True, kw_only=True):
    """A priority by name; value and description stand at the top, not under spec."""

    api_version: str = always(names.GROUP_VERSION)
    kind: str = always(names.WORKLOAD_PRIORITY_CLASS)
    metadata: ObjectMeta = ObjectMeta()
    value: Annotated[Int32, schema("The priority; the higher goes first.")]
    description: Annotated[str, schema("When to use this class.", maxLength=2048)] = ""
