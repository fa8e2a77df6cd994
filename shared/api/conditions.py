"""The one reader and writer of status conditions (metav1.Condition).

A list of conditions is keyed by type. Writing one replaces or appends it and keeps the others and their order.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Literal

import msgspec

from shared.api.meta import whole_seconds
from shared.api.schema_hints import LONG_AGO, ApiStruct, Time, list_map, required, schema

ConditionStatus = Literal["True", "False", "Unknown"]

MAX_MESSAGE_BYTES = 32768
MAX_NOTE_BYTES = 1024
"""Limit of the note of a Kubernetes Event."""
_CUT = " ..."

_TYPE = (
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
)


class Condition(ApiStruct, frozen=True, kw_only=True):
    """One observed aspect of an object's state, and when it last changed."""

    type: Annotated[str, schema("What is observed.", maxLength=316, pattern=_TYPE)]
    status: Annotated[ConditionStatus, schema("Whether it holds.")]
    observed_generation: Annotated[
        int, schema("Generation of the object this was computed from.", format="int64", minimum=0)
    ] = 0
    last_transition_time: Annotated[Time, schema("When status last changed.")] = required(LONG_AGO)
    reason: Annotated[
        str,
        schema(
            "Why, as one CamelCase word for programs.",
            minLength=1,
            maxLength=1024,
            pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
        ),
    ] = required("")
    message: Annotated[str, schema("Why, for people.", maxLength=MAX_MESSAGE_BYTES)] = required("")


Conditions = tuple[Condition, ...]
ConditionList = Annotated[
    tuple[Condition, ...], list_map("What was last observed about this object.", "type", maxItems=16)
]


def find(conditions: Iterable[Condition], type_: str) -> Condition | None:
    for condition in conditions:
        if condition.type == type_:
            return condition
    return None


def is_true(conditions: Iterable[Condition], type_: str) -> bool:
    condition = find(conditions, type_)
    return condition is not None and condition.status == "True"


def is_false(conditions: Iterable[Condition], type_: str) -> bool:
    """Present and False; an absent condition is neither true nor false."""
    condition = find(conditions, type_)
    return condition is not None and condition.status == "False"


def make(
    type_: str, status: bool, reason: str, message: str, *, now: datetime, observed_generation: int = 0
) -> Condition:
    return Condition(
        type=type_,
        status="True" if status else "False",
        observed_generation=observed_generation,
        last_transition_time=whole_seconds(now),
        reason=reason,
        message=cut(message, MAX_MESSAGE_BYTES),
    )


def set_condition(conditions: Conditions, new: Condition) -> Conditions:
    """The list with `new` in it: reason, message and generation are taken, the time only if the status changed."""
    new = msgspec.structs.replace(new, message=cut(new.message, MAX_MESSAGE_BYTES))
    old = find(conditions, new.type)
    if old is None:
        return (*conditions, new)
    if old.status == new.status:
        new = msgspec.structs.replace(new, last_transition_time=old.last_transition_time)
    return tuple(new if condition.type == new.type else condition for condition in conditions)


def remove(conditions: Conditions, type_: str) -> Conditions:
    return tuple(condition for condition in conditions if condition.type != type_)


def cut(text: str, limit: int) -> str:
    """`text` in at most `limit` bytes of UTF-8; when cut it ends in ` ...` and no character is split."""
    if len(text) * 4 <= limit:
        return text
    encoded = text.encode()
    if len(encoded) <= limit:
        return text
    return encoded[: limit - len(_CUT)].decode(errors="ignore") + _CUT
