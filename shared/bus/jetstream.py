"""JetStream's API as typed requests: streams, consumers, single messages. No policy: which streams there are is in `shared.events.streams`.

Times and durations are the server's: RFC 3339 text kept as text (a stream's `created` is its identity) and nanoseconds.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from shared.bus.connection import Connection, Disconnected, NoResponders
from shared.events.streams import Stream

S_NS = 1_000_000_000

CONSUMER_NOT_FOUND = 10014
CONSUMER_EXISTS = 10148
MESSAGE_NOT_FOUND = 10037
STREAM_NAME_IN_USE = 10058
STREAM_NOT_FOUND = 10059
STREAM_MISMATCH = 10060
NO_MESSAGE_AT_SEQUENCE = 10043
DELETE_FAILED = 10057
"""Of a message: in practice that it is not there any more."""
WRONG_LAST_SEQUENCE = 10071

_NOT_FOUND = frozenset({CONSUMER_NOT_FOUND, MESSAGE_NOT_FOUND, STREAM_NOT_FOUND, NO_MESSAGE_AT_SEQUENCE})


class ApiError(msgspec.Struct, frozen=True, gc=False):
    """JetStream's refusal."""

    code: int = 0
    err_code: int = 0
    description: str = ""


class JetStreamError(Exception):
    """JetStream refused; `error` says why."""

    def __init__(self, error: ApiError) -> None:
        super().__init__(f"{error.description} ({error.err_code})")
        self.error = error

    @property
    def not_found(self) -> bool:
        return self.error.err_code in _NOT_FOUND or self.error.code == 404

    @property
    def taken(self) -> bool:
        """A consumer of that name is there, and not with this configuration."""
        return self.error.err_code == CONSUMER_EXISTS


TROUBLE = (JetStreamError, NoResponders, Disconnected, TimeoutError, msgspec.DecodeError)
"""What a request may raise without anybody being at fault: the server is coming back, or a stream is just being made. Try again."""


class StreamState(msgspec.Struct, frozen=True, gc=False):
    messages: int = 0
    first_seq: int = 0
    last_seq: int = 0


class StreamInfo(msgspec.Struct, frozen=True, kw_only=True):
    created: str = ""
    state: StreamState = StreamState()
    error: ApiError | None = None


class SequencePair(msgspec.Struct, frozen=True, gc=False):
    consumer_seq: int = 0
    stream_seq: int = 0


class ConsumerTarget(msgspec.Struct, frozen=True, gc=False):
    """Where a consumer delivers to."""

    deliver_subject: str = ""


class ConsumerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """`delivered.stream_seq` right after creation is the sequence before the first one it will deliver; `num_pending` what it has still to deliver;
    `push_bound`: somebody listens to it."""

    created: str = ""
    config: ConsumerTarget = ConsumerTarget()
    push_bound: bool = False
    delivered: SequencePair = SequencePair()
    num_pending: int = 0
    error: ApiError | None = None


class StoredMessage(msgspec.Struct, frozen=True, kw_only=True):
    seq: int
    subject: str = ""
    data: bytes = b""


class _MessageReply(msgspec.Struct, frozen=True, kw_only=True):
    message: StoredMessage | None = None
    error: ApiError | None = None


class _Done(msgspec.Struct, frozen=True, kw_only=True):
    error: ApiError | None = None


class _Names(msgspec.Struct, frozen=True, kw_only=True):
    streams: list[str] | None = None
    total: int = 0
    offset: int = 0
    error: ApiError | None = None


class StreamConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What `STREAM.CREATE` takes, of what we use; durations in nanoseconds."""

    name: str
    subjects: tuple[str, ...]
    retention: str = ""
    max_msgs_per_subject: int = 0
    max_bytes: int = 0
    max_age: int = 0
    discard: str = ""
    storage: str = "file"
    num_replicas: int = 0
    duplicate_window: int = 0
    allow_direct: bool = False
    allow_msg_ttl: bool = False
    allow_rollup_hdrs: bool = False
    deny_delete: bool = False


class ConsumerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A push consumer without acknowledgement, which the server drops after `inactive_threshold` without interest."""

    name: str
    deliver_subject: str
    deliver_policy: str
    opt_start_seq: int = 0
    filter_subject: str = ""
    filter_subjects: tuple[str, ...] = ()
    ack_policy: str = "none"
    max_deliver: int = -1
    replay_policy: str = "instant"
    flow_control: bool = True
    idle_heartbeat: int = 0
    inactive_threshold: int = 0
    mem_storage: bool = True
    num_replicas: int = 1


class _CreateConsumer(msgspec.Struct, frozen=True, kw_only=True):
    stream_name: str
    config: ConsumerConfig
    action: str = "create"
    """Never an update: a consumer that is there is somebody else's."""


