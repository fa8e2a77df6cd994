"""Messages of the bus, as the NATS server counts them: acknowledgements and requests included."""

from __future__ import annotations

import aiohttp
import msgspec


class _Varz(msgspec.Struct):
    in_msgs: int = 0
    out_msgs: int = 0


class Messages(msgspec.Struct, frozen=True):
    """`sent` by all clients to the server, and `delivered` by it to clients."""

    sent: int = 0
    delivered: int = 0

    @classmethod
    def between(cls, before: Messages | None, after: Messages | None) -> Messages:
        """What passed from one look to the next; nothing if one of them is missing."""
        if before is None or after is None:
            return cls()
        return cls(after.sent - before.sent, after.delivered - before.delivered)

    def per_item(self, items: int) -> dict[str, float]:
        """Figures; none if nothing was counted."""
        if not self.sent:
            return {}
        return {"messages_per_item.sent": self.sent / items, "messages_per_item.delivered": self.delivered / items}


async def read_messages(monitoring: str) -> Messages | None:
    """Since the server began. None without a server, or if it does not answer."""
    if not monitoring:
        return None
    timeout = aiohttp.ClientTimeout(total=5)
    try:
        async with aiohttp.ClientSession(timeout=timeout) as session, session.get(f"{monitoring}/varz") as response:
            found = msgspec.json.decode(await response.read(), type=_Varz)
    except (aiohttp.ClientError, TimeoutError, msgspec.DecodeError):
        return None
    return Messages(found.in_msgs, found.out_msgs)
