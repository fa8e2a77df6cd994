"""The public events: CloudEvents 1.0 in structured JSON mode, on `sluice.events.<ns>.<type>.<name>`.

Written by the gateway alone, so each workload's events have one order. External tools may rely on every field here; a field may be added,
anything else is a new type (`.v2`). See docs/events.md, which is generated from this file.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from shared.events import subjects
from shared.events.codec import MalformedMessage

SPEC_VERSION = "1.0"
CONTENT_TYPE = "application/cloudevents+json"


class JobReference(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The job that a workload stands for."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""


class _Data(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    namespace: str
    workload: Annotated[str, msgspec.Meta(description="Name of the Workload.")]
    uid: Annotated[str, msgspec.Meta(description="UID of the Workload.")]
    queue: Annotated[str, msgspec.Meta(description="LocalQueue, in the same namespace.")] = ""
    cluster_queue: Annotated[str, msgspec.Meta(description="ClusterQueue, where known.")] = ""
    job: JobReference | None = None
    priority: int = 0


class Created(_Data, frozen=True, kw_only=True, omit_defaults=True, tag_field="event", tag="created"):
    """A Workload exists for a job."""

    pod_sets: Annotated[dict[str, int], msgspec.Meta(description="Pods by pod set.")] = {}


class Queued(_Data, frozen=True, kw_only=True, omit_defaults=True, tag_field="event", tag="queued"):
    """The workload waits in its queue for the first time."""


class Pending(_Data, frozen=True, kw_only=True, omit_defaults=True, tag_field="event", tag="pending"):
    """The workload could not be admitted now; sent when the reason changes."""

    reason: str
    message: str


class Admitted(_Data, frozen=True, kw_only=True, omit_defaults=True, tag_field="event", tag="admitted"):
    """The workload may run."""

    flavors: Annotated[dict[str, dict[str, str]], msgspec.Meta(description="Flavor by resource, by pod set.")] = {}
    wait_seconds: Annotated[float, msgspec.Meta(description="From creation or requeue to admission.")] = 0


class Started(_Data, frozen=True, kw_only=True, omit_defaults=True, tag_field="event", tag="started"):
    """The job was unsuspended."""


class Preempted(_Data, frozen=True, kw_only=True, omit_defaults=True, tag_field="event", tag="preempted"):
    """The workload has to make room for another one; an `evicted` event follows."""

    reason: str
    preemptor: str
    preemptor_uid: str


class Evicted(_Data, frozen=True, kw_only=True, omit_defaults=True, tag_field="event", tag="evicted"):
    """The workload has to stop; its quota is free when its pods are gone."""

    reason: str
    message: str = ""


class Requeued(_Data, frozen=True, kw_only=True, omit_defaults=True, tag_field="event", tag="requeued"):
    """The workload released its quota and waits again, or waits until a back-off ends."""

    reason: str
    waiting: Annotated[bool, msgspec.Meta(description="False while it is kept out of the queue.")] = True


class Finished(_Data, frozen=True, kw_only=True, omit_defaults=True, tag_field="event", tag="finished"):
    """The job ended."""

    reason: Annotated[str, msgspec.Meta(description="Succeeded, Failed, or why else the workload ended.")]
    message: str = ""


Data = Created | Queued | Pending | Admitted | Started | Preempted | Evicted | Requeued | Finished

TYPE_PREFIX = "dev.sluice.workload."


class CloudEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The envelope. `type` is `dev.sluice.workload.<event>.v1`, `subject` is `namespace/workload`, `time` RFC 3339 in UTC."""

    specversion: Literal["1.0"] = SPEC_VERSION  # type: ignore[assignment]
    id: Annotated[str, msgspec.Meta(description="Unique per event; the same when it is delivered again.")]
    source: Annotated[str, msgspec.Meta(description="`/sluice/watcher`.")]
    type: Annotated[str, msgspec.Meta(description="`dev.sluice.workload.<event>.v1`.")]
    subject: Annotated[str, msgspec.Meta(description="`namespace/workload`.")]
    time: Annotated[str, msgspec.Meta(description="When it happened: RFC 3339, UTC.")]
    datacontenttype: str = "application/json"
    traceparent: Annotated[str, msgspec.Meta(description="W3C trace context; the trace id is the UID of the job.")] = ""
    data: Data


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(CloudEvent)


def event_name(data: Data) -> str:
    """`created`, `queued`, ...: the tag of the data."""
    return str(type(data).__struct_config__.tag)


def encode(event: CloudEvent) -> bytes:
    """JSON of the structured mode; `specversion` is always there."""
    # The encoder leaves the default out, but not an equal text that was decoded: written once in any case.
    event = msgspec.structs.replace(event, specversion=SPEC_VERSION)
    return b'{"specversion":"1.0",' + _encoder.encode(event)[1:]


def decode(data: bytes) -> CloudEvent:
    """Inverse of `encode`. Raises MalformedMessage."""
    try:
        return _decoder.decode(data)
    except msgspec.DecodeError as error:
        raise MalformedMessage(f"events: {error}") from error


def subject_of(data: Data) -> str:
    """Where it is published."""
    return subjects.event(data.namespace, f"workload.{event_name(data)}", data.workload)
