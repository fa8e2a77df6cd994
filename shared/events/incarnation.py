"""The incarnation of a workload: which state of it a decision was about (R2).

`metadata.generation` alone misses every change of status. The hash covers what makes an old decision wrong: the spec, the reservation, and each
eviction and requeue.
"""

from __future__ import annotations

from hashlib import blake2s


def incarnation(
    *,
    uid: str,
    generation: int,
    reserved_in: str,
    reserved_at: int,
    evicted: tuple[bool, int],
    requeued: tuple[bool | None, int],
    requeue_at: int | None,
    evictions: int,
) -> str:
    """12 hex digits. `reserved_in`: ClusterQueue of a true reservation, else empty, `reserved_at` its time (0 without one);
    `evicted` and `requeued`: truth and transition time in seconds of those conditions (Requeued None when absent)."""
    parts = (uid, generation, reserved_in, reserved_at, evicted, requeued, requeue_at, evictions)
    return blake2s(repr(parts).encode(), digest_size=6).hexdigest()
