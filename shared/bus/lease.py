"""Who is active in a role: a key in the bucket LEASES that its holder renews and the server drops when it does not.

A holder that died is found out before its time is over: with each renewal it writes which consumer it reads by, and the server knows whether anybody
listens to that. One that has missed a renewal and does not listen is gone. One that is only slow, or frozen, still listens, and has its whole time.

For liveness only. The key-value protocol is spelled out here (create, update by revision, delete marker), since the library's client asks for
stream permissions that services do not have. States: waiting -> held -> waiting (lost or released).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from shared.bus.client import parse_headers
from shared.bus.connection import BusClosed, Connection, Disconnected, NoResponders
from shared.bus.jetstream import S_NS, TROUBLE, JetStream, StreamConfig
from shared.bus.permissions import lease_subject
from shared.bus.publishing import EXPECTED_LAST_OF_SUBJECT, Ack, Outgoing, Publisher
from shared.events.streams import LEASE_TTL_S, LEASES_BUCKET

log = logging.getLogger(__name__)

STREAM = f"KV_{LEASES_BUCKET}"
OPERATION = "KV-Operation"
RENEW_EVERY_S = LEASE_TTL_S / 3
RETRY_S = 0.1
TRY_EVERY_S = 0.25
GONE_AFTER_S = RENEW_EVERY_S * 1.5
"""Without a renewal for so long, a holder that does not listen any more is gone."""
TRUSTED_S = LEASE_TTL_S * 0.8
"""Less than the server waits: we stop believing before another may begin."""


def bucket_config(replicas: int) -> StreamConfig:
    """The stream behind the bucket, as other key-value clients expect it."""
    return StreamConfig(
        name=STREAM,
        subjects=(f"$KV.{LEASES_BUCKET}.>",),
        retention="limits",
        max_msgs_per_subject=1,
        max_bytes=-1,
        max_age=LEASE_TTL_S * S_NS,
        discard="new",
        num_replicas=replicas,
        duplicate_window=LEASE_TTL_S * S_NS,
        allow_direct=True,
        allow_rollup_hdrs=True,
        deny_delete=True,
    )


class NatsLease:
    """One contender. `held` is judged at the moment it is asked: a process that was stopped for long does not believe that it still holds it."""

    def __init__(
        self,
        connection: Connection,
        publisher: Publisher,
        *,
        role: str,
        shard: str,
        holder: str,
        reads_by: Callable[[], str] = lambda: "",
    ) -> None:
        """`reads_by`: stream, name and inbox of a consumer that this process listens to, by spaces; empty if there is none."""
        self._connection = connection
        self._js = JetStream(connection)
        self._publisher = publisher
        self._subject = lease_subject(role, shard)
        self._role = role
        self._holder = holder
        self._reads_by = reads_by
        self._revision = 0
        self._renewed = -TRUSTED_S
        self._wanted = True
        self._seen, self._seen_at = 0, 0.0
        """The last renewal of somebody else that we saw, and when it was new to us."""
        self._change = asyncio.Condition()
        self._task = connection.run(self._contend(), f"lease {role}")

    @property
    def held(self) -> bool:
        return self._revision > 0 and self._connection.now() - self._renewed < TRUSTED_S

    async def wait_until_held(self) -> None:
        """Raises BusClosed when the bus is closed, RuntimeError when it was released, PermissionError when the role is another service's."""
        async with self._change:
            while not self.held:
                if self._connection.closed:
                    raise BusClosed(self._role)
                if not self._wanted:
                    raise RuntimeError(f"the lease {self._role} was released")
                if self._task.done():
                    self._task.result()
                # The time-out sees a bus that is closed meanwhile.
                try:
                    async with asyncio.timeout(1):
                        await self._change.wait()
                except TimeoutError:
                    continue

    async def release(self) -> None:
        """Give it up, so that another one need not wait until it expires. Idempotent."""
        self._wanted = False
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        revision, self._revision = self._revision, 0
        if revision and self._connection.connected:
            await self._publish(revision, b"", {OPERATION: "DEL"})

    async def _contend(self) -> None:
        while True:
            if self._revision:
                # Without an answer there is no time to lose: a second attempt still comes before the end.
                await asyncio.sleep(RENEW_EVERY_S if await self._renew() else RETRY_S)
                continue
            began = self._connection.now()
            expected = await self._vacant()
            if expected is not None and (revision := await self._publish(expected, self._value(), {})):
                self._revision, self._renewed = revision, began
                log.info("lease acquired", extra={"role": self._role})
                async with self._change:
                    self._change.notify_all()
                await asyncio.sleep(RENEW_EVERY_S)
                continue
            await asyncio.sleep(TRY_EVERY_S)

    async def _renew(self) -> bool:
        began = self._connection.now()
        revision = await self._publish(self._revision, self._value(), {})
        if revision:
            self._revision, self._renewed = revision, began
            return True
        if revision == 0 or not self.held:
            log.warning("lease lost", extra={"role": self._role})
            self._revision = 0
        return False

    def _value(self) -> bytes:
        return f"{self._holder} {self._reads_by()}".rstrip().encode()

    async def _publish(self, expected: int, value: bytes, headers: dict[str, str]) -> int | None:
        """The new revision; 0 if another one was there first; None if nobody answered."""
        message = Outgoing(self._subject, value, {EXPECTED_LAST_OF_SUBJECT: str(expected), **headers})
        result = await self._publisher.try_one(message, timeout_s=RENEW_EVERY_S)
        if isinstance(result, Ack):
            return result.seq
        return 0 if result.lost_race else None

    async def _vacant(self) -> int | None:
        """The sequence to expect for taking it: 0 where nothing is, that of a delete marker, or of a renewal that no other has followed for the whole
        time on our clock (the server drops it too, but takes its time) or whose holder is gone; None while somebody holds it or nobody answers."""
        try:
            answer = await self._connection.request(
                f"$JS.API.DIRECT.GET.{STREAM}.{self._subject}", timeout_s=RENEW_EVERY_S
            )
        except (Disconnected, NoResponders, TimeoutError):
            return None
        if answer.status == "404":
            return 0
        fields = parse_headers(answer.headers)
        sequence = int(fields.get("Nats-Sequence", "0"))
        if not sequence:
            return None
        if OPERATION in fields or fields.get("Nats-Marker-Reason"):
            return sequence
        now = self._connection.now()
        if sequence != self._seen:
            self._seen, self._seen_at = sequence, now
        unseen = now - self._seen_at
        gone = unseen >= LEASE_TTL_S or (unseen >= GONE_AFTER_S and await self._is_gone(answer.payload))
        return sequence if gone else None

    async def _is_gone(self, value: bytes) -> bool:
        """Whether nobody listens to the consumer that the holder reads by; no, if it did not say which."""
        _, *reads_by = value.decode(errors="replace").split(" ")
        if len(reads_by) != 3:
            return False
        stream, name, inbox = reads_by
        try:
            found = await self._js.consumer_info(stream, name)
        except (*TROUBLE, PermissionError):
            return False
        return found is None or not found.push_bound or found.config.deliver_subject != inbox
