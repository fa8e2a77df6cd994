"""The one place that makes and reads subjects.

NATS separates tokens with dots and keeps `*`, `>` and white space for itself, while Kubernetes names may hold dots. `escape` maps any
text to one token and back: everything but letters, digits, `-` and `_` becomes `%` and two hex digits of its UTF-8 bytes. A
cluster-scoped object has `_` in place of its namespace.
"""

from __future__ import annotations

import re
from functools import lru_cache
from sys import intern
from typing import NamedTuple

CLUSTER_SCOPE = "_"

_PLAIN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")
_UNESCAPED = re.compile(r"[A-Za-z0-9_-]+")
_ESCAPED = re.compile(r"%([0-9A-F]{2})")


def escape(text: str) -> str:
    """One subject token that stands for `text`; the empty text and a lone `_` are escaped too, so the result is never `_` by accident."""
    if text == CLUSTER_SCOPE:
        return "%5F"
    if _UNESCAPED.fullmatch(text):
        return text
    if not text:
        return "%"
    if _UNESCAPED.fullmatch(text):
        return text
    return "".join(chr(b) if b in _PLAIN else f"%{b:02X}" for b in text.encode())


def unescape(token: str) -> str:
    """The text that `escape` made `token` of. Raises ValueError if it made none."""
    if _UNESCAPED.fullmatch(token) and token != CLUSTER_SCOPE:
        return token
    if token == "%":
        return ""
    raw = _ESCAPED.sub(lambda m: chr(int(m.group(1), 16)), token)
    text = raw.encode("latin-1", errors="strict").decode()
    if escape(text) != token:
        raise ValueError(f"not an escaped subject token: {token!r}")
    return text


class ObjectName(NamedTuple):
    """What a subject names: the kind (lower case, singular), the namespace (`""` if cluster-scoped) and the name."""

    kind: str
    namespace: str
    name: str

    @property
    def key(self) -> str:
        """`namespace/name`, or the bare name of a cluster-scoped object; one string for all who keep it."""
        return intern(f"{self.namespace}/{self.name}") if self.namespace else self.name


def _scope(namespace: str) -> str:
    return escape(namespace) if namespace else CLUSTER_SCOPE


def _tail(scope: str, name: str, kind: str) -> ObjectName:
    return ObjectName(unescape(kind), "" if scope == CLUSTER_SCOPE else unescape(scope), unescape(name))


@lru_cache(maxsize=16384)
def objects(kind: str, namespace: str, name: str) -> str:
    """`sluice.objects.<kind>.<ns or _>.<name>`."""
    return f"sluice.objects.{escape(kind)}.{_scope(namespace)}.{escape(name)}"


def objects_of_kind(kind: str) -> str:
    """Filter for all objects of one kind."""
    return f"sluice.objects.{escape(kind)}.>"


@lru_cache(maxsize=16384)
def parse_objects(subject: str) -> ObjectName:
    """Inverse of `objects`. Raises ValueError for any other subject."""
    match subject.split("."):
        case ["sluice", "objects", kind, scope, name]:
            return _tail(scope, name, kind)
    raise ValueError(f"not a subject of OBJECTS: {subject!r}")


def decisions(shard: str, epoch: int) -> str:
    """`sluice.decisions.<shard>.<epoch>`: one subject, one stream, one order."""
    return f"sluice.decisions.{escape(shard)}.{epoch}"


def decisions_stream(shard: str, epoch: int) -> str:
    """Name of the stream that holds the decisions of one epoch of one shard."""
    return f"DECISIONS_{shard}_{epoch}"


OUTCOMES_OF_DECISIONS = "sluice.outcomes.decisions"
OUTCOMES_OF_COMMANDS = "sluice.outcomes.commands"


def command(writer: str, type_: str, kind: str, namespace: str, name: str) -> str:
    """`sluice.commands.<writer>.<type>.<kind>.<ns or _>.<name>`: the newest command of a type for an object replaces the one before."""
    return f"sluice.commands.{escape(writer)}.{escape(type_)}.{escape(kind)}.{_scope(namespace)}.{escape(name)}"


class CommandSubject(NamedTuple):
    """The parts of a subject of COMMANDS."""

    writer: str
    type: str
    target: ObjectName


def parse_command(subject: str) -> CommandSubject:
    """Inverse of `command`. Raises ValueError for any other subject."""
    match subject.split("."):
        case ["sluice", "commands", writer, type_, kind, scope, name]:
            return CommandSubject(unescape(writer), unescape(type_), _tail(scope, name, kind))
    raise ValueError(f"not a subject of COMMANDS: {subject!r}")


def event(namespace: str, type_: str, name: str) -> str:
    """`sluice.events.<ns or _>.<type>.<name>`, for example `sluice.events.team-a.workload.admitted.job-x-1a2b3` (type keeps its dots)."""
    return f"sluice.events.{_scope(namespace)}.{type_}.{escape(name)}"


def dead_letter(service: str) -> str:
    """`sluice.dead.<service>`."""
    return f"sluice.dead.{escape(service)}"


def rpc(service: str, method: str) -> str:
    """`sluice.rpc.<service>.<method>` (core NATS request and reply)."""
    return f"sluice.rpc.{escape(service)}.{escape(method)}"
