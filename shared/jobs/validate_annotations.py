"""Validation of annotations that jobs and workloads share: gates on their admission, a boost of their priority (core specification 1.7). Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from shared.api import names
from shared.api.field_errors import FieldError, forbidden, invalid, too_long
from shared.api.validation import dns_subdomain_errors, int32

_GATED_BY = f"metadata.annotations[{names.ADMISSION_GATED_BY}]"
_BOOST = f"metadata.annotations[{names.PRIORITY_BOOST}]"
_MAX_GATE_LENGTH = 63
_PATH = re.compile(r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+", re.ASCII)
"""What RFC 3986 allows in a path."""


def gate_errors(annotations: Mapping[str, str]) -> Iterator[FieldError]:
    """Faults in the form of `admission-gated-by`: a comma list of domain-prefixed paths, each once."""
    if names.ADMISSION_GATED_BY not in annotations:
        return
    value = annotations[names.ADMISSION_GATED_BY]
    gates = [gate.strip() for gate in value.split(",")]
    for gate in gates:
        yield from _gate_errors(gate, value)
    named = [gate for gate in gates if gate]
    if len(set(named)) < len(named):
        yield invalid(_GATED_BY, value, "must not contain a name twice")


def _gate_errors(gate: str, value: str) -> Iterator[FieldError]:
    host, slash, path = gate.partition("/")
    if not gate:
        yield invalid(_GATED_BY, value, "must not contain an empty name")
    elif len(gate) > _MAX_GATE_LENGTH:
        yield too_long(_GATED_BY, _MAX_GATE_LENGTH)
    elif not (slash and host and path):
        yield invalid(_GATED_BY, gate, "must be a domain-prefixed path, such as example.com/name")
    else:
        yield from (invalid(_GATED_BY, host, f"the domain {detail}") for detail in dns_subdomain_errors(host))
        if not _PATH.fullmatch(path):
            yield invalid(_GATED_BY, path, "the part after the domain must be a path as in RFC 3986")


def gate_change_errors(annotations: Mapping[str, str], before: Mapping[str, str]) -> Iterator[FieldError]:
    """Faults of a change of `admission-gated-by`: it is set on creation, later names are only removed."""
    if _gates(annotations) - _gates(before):
        yield forbidden(_GATED_BY, "gates can only be set on creation, and removed afterwards")


def _gates(annotations: Mapping[str, str]) -> set[str]:
    return {gate.strip() for gate in annotations.get(names.ADMISSION_GATED_BY, "").split(",") if gate.strip()}


def boost_errors(annotations: Mapping[str, str]) -> Iterator[FieldError]:
    """Faults of `priority-boost`: an int32 in decimal digits."""
    value = annotations.get(names.PRIORITY_BOOST)
    if value is not None and int32(value) is None:
        yield invalid(_BOOST, value, "must be a signed 32-bit integer")
