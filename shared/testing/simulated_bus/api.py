"""JetStream's API, as far as `shared.bus.jetstream` and the leases use it: requests in, the server's answers out."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

import msgspec

from shared.bus.client import parse_headers, raw_headers
from shared.bus.jetstream import (
    CONSUMER_EXISTS,
    CONSUMER_NOT_FOUND,
    DELETE_FAILED,
    MESSAGE_NOT_FOUND,
    STREAM_NAME_IN_USE,
    STREAM_NOT_FOUND,
    ApiError,
    ConsumerConfig,
    SequencePair,
    StreamConfig,
    StreamState,
)
from shared.testing.simulated_bus.stream import Refused, SimulatedStream, StoredMessage

if TYPE_CHECKING:
    from shared.testing.simulated_bus.broker import SimulatedBroker
    from shared.testing.simulated_bus.client import SimulatedClient

CONSUMER_NAME_IN_USE = 10013
FILTER_MISMATCH = 10131
BAD_REQUEST = 10003
NAMES_PER_PAGE = 1024
NOT_FOUND = b"NATS/1.0 404 Message Not Found\r\n\r\n"


class _Create(msgspec.Struct, frozen=True):
    stream_name: str
    config: ConsumerConfig
    action: str = ""


class _Wanted(msgspec.Struct, frozen=True):
    """The body of every other request; what a call does not use is its default."""

    seq: int = 0
    last_by_subj: str = ""
    offset: int = 0


_encode = msgspec.json.Encoder().encode
_stream_config = msgspec.json.Decoder(StreamConfig).decode
_create = msgspec.json.Decoder(_Create).decode
_wanted = msgspec.json.Decoder(_Wanted).decode


class JetStreamApi:
    """The calls of one server."""

    def __init__(self, broker: SimulatedBroker) -> None:
        self._broker = broker

    def call(self, client: SimulatedClient, what: str, payload: bytes) -> tuple[bytes, bytes | None]:
        """(payload, headers) of the answer to `$JS.API.<what>`."""
        try:
            return self._call(client, what, payload)
        except Refused as error:
            return _encode({"error": ApiError(error.code, error.err_code, error.description)}), None
        except msgspec.DecodeError as error:
            return _encode({"error": ApiError(400, BAD_REQUEST, str(error))}), None

    def _call(self, client: SimulatedClient, what: str, payload: bytes) -> tuple[bytes, bytes | None]:
        family, _, rest = what.partition(".")
        verb, _, name = rest.partition(".")
        if family == "CONSUMER":
            return self._consumer(client, verb, name, payload), None
        if family == "DIRECT":
            return self._direct(name)
        if family != "STREAM":
            raise Refused(BAD_REQUEST, f"no such call: {what}")
        match verb:
            case "CREATE":
                return self._create(name, payload), None
            case "NAMES":
                names = sorted(self._broker.streams)
                at = _wanted(payload).offset if payload else 0
                page = names[at : at + NAMES_PER_PAGE]
                return _encode({"streams": page, "total": len(names), "offset": at}), None
            case "MSG":
                call, _, name = name.partition(".")
                return self._message(call, self._stream(name), _wanted(payload)), None
        stream = self._stream(name)
        match verb:
            case "INFO":
                return _info(stream), None
            case "UPDATE":
                stream.config = _stream_config(payload)
                return _info(stream), None
            case "DELETE":
                self._broker.drop_stream(name)
            case "PURGE":
                purged = stream.purge_below(_wanted(payload).seq) if payload else stream.purge_below(stream.last + 1)
                return _encode({"success": True, "purged": purged}), None
            case _:
                raise Refused(BAD_REQUEST, f"no such call: {what}")
        return b'{"success":true}', None

    def _stream(self, name: str) -> SimulatedStream:
        stream = self._broker.streams.get(name)
        if stream is None:
            raise Refused(STREAM_NOT_FOUND, "stream not found", 404)
        self._broker.expire(stream)
        return stream

    def _create(self, name: str, payload: bytes) -> bytes:
        config = _stream_config(payload)
        stream = self._broker.streams.get(name)
        if stream is not None and stream.config != config:
            raise Refused(STREAM_NAME_IN_USE, "stream name already in use with a different configuration")
        if stream is None:
            stream = self._broker.make_stream(config)
        return _info(stream)

    def _message(self, call: str, stream: SimulatedStream, wanted: _Wanted) -> bytes:
        if call == "DELETE":
            if stream.config.deny_delete:
                raise Refused(DELETE_FAILED, "message delete not permitted")
            if not stream.remove(wanted.seq):
                raise Refused(DELETE_FAILED, "message delete failed: no message found")
            return b'{"success":true}'
        found = stream.newest(wanted.last_by_subj) if wanted.last_by_subj else stream.messages.get(wanted.seq)
        if found is None:
            raise Refused(MESSAGE_NOT_FOUND, "no message found", 404)
        headers = {} if found.headers is None else {"hdrs": base64.b64encode(found.headers).decode()}
        data = base64.b64encode(found.payload).decode()
        return _encode({"message": {"subject": found.subject, "seq": found.sequence, "data": data, **headers}})

    def _direct(self, name: str) -> tuple[bytes, bytes | None]:
        """`DIRECT.GET.<stream>.<subject>`: the newest message, as it is, with headers that say where it stands."""
        stream_name, _, subject = name.removeprefix("GET.").partition(".")
        stream = self._stream(stream_name)
        found = stream.newest(subject) if stream.config.allow_direct else None
        if found is None:
            return b"", NOT_FOUND
        return found.payload, _described(found)

    def _consumer(self, client: SimulatedClient, verb: str, name: str, payload: bytes) -> bytes:
        stream_name, _, rest = name.partition(".")
        consumer_name, _, filter_ = rest.partition(".")
        stream = self._stream(stream_name)
        if verb == "DELETE":
            if not self._broker.drop_consumer(stream_name, consumer_name):
                raise Refused(CONSUMER_NOT_FOUND, "consumer not found", 404)
            return b'{"success":true}'
        if verb == "INFO":
            return self._consumer_info(stream_name, consumer_name)
        if verb != "CREATE":
            raise Refused(BAD_REQUEST, f"no such call: CONSUMER.{verb}")
        asked = _create(payload)
        config = asked.config
        if filter_ != config.filter_subject and (filter_ or config.filter_subject):
            raise Refused(FILTER_MISMATCH, "Consumer create request did not match filtered subject from create subject")
        consumer = self._broker.make_consumer(client, stream, config)
        if consumer is None:
            if asked.action == "create":
                raise Refused(CONSUMER_EXISTS, "consumer already exists")
            raise Refused(CONSUMER_NAME_IN_USE, "consumer name already in use")
        delivered = SequencePair(0, consumer.start - 1)
        answer = _encode({"created": stream.created, "delivered": delivered, "num_pending": consumer.num_pending})
        consumer.pump()
        return answer

    def _consumer_info(self, stream: str, name: str) -> bytes:
        found = self._broker.consumers.get((stream, name))
        if found is None:
            raise Refused(CONSUMER_NOT_FOUND, "consumer not found", 404)
        # One to which nobody listens any more has ended at once.
        target = {"deliver_subject": found.config.deliver_subject}
        return _encode({"config": target, "num_pending": found.num_pending, "push_bound": True})


def _info(stream: SimulatedStream) -> bytes:
    """What the server says of a stream."""
    state = StreamState(messages=len(stream.messages), first_seq=stream.first, last_seq=stream.last)
    return _encode({"created": stream.created, "state": state})


def _described(found: StoredMessage) -> bytes:
    fields = {
        "Nats-Stream": found.stream,
        "Nats-Subject": found.subject,
        "Nats-Sequence": str(found.sequence),
        **parse_headers(found.headers),
    }
    return raw_headers(fields)
