"""Syntax of Kubernetes names and labels. Each function returns the faults as texts; an empty list means valid.

Source: the object names page of the Kubernetes documentation (RFC 1123 labels and subdomains, label syntax).
"""

import re

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", re.ASCII)
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.ASCII)
_QUALIFIED = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]", re.ASCII)
_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?", re.ASCII)
_INTEGER = re.compile(r"([+-]?)0*([0-9]{1,10})", re.ASCII)
_INT32 = range(-(2**31), 2**31)


def int32(value: str) -> int | None:
    """The signed 32-bit integer that a label or an annotation holds in decimal digits; None if it is none. Annotations can be long: Python itself takes
    no more than some thousand digits."""
    match = _INTEGER.fullmatch(value)
    if match is None:
        return None
    number = int(match[1] + match[2])
    return number if number in _INT32 else None


def dns_label_errors(name: str) -> list[str]:
    """RFC 1123 label: at most 63 lower-case letters, digits and '-'."""
    errors = _too_long(name, 63)
    if not _LABEL.fullmatch(name):
        errors.append("must be lower-case letters, digits or '-', and start and end with a letter or digit")
    return errors


def dns_subdomain_errors(name: str) -> list[str]:
    """RFC 1123 subdomain: labels joined by dots, at most 253 characters in all."""
    errors = _too_long(name, 253)
    if not _SUBDOMAIN.fullmatch(name):
        errors.append("must be lower-case letters, digits, '-' or '.', and start and end with a letter or digit")
    return errors


def label_key_errors(key: str) -> list[str]:
    """A label or annotation key, a resource name, a taint key: [dns-subdomain/]name."""
    if key.count("/") > 1:
        return ["must be a name, with at most one prefix and '/' before it"]
    prefix, slash, name = key.rpartition("/")
    errors: list[str] = []
    if slash:
        errors += (
            [f"prefix {text}" for text in dns_subdomain_errors(prefix)] if prefix else ["prefix must not be empty"]
        )
    errors += [f"name {text}" for text in _too_long(name, 63)] if name else ["name must not be empty"]
    if not _QUALIFIED.fullmatch(name):
        errors.append("name must be letters, digits, '-', '_' or '.', and start and end with a letter or digit")
    return errors


def label_value_errors(value: str) -> list[str]:
    """A label value: empty, or at most 63 characters like a label name."""
    errors = _too_long(value, 63)
    if not _VALUE.fullmatch(value):
        errors.append("must be letters, digits, '-', '_' or '.', and start and end with a letter or digit")
    return errors


def labels_errors(labels: dict[str, str]) -> list[str]:
    """Faults of a whole label map, each led by its key."""
    return [
        f"{key!r}: {text}"
        for key, value in labels.items()
        for text in (*label_key_errors(key), *label_value_errors(value))
    ]


def _too_long(text: str, limit: int) -> list[str]:
    return [f"must be no more than {limit} characters"] if len(text) > limit else []
