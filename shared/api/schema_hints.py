"""What a Struct says about its CRD schema beyond its Python types: limits, formats, list types, rules, defaults.

Hints only feed the generated CRDs. They are deliberately not checked again when an object is decoded: the API server
already enforced them, and a decoder that re-checks every pattern costs more than the decoding.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, TypeVar, cast

import msgspec

T = TypeVar("T")

Json = None | bool | int | str | Sequence["Json"] | Mapping[str, "Json"]

DNS_LABEL = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
DNS_SUBDOMAIN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
LABEL_KEY = (
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
    r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$"
)
QUANTITY = r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?$"


class ApiStruct(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel", gc=False):
    """Base of everything on the Kubernetes wire: camelCase, unknown fields ignored, absent means default.

    Fields equal to their default are left out when encoded; `always` marks those that must be there even so.
    Objects are trees, so the garbage collector need not look at them.
    """


def always(value: T) -> T:
    """A default that is written even when the field has it (counts that the API shows as 0, kind, apiVersion)."""
    default: T = msgspec.field(default_factory=lambda: value)
    return default


class RequiredOnWire:
    """Default factory of a field that the API requires but that is read leniently."""

    def __init__(self, value: object) -> None:
        self.value = value

    def __call__(self) -> object:
        return self.value


def required(absent: T) -> T:
    """The CRD requires the field and it is always written; an object that lacks it is read as having `absent`.

    For what only a refused or a hand-made object lacks, where an error would hide the rest of the object.
    """
    default: T = msgspec.field(default_factory=cast(Callable[[], T], RequiredOnWire(absent)))
    return default


def schema(description: str = "", **keywords: Json) -> msgspec.Meta:
    """Raw schema keywords; `x_kubernetes_y` stands for `x-kubernetes-y`, camelCase names are as they are."""
    extra: dict[str, Json] = {_keyword(name): value for name, value in keywords.items()}
    if description:
        extra["description"] = description
    return msgspec.Meta(extra_json_schema=extra)


def list_map(description: str, *keys: str, **keywords: Json) -> msgspec.Meta:
    """A list whose entries are identified, and merged, by `keys`."""
    return schema(description, x_kubernetes_list_type="map", x_kubernetes_list_map_keys=list(keys), **keywords)


def atomic_list(description: str, **keywords: Json) -> msgspec.Meta:
    return schema(description, x_kubernetes_list_type="atomic", **keywords)


def set_list(description: str, **keywords: Json) -> msgspec.Meta:
    return schema(description, x_kubernetes_list_type="set", **keywords)


Rule = tuple[str, str] | tuple[str, str, str]
"""A CEL rule, what to say when it is broken, and the field to blame (`.spec.queueName`), unless it is where the rule stands."""


def rules(*several: Rule) -> msgspec.Meta:
    """CEL rules."""
    return schema(x_kubernetes_validations=validations(several))


def validations(several: Sequence[Rule]) -> list[Json]:
    """CEL rules as the API server wants them."""
    keys = ("rule", "message", "fieldPath")
    return [dict(zip(keys, one, strict=False)) for one in several]


def _keyword(name: str) -> str:
    return name.replace("_", "-") if name.startswith("x_kubernetes_") else name


Int32 = Annotated[int, schema(format="int32")]
Int64 = Annotated[int, schema(format="int64")]
Count = Annotated[int, schema(format="int32", minimum=0)]
Positive = Annotated[int, schema(format="int32", minimum=1)]
Time = datetime
"""RFC 3339 on the wire, timezone-aware in memory; the API's times have a precision of one second."""
LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)
"""A required time that is missing."""

RawQuantity = Annotated[
    int | float | str,
    schema(
        anyOf=[{"type": "integer"}, {"type": "string"}],
        pattern=QUANTITY,
        x_kubernetes_int_or_string=True,
    ),
]
"""A quantity as written (`9`, `"36Gi"`); shared.api.quantity turns it into integers."""

Name63 = Annotated[str, schema(maxLength=63, pattern=DNS_LABEL)]
Name253 = Annotated[str, schema(maxLength=253, pattern=DNS_SUBDOMAIN)]
FlavorName = Name253
ResourceName = str
ResourceList = dict[ResourceName, RawQuantity]
