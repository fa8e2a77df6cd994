"""Node taints and tolerations on the command line: `KEY[=VALUE]:EFFECT`, several with commas."""

from __future__ import annotations

import re
from collections.abc import Iterable

from cli.ctl.cluster import CommandError, Json

EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_KEY = re.compile(r"^([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$")
_VALUE = re.compile(r"^([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?$")


def pairs(text: str, flag: str) -> dict[str, str]:
    """`k=v,k=v`. Raises CommandError naming the flag."""
    found: dict[str, str] = {}
    for part in filter(None, text.split(",")):
        key, equals, value = part.partition("=")
        if not equals or not key:
            raise CommandError(f"--{flag}: {part} must be formatted as key=value")
        found[key] = value
    return found


def taints(texts: Iterable[str]) -> list[Json]:
    """`spec.nodeTaints`. Raises CommandError."""
    found: list[Json] = []
    seen: set[tuple[str, str]] = set()
    for text in _parts(texts):
        rest, colon, effect = text.partition(":")
        key, equals, value = rest.partition("=")
        if not colon or ":" in effect or not _KEY.match(key) or not _VALUE.match(value):
            raise CommandError(f"invalid taint spec: {text}")
        _check(effect, text)
        if (key, effect) in seen:
            raise CommandError(f"duplicated taints with the same key and effect: {key}:{effect}")
        seen.add((key, effect))
        found.append({"key": key, **({"value": value} if equals else {}), "effect": effect})
    return found


def tolerations(texts: Iterable[str]) -> list[Json]:
    """`spec.tolerations`: Exists where the key or the value is missing, else Equal. Raises CommandError."""
    found: list[Json] = []
    for text in _parts(texts):
        rest, colon, effect = text.partition(":")
        key, equals, value = rest.partition("=")
        is_good = bool(_KEY.match(key)) if key else (bool(colon) and not equals)
        if not is_good or ":" in effect or not _VALUE.match(value):
            raise CommandError(f"invalid toleration spec: {text}")
        if colon:
            _check(effect, text)
        found.append(
            {
                **({"key": key} if key else {}),
                "operator": "Equal" if equals else "Exists",
                **({"value": value} if equals else {}),
                **({"effect": effect} if colon else {}),
            }
        )
    return found


def _parts(texts: Iterable[str]) -> Iterable[str]:
    return (part for text in texts for part in text.split(",") if part)


def _check(effect: str, text: str) -> None:
    if effect not in EFFECTS:
        raise CommandError(f"invalid taint effect: {text}, unsupported taint effect")
