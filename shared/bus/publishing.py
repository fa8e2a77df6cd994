"""Publishing with acknowledgement, pipelined: a batch is sent at once and its acknowledgements are gathered.

`try_all` says of each message what became of it; `all_stored` does not return before each is stored (or its refusal is for good). Neither knows
what the messages mean.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

import msgspec
from nats import errors

from shared.bus.connection import Answer, BusClosed, Connection, Disconnected, NoResponders
from shared.bus.jetstream import STREAM_MISMATCH, STREAM_NOT_FOUND, WRONG_LAST_SEQUENCE, ApiError

log = logging.getLogger(__name__)

ACK_TIMEOUT_S = 5.0
STUCK_AFTER_S = 5.0
"""Of trying in vain, until it is trouble that people should hear of."""
IN_FLIGHT = 2000
BACKOFF_S = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0)

TOO_LARGE, STUCK = -1, -2
"""Error codes of our own, beside the server's."""

TRACEPARENT = "traceparent"
MESSAGE_ID = "Nats-Msg-Id"
MESSAGE_TTL = "Nats-TTL"
EXPECTED_STREAM = "Nats-Expected-Stream"
EXPECTED_LAST = "Nats-Expected-Last-Sequence"
EXPECTED_LAST_OF_SUBJECT = "Nats-Expected-Last-Subject-Sequence"


class Outgoing(msgspec.Struct, frozen=True, gc=False):
    subject: str
    payload: bytes
    headers: dict[str, str] = {}


class Ack(msgspec.Struct, frozen=True, gc=False):
    """Stored at `seq`; `duplicate`: it was there already by its message id."""

    seq: int = 0
    stream: str = ""
    duplicate: bool = False
    error: ApiError | None = None


class Failure(msgspec.Struct, frozen=True, gc=False):
    """Not acknowledged. `sent` False: certainly not stored."""

    why: str
    err_code: int = 0
    sent: bool = True
    no_stream: bool = False

    @property
    def lost_race(self) -> bool:
        return self.err_code in (WRONG_LAST_SEQUENCE, STREAM_MISMATCH)

    @property
    def refused(self) -> bool:
        """By a server that heard it, and not for what anybody else has written: it has no room, or the message is too large."""
        return not (self.sent or self.lost_race or self.no_stream or self.err_code in (0, STUCK))


Result = Ack | Failure
_decode = msgspec.json.Decoder(Ack).decode


def _result(answer: Answer) -> Result:
    try:
        ack = _decode(answer.payload)
    except msgspec.DecodeError as error:
        return Failure(f"unreadable acknowledgement: {error}")
    if ack.error is None:
        return ack
    refused = ack.error
    return Failure(refused.description, refused.err_code, sent=False, no_stream=refused.err_code == STREAM_NOT_FOUND)


class Publisher:
    """Raises BusClosed and PermissionError only."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._room = asyncio.Semaphore(IN_FLIGHT)
        self._stuck: dict[str, str] = {}

    @property
    def trouble(self) -> str:
        """What `all_stored` has been trying for a while, and why in vain; empty if all is well."""
        return "; ".join(f"{root} cannot be written: {why}" for root, why in sorted(self._stuck.items()))

    async def try_all(self, messages: Sequence[Outgoing], *, timeout_s: float = ACK_TIMEOUT_S) -> list[Result]:
        """One attempt at each, in order."""
        sent: list[asyncio.Future[Answer] | Failure] = []
        for message in messages:
            stuck = bool(sent) and isinstance(sent[-1], Failure) and sent[-1].err_code == STUCK
            # One that had no room in time says enough about those behind it.
            sent.append(sent[-1] if stuck else await self._send(message, timeout_s))
        futures = [f for f in sent if isinstance(f, asyncio.Future)]
        if futures:
            await asyncio.wait(futures, timeout=timeout_s)
        return [f if isinstance(f, Failure) else _outcome(f) for f in sent]

    async def try_one(self, message: Outgoing, *, timeout_s: float = ACK_TIMEOUT_S) -> Result:
        """One attempt."""
        return (await self.try_all((message,), timeout_s=timeout_s))[0]

    async def all_stored(
        self,
        messages: Sequence[Outgoing],
        *,
        on_missing_stream: Callable[[str], Awaitable[None]] | None = None,
    ) -> list[Result]:
        """Attempts until each is stored; a Failure in the result is one that no attempt can mend (too large, a wrong expected sequence)."""
        results: list[Result] = [Failure("not tried", sent=False)] * len(messages)
        todo = list(range(len(messages)))
        attempt, began = 0, self._connection.now()
        try:
            while todo:
                for i, result in zip(todo, await self.try_all([messages[i] for i in todo]), strict=True):
                    results[i] = result
                todo = [i for i in todo if _worth_repeating(results[i])]
                if not todo:
                    break
                subject, failed = messages[todo[0]].subject, results[todo[0]]
                assert isinstance(failed, Failure)
                if on_missing_stream is not None and failed.no_stream:
                    await on_missing_stream(subject)
                if attempt % 5 == 0:
                    log.warning("publishing again", extra={"subject": subject, "left": len(todo), "why": str(failed)})
                if self._connection.now() - began > STUCK_AFTER_S:
                    self._stuck[_root(subject)] = failed.why
                await asyncio.sleep(BACKOFF_S[min(attempt, len(BACKOFF_S) - 1)])
                attempt += 1
        finally:
            if attempt:
                self._stuck.pop(_root(messages[0].subject), None)
        return results

    async def _send(self, message: Outgoing, timeout_s: float) -> asyncio.Future[Answer] | Failure:
        if self._room.locked():
            try:
                async with asyncio.timeout(timeout_s):
                    await self._room.acquire()
            except TimeoutError:
                return Failure("too many unacknowledged messages", STUCK, sent=False)
        else:
            await self._room.acquire()
        future: asyncio.Future[Answer] | None = None
        try:
            async with asyncio.timeout(timeout_s):
                future = await self._connection.start_request(message.subject, message.payload, message.headers)
        except TimeoutError:
            return Failure("no connection", STUCK, sent=False)
        except errors.MaxPayloadError:
            return Failure(f"{len(message.payload)} bytes are too many", TOO_LARGE, sent=False)
        finally:
            if future is None:
                self._room.release()
        future.add_done_callback(self._answered)
        return future

    def _answered(self, _: asyncio.Future[Answer]) -> None:
        self._room.release()


def _outcome(future: asyncio.Future[Answer]) -> Result:
    if not future.done():
        future.cancel()
        # A server whose disk was full when it wrote does not answer any more: its /healthz says so.
        return Failure("no acknowledgement in time")
    if future.cancelled():
        return Failure("cancelled")
    error = future.exception()
    match error:
        case None:
            return _result(future.result())
        case NoResponders():
            return Failure("no such stream", sent=False, no_stream=True)
        case Disconnected():
            return Failure(str(error))
        case BusClosed() | PermissionError():
            raise error
        case _:
            return Failure(f"{type(error).__name__}: {error}")


def _root(subject: str) -> str:
    """What all subjects of a stream begin with; messages that are published together are for one."""
    return ".".join(subject.split(".")[:2])


def _worth_repeating(result: Result) -> bool:
    return isinstance(result, Failure) and result.err_code != TOO_LARGE and not result.lost_race