class _LastBySubject(msgspec.Struct, frozen=True):
    last_by_subj: str


class _PurgeBelow(msgspec.Struct, frozen=True):
    seq: int


class _DeleteMessage(msgspec.Struct, frozen=True):
    seq: int
    no_erase: bool = True


class _Page(msgspec.Struct, frozen=True):
    offset: int


_encode = msgspec.json.Encoder().encode
R = TypeVar("R", StreamInfo, ConsumerInfo, _MessageReply, _Done, _Names)


class JetStream:
    """Every method raises JetStreamError for a refusal, and what `Connection.request` raises."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def stream_info(self, stream: str) -> StreamInfo:
        return await self._call(f"STREAM.INFO.{stream}", b"", StreamInfo)

    async def create_stream(self, config: StreamConfig) -> StreamInfo:
        """Idempotent for an equal config."""
        return await self._call(f"STREAM.CREATE.{config.name}", _encode(config), StreamInfo)

    async def update_stream(self, config: StreamConfig) -> StreamInfo:
        return await self._call(f"STREAM.UPDATE.{config.name}", _encode(config), StreamInfo)

    async def delete_stream(self, stream: str) -> None:
        """Idempotent."""
        try:
            await self._call(f"STREAM.DELETE.{stream}", b"", _Done)
        except JetStreamError as error:
            if not error.not_found:
                raise

    async def stream_names(self) -> list[str]:
        names: list[str] = []
        while True:
            page = await self._call("STREAM.NAMES", _encode(_Page(len(names))), _Names)
            names += page.streams or []
            if not page.streams or len(names) >= page.total:
                return names

    async def purge_below(self, stream: str, sequence: int) -> None:
        """Drop every message before `sequence`."""
        await self._call(f"STREAM.PURGE.{stream}", _encode(_PurgeBelow(sequence)), _Done)

    async def last_message(self, stream: str, subject: str) -> StoredMessage | None:
        """The newest message of a subject; None without one."""
        try:
            found = await self._call(f"STREAM.MSG.GET.{stream}", _encode(_LastBySubject(subject)), _MessageReply)
        except JetStreamError as error:
            if error.error.err_code == MESSAGE_NOT_FOUND:
                return None
            raise
        return found.message

    async def delete_message(self, stream: str, sequence: int) -> None:
        """Idempotent; the bytes are not overwritten, which would cost as much as a write."""
        try:
            await self._call(f"STREAM.MSG.DELETE.{stream}", _encode(_DeleteMessage(sequence)), _Done)
        except JetStreamError as error:
            if not error.not_found and error.error.err_code != DELETE_FAILED:
                raise

    async def create_consumer(self, stream: str, config: ConsumerConfig) -> ConsumerInfo:
        """A single filter stands in the subject of the request too, so that permissions can name it. Refused as `taken` if the name is in use."""
        subject = f"CONSUMER.CREATE.{stream}.{config.name}"
        if config.filter_subject:
            subject = f"{subject}.{config.filter_subject}"
        return await self._call(subject, _encode(_CreateConsumer(stream_name=stream, config=config)), ConsumerInfo)

    async def consumer_info(self, stream: str, name: str) -> ConsumerInfo | None:
        """None if there is no such consumer."""
        try:
            return await self._call(f"CONSUMER.INFO.{stream}.{name}", b"", ConsumerInfo)
        except JetStreamError as error:
            if error.not_found:
                return None
            raise

    async def delete_consumer(self, stream: str, name: str) -> None:
        """Idempotent."""
        try:
            await self._call(f"CONSUMER.DELETE.{stream}.{name}", b"", _Done)
        except JetStreamError as error:
            if not error.not_found:
                raise

    async def _call(self, what: str, payload: bytes, answer: type[R]) -> R:
        reply = msgspec.json.decode((await self._connection.request(f"$JS.API.{what}", payload)).payload, type=answer)
        if reply.error is not None:
            raise JetStreamError(reply.error)
        return reply


def stream_config(stream: Stream, replicas: int) -> StreamConfig:
    """What the server has to be told about a stream of the table."""
    return StreamConfig(
        name=stream.name,
        subjects=stream.subjects,
        retention="limits",
        max_msgs_per_subject=1 if stream.latest_per_subject else -1,
        max_bytes=stream.max_bytes,
        max_age=stream.max_age_s * S_NS,
        discard=stream.discard,
        num_replicas=replicas,
        duplicate_window=stream.duplicate_window_s * S_NS,
        allow_direct=stream.allow_direct,
        allow_msg_ttl=stream.message_ttl,
    )
