"""Refusals in the form Kubernetes users know: field path, kind of error, the value, why."""

from __future__ import annotations

import json

import msgspec


class FieldError(msgspec.Struct, frozen=True):
    """One fault of one field; `str()` is the text that users see.

    `kind` is Kubernetes' words for it. `origin` names the rule of Kubernetes that was broken (`format=k8s-label-key`), for programs.
    """

    path: str
    kind: str
    value: str = ""
    detail: str = ""
    origin: str = ""

    def __str__(self) -> str:
        text = f"{self.path}: {self.kind}"
        if self.value:
            text += f": {self.value}"
        return f"{text}: {self.detail}" if self.detail else text


def _shown(value: object) -> str:
    return json.dumps(msgspec.to_builtins(value), sort_keys=True, ensure_ascii=False)


def invalid(path: str, value: object, detail: str, origin: str = "") -> FieldError:
    """The value cannot be accepted."""
    return FieldError(path, "Invalid value", _shown(value), detail, origin)


def immutable(path: str, value: object) -> FieldError:
    """The field may not change."""
    return invalid(path, value, "field is immutable")


def not_found(path: str, value: object) -> FieldError:
    """What the value refers to does not exist."""
    return FieldError(path, "Not found", _shown(value))


def duplicate(path: str, value: object) -> FieldError:
    """The value is there twice."""
    return FieldError(path, "Duplicate value", _shown(value))


def required(path: str, detail: str) -> FieldError:
    """The value is missing."""
    return FieldError(path, "Required value", "", detail)


def forbidden(path: str, detail: str) -> FieldError:
    """The field may not be set, or not be changed."""
    return FieldError(path, "Forbidden", "", detail)


def too_many(path: str, actual: int, limit: int) -> FieldError:
    """More items than allowed."""
    return FieldError(path, "Too many", str(actual), f"must have at most {limit} items")


def too_long(path: str, limit: int) -> FieldError:
    """A text longer than allowed."""
    return FieldError(path, "Too long", "", f"may not be more than {limit} bytes")


def not_supported(path: str, value: object, supported: list[str]) -> FieldError:
    """None of the values that are possible here."""
    return FieldError(
        path, "Unsupported value", _shown(value), "supported values: " + ", ".join(map(_shown, supported))
    )


def joined(errors: list[FieldError]) -> str:
    """All of them as one text: one as it is, several in brackets, each said once."""
    texts = list(dict.fromkeys(map(str, errors)))
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
