"""Object metadata and the times of the API: what every kind shares.

Only the fields decisions and patches need; managedFields and the like are ignored when decoded.
"""

from datetime import UTC, datetime

import msgspec

from shared.api.schema_hints import ApiStruct, Time


class OwnerReference(ApiStruct, frozen=True, kw_only=True):
    api_version: str
    kind: str
    name: str
    uid: str = ""
    controller: bool = False
    block_owner_deletion: bool = False


class ObjectMeta(ApiStruct, frozen=True, kw_only=True):
    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: Time | None = None
    deletion_timestamp: Time | None = None
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    annotations: dict[str, str] = msgspec.field(default_factory=dict)
    finalizers: tuple[str, ...] = ()
    owner_references: tuple[OwnerReference, ...] = ()

    @property
    def key(self) -> str:
        """`namespace/name`, or the bare name of a cluster-scoped object."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    def controller_owner(self) -> OwnerReference | None:
        """The one owner that controls this object, if any."""
        return next((owner for owner in self.owner_references if owner.controller), None)


def format_time(when: datetime) -> str:
    """RFC 3339 in UTC, whole seconds (2026-01-02T03:04:05Z). `when` must be timezone-aware; else ValueError."""
    return whole_seconds(when).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_time(text: str) -> datetime:
    """A timezone-aware UTC datetime. Raises ValueError naming the text."""
    try:
        when = datetime.fromisoformat(text)
    except ValueError as error:
        raise ValueError(f"{text!r} is not an RFC 3339 time") from error
    if when.tzinfo is None:
        raise ValueError(f"{text!r} is not an RFC 3339 time: it has no time zone")
    return when.astimezone(UTC)


def whole_seconds(when: datetime) -> datetime:
    """`when` in UTC, cut to the API's precision of one second."""
    if when.tzinfo is None:
        raise ValueError("a time without a time zone cannot go into an API object")
    return when.astimezone(UTC).replace(microsecond=0)
