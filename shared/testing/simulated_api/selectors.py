"""Label and field selectors of lists and watches, from the text of a query."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from shared.api.selectors import LabelSelectorRequirement, requirement_matches
from shared.jobs.manifest import JsonObject, text, texts
from shared.kube.errors import Refused

Matches = Callable[[JsonObject], bool]

_SET = re.compile(r"(?P<key>[^\s!=,()]+)\s+(?P<operator>in|notin)\s+\((?P<values>[^)]*)\)")
_EQUAL = re.compile(r"(?P<key>[^\s!=,()]+)\s*(?P<operator>==|=|!=)\s*(?P<value>[^\s,()]*)")
_PRESENT = re.compile(r"(?P<absent>!?)\s*(?P<key>[^\s!=,()]+)")


def selection(query: Mapping[str, str]) -> Matches | None:
    """What a list or watch with this query shows; None: everything. Raises Refused for a selector that is none."""
    labels = _requirements(query.get("labelSelector", ""))
    fields = [_field(part) for part in query.get("fieldSelector", "").split(",") if part.strip()]
    if not labels and not fields:
        return None

    def shows(document: JsonObject) -> bool:
        found = texts(document, "metadata", "labels")
        return all(requirement_matches(one, found) for one in labels) and all(
            (text(document, *path) == value) is equal for path, equal, value in fields
        )

    return shows


def _requirements(selector: str) -> list[LabelSelectorRequirement]:
    found: list[LabelSelectorRequirement] = []
    rest = selector.strip()
    while rest:
        if match := _SET.match(rest):
            values = tuple(value.strip() for value in match["values"].split(","))
            operator = "In" if match["operator"] == "in" else "NotIn"
            found.append(LabelSelectorRequirement(key=match["key"], operator=operator, values=values))
        elif match := _EQUAL.match(rest):
            operator = "NotIn" if match["operator"] == "!=" else "In"
            found.append(LabelSelectorRequirement(key=match["key"], operator=operator, values=(match["value"],)))
        elif match := _PRESENT.match(rest):
            found.append(
                LabelSelectorRequirement(key=match["key"], operator="DoesNotExist" if match["absent"] else "Exists")
            )
        else:
            raise Refused(400, "BadRequest", f"unable to parse requirement: {selector}")
        rest = rest[match.end() :].lstrip()
        if rest and not rest.startswith(","):
            raise Refused(400, "BadRequest", f"unable to parse requirement: {selector}")
        rest = rest[1:].lstrip()
    return found


def _field(part: str) -> tuple[list[str], bool, str]:
    match = _EQUAL.fullmatch(part.strip())
    if match is None:
        raise Refused(400, "BadRequest", f"invalid field selector: {part}")
    return match["key"].split("."), match["operator"] != "!=", match["value"]
