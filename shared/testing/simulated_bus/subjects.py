"""Matching of subjects with wildcards, as NATS has it."""

from __future__ import annotations

from collections.abc import Callable, Iterable


def matches(pattern: str, subject: str) -> bool:
    """`*` is one token, `>` one or more at the end."""
    tokens, parts = subject.split("."), pattern.split(".")
    if parts[-1] == ">":
        parts = parts[:-1]
        if len(tokens) <= len(parts):
            return False
    elif len(parts) != len(tokens):
        return False
    return all(part in ("*", token) for part, token in zip(parts, tokens, strict=False))


def matcher(patterns: Iterable[str]) -> Callable[[str], bool]:
    """Does a subject match one of the patterns? None of them: everything does. Literal patterns and those that end in `>` alone are looked up quickly."""
    patterns = tuple(patterns)
    if not patterns:
        return lambda _: True
    literal = frozenset(p for p in patterns if "*" not in p and not p.endswith(">"))
    prefixes = tuple(p[:-1] for p in patterns if p.endswith(">") and "*" not in p)
    others = tuple(p for p in patterns if "*" in p)

    def wanted(subject: str) -> bool:
        return (
            subject in literal
            or (bool(prefixes) and subject.startswith(prefixes))
            or (bool(others) and any(matches(p, subject) for p in others))
        )

    return wanted
