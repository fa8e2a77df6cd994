"""Core NATS request and reply between services: no stream, no memory; a caller asks again."""

from __future__ import annotations

import asyncio
import logging

from nats import errors

from shared.bus.client import Request, parse_headers
from shared.bus.connection import Connection, Disconnected, NoResponders
from shared.bus.interface import Handler
from shared.events import subjects

log = logging.getLogger(__name__)

AT_ONCE = 64
ERROR_HEADER = "Sluice-Error"


class RpcError(RuntimeError):
    """The service answered, but could not do it; the text is its own."""


async def request(connection: Connection, service: str, method: str, payload: bytes, timeout_s: float) -> bytes:
    """Raises TimeoutError if no answer comes (nobody serves it, included), RpcError for a failure on the other side."""
    subject = subjects.rpc(service, method)
    try:
        answer = await connection.request(subject, payload, timeout_s=timeout_s)
    except (NoResponders, Disconnected) as error:
        raise TimeoutError(f"{subject}: {type(error).__name__}") from error
    why = parse_headers(answer.headers).get(ERROR_HEADER)
    if why is not None:
        raise RpcError(why)
    return answer.payload


async def serve(connection: Connection, method: str, handler: Handler) -> None:
    """Answer requests, at most AT_ONCE at a time, as one of this service's queue group."""
    room = asyncio.Semaphore(AT_ONCE)

    async def answer(message: Request) -> None:
        try:
            headers = None
            try:
                payload = await handler(message.data)
            except Exception as error:
                log.exception("a request failed", extra={"method": method})
                payload, headers = b"", {ERROR_HEADER: f"{type(error).__name__}: {error}".replace("\n", " ")}
            if message.reply:
                try:
                    await connection.send(message.reply, payload, headers=headers)
                except errors.MaxPayloadError:
                    await connection.send(message.reply, b"", headers={ERROR_HEADER: "the answer is too large"})
        finally:
            room.release()

    async def receive(message: Request) -> None:
        await room.acquire()
        connection.run(answer(message), f"rpc {method}")

    await connection.subscribe(subjects.rpc(connection.user, method), connection.user, receive)
