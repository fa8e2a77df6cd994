"""Names of the objects that are made for a job: its Workload, and what admission checks derive from that.

Names are a contract: users and tools find a job's Workload by them (job specification 7.1), and a repeated creation must hit the same object.
"""

import re
from hashlib import sha1

from shared.api import names

NAME_LIMIT = 253
SHORT_NAME_LIMIT = 63
"""Limit with short workload names switched on."""
_HASH_DIGITS = 5
_HASH_AT_END = re.compile(rf"-[0-9a-f]{{{_HASH_DIGITS}}}$")


def workload_name(*, kind: str, group: str, name: str, uid: str, extra: str = "", limit: int = NAME_LIMIT) -> str:
    """`<kind>-<name>-<hash>`: the kind in lower case, cut in bytes so that the whole stays within `limit`; the hash tells equal cuts, re-created jobs and
    slices (`extra`) apart."""
    parts = [kind, group, name, uid]
    if extra:
        parts.append(extra)
    prefix = f"{kind.lower()}-{name}".encode()[: limit - _HASH_DIGITS - 1].decode(errors="ignore")
    return f"{prefix}-{_digits(chr(10).join(parts))}"


def variant_name(parent: str, flavor: str, limit: int = NAME_LIMIT) -> str:
    """Name of the workload that tries one flavor for `parent`, which is the name of a workload (job specification 7.1)."""
    prefix = f"{_HASH_AT_END.sub('', parent)}-variant-{flavor}"[: limit - _HASH_DIGITS - 1]
    return f"{prefix}-{_digits(chr(10).join((names.WORKLOAD, names.GROUP, parent, '', flavor)))}"


def limited_name(full: str, limit: int = NAME_LIMIT) -> str:
    """`full`, or, when it is longer than leaves room for a hash, its beginning and a hash of the whole (checks specification 15.2)."""
    room = limit - _HASH_DIGITS - 1
    return full if len(full) <= room else f"{full[:room]}-{_digits(full)}"


def pod_template_name(provisioning_request: str, pod_set: str) -> str:
    """Name of the PodTemplate that a ProvisioningRequest uses for one pod set."""
    return limited_name(f"ppt-{provisioning_request}-{pod_set}")


def _digits(text: str) -> str:
    return sha1(text.encode(), usedforsecurity=False).hexdigest()[:_HASH_DIGITS]
