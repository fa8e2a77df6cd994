"""docs/asyncapi.yaml is current, is what AsyncAPI 3 asks for, and describes the very bytes that are published."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, get_args

import pytest
import yaml

from cli.asyncapi import TARGET, document, render
from devcluster.stack import ROOT
from shared.events import cloudevents, subjects
from tests.unit.events.samples import EVENTS, envelope, read_golden, sample

DOCUMENT = yaml.safe_load((ROOT / TARGET).read_text())
ROOT_FIELDS = {"asyncapi", "id", "info", "servers", "defaultContentType", "channels", "operations", "components"}
NAMES = [type_.__struct_config__.tag for type_ in get_args(cloudevents.Data)]
KEY = re.compile(r"[A-Za-z0-9._-]+")


def resolve(reference: str) -> Any:
    """What a `$ref` within the document points at. Raises KeyError."""
    found: Any = DOCUMENT
    assert reference.startswith("#/")
    for part in reference[2:].split("/"):
        found = found[part]
    return found


def references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if "$ref" in node:
            yield node["$ref"]
        for value in node.values():
            yield from references(value)
    elif isinstance(node, list):
        for value in node:
            yield from references(value)


TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}
ANNOTATIONS = {"title", "description", "default"}


def complaints(schema: dict[str, Any], value: Any, at: str = "$") -> Iterator[str]:
    """Why a value does not fit a schema, for the part of JSON Schema that the document uses; another keyword is a complaint too."""
    for word, rule in schema.items():
        match word:
            case "$ref":
                yield from complaints(resolve(rule), value, at)
            case "allOf":
                for one in rule:
                    yield from complaints(one, value, at)
            case "anyOf":
                if all(list(complaints(one, value, at)) for one in rule):
                    yield f"{at}: fits none"
            case "type":
                if not isinstance(value, TYPES[rule]) or (rule != "boolean" and isinstance(value, bool)):
                    yield f"{at}: no {rule}"
            case "const":
                if value != rule:
                    yield f"{at}: not {rule!r}"
            case "enum":
                if value not in rule:
                    yield f"{at}: none of {rule}"
            case "required":
                yield from (f"{at}.{name}: missing" for name in rule if name not in value)
            case "properties":
                for name, one in rule.items():
                    if name in value:
                        yield from complaints(one, value[name], f"{at}.{name}")
            case "additionalProperties":
                for name, one in value.items():
                    if name not in schema.get("properties", {}):
                        yield from complaints(rule, one, f"{at}.{name}")
            case _ if word not in ANNOTATIONS:
                yield f"{at}: keyword {word}"


def test_it_is_current() -> None:
    assert (ROOT / TARGET).read_text() == render(), "run `make docs`"
    assert document() == DOCUMENT


def test_the_top_is_that_of_asyncapi_3() -> None:
    assert re.fullmatch(r"3\.\d+\.\d+", DOCUMENT["asyncapi"])
    assert set(DOCUMENT) <= ROOT_FIELDS
    assert DOCUMENT["info"]["title"]
    assert re.fullmatch(r"\d+\.\d+\.\d+", DOCUMENT["info"]["version"])
    for server in DOCUMENT["servers"].values():
        assert {"host", "protocol"} <= set(server)
    for section in ("channels", "operations"):
        assert all(KEY.fullmatch(name) for name in DOCUMENT[section])
    assert all(KEY.fullmatch(n) for kind in DOCUMENT["components"].values() for n in kind)


def test_every_reference_leads_somewhere() -> None:
    found = set(references(DOCUMENT))
    assert found
    for reference in found:
        assert isinstance(resolve(reference), dict), reference
    used = {r.rpartition("/")[2] for r in found if r.startswith("#/components/schemas/")}
    assert used == set(DOCUMENT["components"]["schemas"])


@pytest.mark.parametrize("name", NAMES)
def test_channel_operation_and_message_of_an_event(name: str) -> None:
    channel = DOCUMENT["channels"][name]
    assert set(re.findall(r"\{(\w+)\}", channel["address"])) == set(channel["parameters"])
    assert list(channel["messages"]) == [name]
    (operation,) = [o for o in DOCUMENT["operations"].values() if o["channel"]["$ref"] == f"#/channels/{name}"]
    # Of the application that the document describes: Sluice sends them.
    assert operation["action"] == "send"
    # An operation names the messages of its channel, not those of the components.
    assert operation["messages"] == [{"$ref": f"#/channels/{name}/messages/{name}"}]
    message = resolve(channel["messages"][name]["$ref"])
    assert message["name"] == f"{cloudevents.TYPE_PREFIX}{name}.v1"
    assert message["contentType"] == "application/cloudevents+json"
    assert message["summary"]


def test_there_is_nothing_else() -> None:
    for section in (DOCUMENT["channels"], DOCUMENT["components"]["messages"]):
        assert list(section) == NAMES
    assert len(DOCUMENT["operations"]) == len(NAMES)


@pytest.mark.parametrize("type_", EVENTS)
def test_what_is_published_fits_the_schema_and_the_address(type_: type) -> None:
    event = envelope(sample(type_))
    name = cloudevents.event_name(event.data)
    published = json.loads(cloudevents.encode(event))
    payload = DOCUMENT["components"]["messages"][name]["payload"]
    assert list(complaints(payload, published)) == []
    address = DOCUMENT["channels"][name]["address"]
    filled = address.format(
        namespace=subjects.escape(event.data.namespace), workload=subjects.escape(event.data.workload)
    )
    assert filled == cloudevents.subject_of(event.data)


@pytest.mark.parametrize("name", NAMES)
def test_bytes_of_every_version_fit(name: str) -> None:
    kept = read_golden()[f"{cloudevents.TYPE_PREFIX}{name}.v1"]
    assert list(complaints(DOCUMENT["components"]["messages"][name]["payload"], json.loads(kept["json"]))) == []


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"specversion": "0.3"}, "$.specversion: not '1.0'"),
        ({"type": "dev.sluice.workload.started.v1"}, "$.type: not 'dev.sluice.workload.created.v1'"),
        ({"data": {}}, "$.data.event: missing"),
        ({"id": 5}, "$.id: no string"),
    ],
)
def test_what_is_not_published_does_not(change: dict[str, object], complaint: str) -> None:
    event = json.loads(cloudevents.encode(envelope(sample(cloudevents.Created))))
    payload = DOCUMENT["components"]["messages"]["created"]["payload"]
    assert complaint in list(complaints(payload, event | change))
