"""Who is the active gateway: leader election over a Lease of coordination.k8s.io, never over the bus, which a wipe would take along.

1. Read the Lease. Nobody's, released, or unchanged for its whole duration on our clock: take it, guarded by its resourceVersion.
2. Held: renew every `renew_s`. What `annotations` holds travels with the renewals; `save()` writes it at once.
3. No renewal that succeeded for `duration_s` less half a `renew_s`: in doubt, before anybody else can have it. `is_held` is false, and true again
   once a renewal succeeds: each is guarded by the version of the one before it, so nobody had it meanwhile. An API server that is slow for a moment
   costs that moment, and not a new start on top.
4. Held by somebody else, or gone: lost. `lost` is set and `run` returns.
5. Cancelled while held: give the Lease up, so that a standby need not wait (`release`).

Times of other machines are never compared with ours. Nothing here stops work: who works under the Lease asks `is_held` before a write and watches
`lost`, and every write has preconditions of its own (R2).
"""

from __future__ import annotations

import asyncio
import logging
import time
from datetime import UTC, datetime

import msgspec

from shared.kube.client import KubeClient
from shared.kube.errors import AlreadyExists, ApiError, Conflict, NotFound
from shared.kube.resources import LEASES

log = logging.getLogger("sluice.kube.lease")

_LOOKS_PER_RENEWAL = 4


class LeaseLost(Exception):
    """Somebody else is active now."""


class _Metadata(msgspec.Struct, rename="camel", omit_defaults=True):
    name: str = ""
    namespace: str = ""
    resource_version: str = ""
    annotations: dict[str, str] = {}


class _Spec(msgspec.Struct, rename="camel"):
    holder_identity: str | None = ""
    lease_duration_seconds: int | None = 0
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = 0


class _Lease(msgspec.Struct, rename="camel"):
    metadata: _Metadata
    spec: _Spec = msgspec.field(default_factory=_Spec)
    api_version: str = LEASES.api_version
    kind: str = LEASES.kind


_decoder = msgspec.json.Decoder(_Lease)


