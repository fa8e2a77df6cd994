"""The API server's audit log, and counting in it: who wrote what how often. Reads are logged only where a policy of one's own asks for them."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec

POLICY = """\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  verbs: [create, update, patch, delete, deletecollection]
- level: None
"""


class User(msgspec.Struct, frozen=True):
    username: str = ""


class Reference(msgspec.Struct, frozen=True, rename="camel"):
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    api_group: str = ""


class ResponseStatus(msgspec.Struct, frozen=True):
    code: int = 0
    message: str = ""


class AuditEvent(msgspec.Struct, frozen=True, rename="camel"):
    """The part of an audit.k8s.io/v1 Event that counting needs."""

    verb: str
    user: User
    object_ref: Reference = Reference()
    response_status: ResponseStatus = ResponseStatus()
    request_received_timestamp: str = ""


class Write(msgspec.Struct, frozen=True, order=True):
    """A kind of write; `resource` is plural, with its subresource: `jobs`, `workloads/status`."""

    user: str
    verb: str
    resource: str


def read_events(log: Path) -> Iterator[AuditEvent]:
    """The events so far, oldest first; a last line that is still being written is left out."""
    if not log.exists():
        return
    decoder = msgspec.json.Decoder(AuditEvent)
    for line in log.read_bytes().splitlines(keepends=True):
        if line.endswith(b"\n"):
            yield decoder.decode(line)


def count_writes(log: Path, *, failed: bool = False) -> Counter[Write]:
    """How often each write happened; requests that were answered with an error count only when `failed` is set."""
    counts: Counter[Write] = Counter()
    for event in read_events(log):
        if event.response_status.code >= 400 and not failed:
            continue
        reference = event.object_ref
        resource = f"{reference.resource}/{reference.subresource}" if reference.subresource else reference.resource
        counts[Write(event.user.username, event.verb, resource)] += 1
    return counts
