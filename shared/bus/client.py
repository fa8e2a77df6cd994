"""The NATS client library, changed in two ways. Nothing else of ours touches its inside."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import cast

from nats import errors
from nats.aio.client import Client

log = logging.getLogger(__name__)

DirectHandler = Callable[[str, str, bytes, bytes | None], None]
"""(subject, reply, payload, raw headers): called by the read loop itself, so it must be quick."""


class DirectClient(Client):
    """An error of the server is a reason to connect again, never to stay closed; and messages of some
    subscriptions go straight to a function, because a queue and a task per message cost more than decoding it."""

    def __init__(self) -> None:
        super().__init__()
        self.direct: dict[int, DirectHandler] = {}

    async def _process_err(self, err_msg: str) -> None:
        error = errors.Error(err_msg.strip("'"))
        if "permissions violation" in err_msg:
            await self._error_cb(error)
        elif "authorization violation" in err_msg and self.is_connecting:
            await super()._process_err(err_msg)
        else:
            await self._process_op_err(error)

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes | None) -> None:
        handler = self.direct.get(sid)
        if handler is None:
            await super()._process_msg(sid, subject, reply, data, cast("bytes", headers))
            return
        try:
            handler(subject.decode(), reply.decode(), data, headers)
        except Exception:
            log.exception("handling a message failed", extra={"subject": subject.decode(errors="replace")})


def header(raw: bytes | None, name: bytes) -> str:
    """One header's value, empty without it: a tenth of the cost of parsing them all."""
    if raw is None:
        return ""
    start = raw.find(b"\r\n" + name + b": ")
    if start < 0:
        return ""
    start += len(name) + 4
    return raw[start : raw.find(b"\r\n", start)].decode("utf-8", "replace")


def parse_headers(raw: bytes | None) -> dict[str, str]:
    """Header lines as a dict; empty without any."""
    if raw is None:
        return {}
    return Client._parse_header_lines(raw.partition(b"\r\n")[2])