class LeaderLease:
    """One candidate for one Lease. `run()` until lost or cancelled; make a new one to try again."""

    def __init__(
        self,
        client: KubeClient,
        *,
        namespace: str,
        name: str,
        identity: str,
        duration_s: float = 3.0,
        renew_s: float = 1.0,
        release: bool = True,
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._name = name
        self.identity = identity
        self._duration_s = duration_s
        self._renew_s = renew_s
        self._release_when_cancelled = release
        self.annotations: dict[str, str] = {}
        """Of the Lease: as found until it is held, then what is written with the next renewal. Keys cannot be removed."""
        self.held = asyncio.Event()
        self.lost = asyncio.Event()
        self.holder = ""
        """Who held it when it was last read."""
        self._seen: _Lease | None = None
        self._seen_at = 0.0
        self._renewed_at = 0.0
        self._writing = asyncio.Lock()

    @property
    def is_held(self) -> bool:
        """Held, and beyond doubt. The clock counts, so that a process that was stopped for a while knows before it does anything."""
        if not self.held.is_set() or self.lost.is_set():
            return False
        # Others count from when they saw the last renewal, which was after it began.
        return asyncio.get_running_loop().time() < self._renewed_at + self._duration_s - self._renew_s / 2

    async def run(self) -> None:
        """Acquire, renew, and release when cancelled. Returns when the Lease is lost."""
        try:
            while True:
                if await self._try_acquire():
                    break
                # The holder's time counts from when we saw its last renewal: the sooner that is, the sooner we take over.
                await asyncio.sleep(self._renew_s / _LOOKS_PER_RENEWAL)
            log.info("active", extra={"lease": f"{self._namespace}/{self._name}", "identity": self.identity})
            self.held.set()
            await self._keep()
        finally:
            if self.held.is_set() and not self.lost.is_set():
                self.lost.set()
                if self._release_when_cancelled:
                    await self._release()

    async def save(self, annotations: dict[str, str]) -> None:
        """Write these annotations now. Raises LeaseLost, or the ApiError of the write, also while it is in doubt (try again)."""
        self.annotations.update(annotations)
        if not self.held.is_set() or self.lost.is_set():
            raise LeaseLost(f"{self._namespace}/{self._name} is not held")
        if not await self._renew():
            raise LeaseLost(f"{self._namespace}/{self._name} was taken by somebody else")

    async def _keep(self) -> None:
        loop = asyncio.get_running_loop()
        pause, in_doubt = self._renew_s, False
        while not self.lost.is_set():
            await asyncio.sleep(pause)
            try:
                if not await self._renew():
                    log.error("lease taken by somebody else")
                    return
            except ApiError as error:
                log.warning("lease not renewed: %s", error)
                if not in_doubt and not self.is_held:
                    in_doubt = True
                    log.error("lease in doubt: not renewed in time")
                pause = self._renew_s / 4
            else:
                if in_doubt:
                    in_doubt = False
                    log.warning("lease held again: nobody else had it")
                # From when the renewal began: a slow answer must not eat the time of the next one.
                pause = max(0.0, self._renewed_at + self._renew_s - loop.time())

    async def _try_acquire(self) -> bool:
        try:
            found = await self._read()
            if found is None:
                return await self._create()
            if not self._is_free(found):
                return False
            self.annotations = dict(found.metadata.annotations)
            return await self._write(self._claim(found), acquired=True)
        except ApiError as error:
            log.warning("lease cannot be read or taken: %s", error)
            return False

    async def _read(self) -> _Lease | None:
        try:
            found = _decoder.decode(await self._client.get(LEASES, self._namespace, self._name))
        except NotFound:
            return None
        if self._seen is None or self._seen.metadata.resource_version != found.metadata.resource_version:
            self._seen_at = asyncio.get_running_loop().time()
        self._seen = found
        self.holder = found.spec.holder_identity or ""
        if not self.is_held:
            self.annotations = dict(found.metadata.annotations)
        return found

    def _is_free(self, found: _Lease) -> bool:
        if not found.spec.holder_identity or found.spec.holder_identity == self.identity:
            return True
        duration = max(self._duration_s, float(found.spec.lease_duration_seconds or 0))
        return asyncio.get_running_loop().time() - self._seen_at >= duration

    def _claim(self, found: _Lease) -> _Lease:
        now = _micro_time()
        transitions = (found.spec.lease_transitions or 0) + (found.spec.holder_identity != self.identity)
        spec = _Spec(self.identity, max(1, round(self._duration_s)), now, now, transitions)
        return _Lease(_Metadata(resource_version=found.metadata.resource_version), spec)

    async def _create(self) -> bool:
        claim = self._claim(_Lease(_Metadata()))
        claim.metadata = _Metadata(self._name, self._namespace, "", self.annotations)
        started = asyncio.get_running_loop().time()
        try:
            body = await self._client.create(LEASES, self._namespace, msgspec.json.encode(claim))
        except AlreadyExists:
            return False
        self._seen, self._renewed_at = _decoder.decode(body), started
        return True

    async def _renew(self) -> bool:
        async with self._writing:
            seen = self._seen
            assert seen is not None
            spec = msgspec.structs.replace(seen.spec, renew_time=_micro_time())
            return await self._write(_Lease(_Metadata(resource_version=seen.metadata.resource_version), spec))

    async def _write(self, claim: _Lease, *, acquired: bool = False) -> bool:
        """False when somebody else holds it. A conflict with our own late write is resolved by reading again."""
        for _ in range(3):
            claim.metadata.annotations = self.annotations
            started = asyncio.get_running_loop().time()
            try:
                body = await self._client.patch(LEASES, self._namespace, self._name, msgspec.json.encode(claim))
            except (Conflict, NotFound):
                found = await self._read()
                if found is None or found.spec.holder_identity != self.identity:
                    if not acquired:
                        self.lost.set()
                    return False
                claim.metadata.resource_version = found.metadata.resource_version
                continue
            self._seen, self._renewed_at = _decoder.decode(body), started
            return True
        raise Conflict(409, "Conflict", "somebody keeps changing the Lease")

    async def _release(self) -> None:
        seen = self._seen
        if seen is None:
            return
        try:
            for _ in range(2):
                spec = msgspec.structs.replace(seen.spec, holder_identity="", renew_time=_micro_time())
                version = seen.metadata.resource_version
                free = _Lease(_Metadata(resource_version=version, annotations=self.annotations), spec)
                try:
                    await self._client.patch(LEASES, self._namespace, self._name, msgspec.json.encode(free))
                    return
                except Conflict:
                    # Mostly our own renewal, which was on its way when we were cancelled.
                    found = await self._read()
                    if found is None or found.spec.holder_identity != self.identity:
                        return
                    seen = found
        except ApiError as error:
            log.warning("lease not released: %s", error)


def _micro_time() -> str:
    return datetime.fromtimestamp(time.time(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
