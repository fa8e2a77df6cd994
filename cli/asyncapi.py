"""Makes docs/asyncapi.yaml, the AsyncAPI 3 document of the public events: `python -m cli.asyncapi`, with `--check` to see whether it is current.

It says what docs/events.md says, for programs: a channel, an operation and a message per type of event, with the schema of its whole payload.
"""

from __future__ import annotations

import copy
import inspect
import sys
from pathlib import Path
from typing import Any, get_args

import msgspec
import typer
import yaml

from shared.events import cloudevents, subjects
from shared.events.streams import READER

TARGET = Path("docs/asyncapi.yaml")
ASYNCAPI = "3.0.0"
VERSION = "1.0.0"
"""Of the contract: the middle number counts fields and events that were added; nothing else happens to it (docs/events.md)."""

Document = dict[str, Any]

_HEADER = "# Generated from shared/events by `make docs`; do not edit.\n"
_SCHEMAS = "#/components/schemas/{name}"
_SCOPE, _NAME = "NAMESPACE", "WORKLOAD"


def document() -> Document:
    """The whole document, of plain values that share nothing."""
    events = get_args(cloudevents.Data)
    names = [type_.__struct_config__.tag for type_ in events]
    made = {
        "asyncapi": ASYNCAPI,
        "info": {
            "title": "Sluice events",
            "version": VERSION,
            "description": "What happens to workloads, as it happens: CloudEvents 1.0, structured JSON mode. "
            "Delivery is at least once, events of one workload are in order. A field may be added at any time; anything else makes a new type.",
        },
        "defaultContentType": cloudevents.CONTENT_TYPE,
        "servers": {
            "nats": {
                "host": "127.0.0.1:4222",
                "protocol": "nats",
                "description": f"The bus; readers use the user {READER}.",
                "security": [{"$ref": "#/components/securitySchemes/user"}],
            }
        },
        "channels": {name: _channel(name) for name in names},
        "operations": {
            f"send_{name}": {
                "action": "send",
                "channel": {"$ref": f"#/channels/{name}"},
                "messages": [{"$ref": f"#/channels/{name}/messages/{name}"}],
            }
            for name in names
        },
        "components": {
            "messages": {type_.__struct_config__.tag: _message(type_) for type_ in events},
            "schemas": _schemas(events),
            "securitySchemes": {"user": {"type": "userPassword"}},
        },
    }
    return copy.deepcopy(made)


def render() -> str:
    """The file."""
    return _HEADER + yaml.safe_dump(document(), sort_keys=False, width=140, allow_unicode=True)


def _channel(name: str) -> Document:
    address = subjects.event(_SCOPE, f"workload.{name}", _NAME)
    return {
        "address": address.replace(_SCOPE, "{namespace}").replace(_NAME, "{workload}"),
        "servers": [{"$ref": "#/servers/nats"}],
        "parameters": {
            "namespace": {"description": "Namespace of the workload."},
            "workload": {"description": "Its name; characters that a subject cannot hold are % and two hex digits."},
        },
        "messages": {name: {"$ref": f"#/components/messages/{name}"}},
    }


def _message(type_: Any) -> Document:
    name = type_.__struct_config__.tag
    own = {
        "type": "object",
        "required": ["type", "data"],
        "properties": {
            "type": {"const": f"{cloudevents.TYPE_PREFIX}{name}.v1"},
            "data": {"$ref": _SCHEMAS.format(name=type_.__name__)},
        },
    }
    return {
        "name": f"{cloudevents.TYPE_PREFIX}{name}.v1",
        "title": type_.__name__,
        "summary": " ".join((inspect.getdoc(type_) or "").split()),
        "contentType": cloudevents.CONTENT_TYPE,
        "payload": {"allOf": [{"$ref": _SCHEMAS.format(name="CloudEvent")}, own]},
    }


def _schemas(events: tuple[Any, ...]) -> Document:
    _, schemas = msgspec.json.schema_components((cloudevents.CloudEvent, *events), ref_template=_SCHEMAS)
    # Of which event the data are is the message's to say; the union would bring a discriminator of another dialect.
    envelope = schemas["CloudEvent"]
    envelope["properties"]["data"] = {"type": "object"}
    # It is always written (`cloudevents.encode`), although it has a default.
    envelope["properties"]["specversion"] = {"const": cloudevents.SPEC_VERSION}
    envelope["required"] = sorted({*envelope["required"], "specversion"})
    return dict(sorted(schemas.items()))


def main(check: bool = False) -> None:
    """Write the document, or with --check end with 1 if the file differs from it."""
    text = render()
    if check:
        if not TARGET.exists() or TARGET.read_text() != text:
            sys.exit(f"{TARGET} is not current: run `make docs`")
        return
    TARGET.write_text(text)


if __name__ == "__main__":
    typer.run(main)
