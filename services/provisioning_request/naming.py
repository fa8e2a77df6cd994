"""Names of ProvisioningRequests and PodTemplates, and the attempt that a name tells (topology-and-checks spec 15.2)."""

from __future__ import annotations

from hashlib import sha1

LIMIT = 247
"""Longer names are cut to this many characters, `-` and five hex digits of a hash follow."""
ATTEMPTS_LOOKED_AT = 200
"""A cut name hides its attempt in the hash: so many are tried to find it."""


def limited(full: str) -> str:
    """`full`, or what stands for it when it is too long for an object's name."""
    if len(full) <= LIMIT:
        return full
    return f"{full[:LIMIT]}-{sha1(full.encode(), usedforsecurity=False).hexdigest()[:5]}"


def request_name(workload: str, check: str, attempt: int) -> str:
    """The ProvisioningRequest of one attempt, from 1."""
    return limited(f"{workload}-{check}-{attempt}")


def template_name(request: str, pod_set: str) -> str:
    """The PodTemplate of one pod set of a request."""
    return limited(f"ppt-{request}-{pod_set}")


def attempt_of(request: str, workload: str, check: str) -> int | None:
    """Which attempt of this check of this workload the name tells; None: it belongs to another check."""
    prefix = limited(f"{workload}-{check}-")
    if request.startswith(prefix):
        digits = request[len(prefix) :]
        if digits.isascii() and digits.isdigit():
            return int(digits)
    if len(request) <= LIMIT:
        return None
    for attempt in range(1, ATTEMPTS_LOOKED_AT + 1):
        if request_name(workload, check, attempt) == request:
            return attempt
    return None
