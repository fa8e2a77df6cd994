"""All requests that the API server answered, reads and watches included, from its own counter, `apiserver_request_total`."""

from __future__ import annotations

import re
from collections import Counter

import msgspec

_LINE = re.compile(rb"^apiserver_request_total\{([^}]*)\} ([0-9.e+]+)$", re.MULTILINE)
_LABEL = re.compile(rb'([a-z_]+)="([^"]*)"')

Requests = Counter[tuple[str, str]]
"""(verb, resource with subresource) -> requests."""


class RequestCount(msgspec.Struct, frozen=True):
    """Requests of one kind during a run, whoever made them."""

    verb: str
    resource: str
    count: int


def read_requests(metrics: bytes) -> Requests:
    """From the text of /metrics."""
    found: Requests = Counter()
    for labels, value in _LINE.findall(metrics):
        of = {name.decode(): text.decode() for name, text in _LABEL.findall(labels)}
        resource = of.get("resource", "")
        if of.get("subresource"):
            resource += f"/{of['subresource']}"
        found[of.get("verb", ""), resource] += int(float(value))
    return found


def difference(before: Requests, after: Requests) -> tuple[RequestCount, ...]:
    """What was added, most first; the counter of a server that was started anew begins at 0."""
    added = {key: n - before[key] if n >= before[key] else n for key, n in after.items()}
    found = [RequestCount(verb, resource, n) for (verb, resource), n in added.items() if n]
    return tuple(sorted(found, key=lambda r: (-r.count, r.verb, r.resource)))
