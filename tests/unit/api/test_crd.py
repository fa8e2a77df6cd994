"""The schema building, on Structs made for the purpose."""

from datetime import datetime
from typing import Annotated, Literal

import msgspec
import pytest

from shared.api.crd import Crd, CrdVersion, PrinterColumn, manifest, structural_schema
from shared.api.schema_hints import (
    ApiStruct,
    Int32,
    RawQuantity,
    always,
    list_map,
    required,
    rules,
    schema,
)


class Part(ApiStruct, frozen=True, kw_only=True):
    """One part.

    This paragraph is for readers of the code.
    """

    name: Annotated[str, schema("Its name.", maxLength=5)]
    amount: Annotated[RawQuantity | None, schema("How much.")] = None
    note: str = required("")


class Spec(ApiStruct, frozen=True, kw_only=True):
    flag: bool = False
    mode: Annotated[Literal["Fast", "Careful"], schema(default="Fast")] = "Fast"
    long_name_of_field: Int32 | None = None
    when: datetime | None = None
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    parts: Annotated[
        tuple[Annotated[Part, rules(("self.name != ''", "no"))], ...], list_map("The parts.", "name", maxItems=3)
    ] = ()
    opaque: Annotated[Part | None, schema(x_kubernetes_preserve_unknown_fields=True)] = None


class Thing(ApiStruct, frozen=True, kw_only=True):
    """A thing."""

    kind: str = always("Thing")
    metadata: Part
    spec: Annotated[Spec, rules(("a", "b")), schema("Wanted.")] = Spec()


SPEC_SCHEMA = {
    "type": "object",
    "description": "Wanted.",
    "x-kubernetes-validations": [{"rule": "a", "message": "b"}],
    "properties": {
        "flag": {"type": "boolean"},
        "mode": {"type": "string", "enum": ["Careful", "Fast"], "default": "Fast"},
        "longNameOfField": {"type": "integer", "format": "int32"},
        "when": {"type": "string", "format": "date-time"},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        "parts": {
            "type": "array",
            "description": "The parts.",
            "maxItems": 3,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "items": {
                "type": "object",
                "description": "One part.",
                "required": ["name", "note"],
                "x-kubernetes-validations": [{"rule": "self.name != ''", "message": "no"}],
                "properties": {
                    "name": {"type": "string", "description": "Its name.", "maxLength": 5},
                    "note": {"type": "string"},
                    "amount": {
                        "description": "How much.",
                        "anyOf": [{"type": "integer"}, {"type": "string"}],
                        "x-kubernetes-int-or-string": True,
                        "pattern": r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?$",
                    },
                },
            },
        },
        "opaque": {"type": "object", "description": "One part.", "x-kubernetes-preserve-unknown-fields": True},
    },
}


def test_schema_of_a_struct() -> None:
    assert structural_schema(Thing, (("self == oldSelf", "fixed"),)) == {
        "type": "object",
        "description": "A thing.",
        "required": ["metadata"],
        "properties": {"kind": {"type": "string"}, "metadata": {"type": "object"}, "spec": SPEC_SCHEMA},
        "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "fixed"}],
    }


def test_a_type_without_a_schema_is_an_error_of_the_programmer() -> None:
    class Bad(ApiStruct, frozen=True, kw_only=True):
        metadata: Part
        raw: bytes = b""

    with pytest.raises(TypeError, match="no CRD schema"):
        structural_schema(Bad)


def test_versions_of_a_kind_share_one_definition() -> None:
    crd = Crd(
        kind="Thing",
        plural="things",
        namespaced=True,
        short_names=("th",),
        status=True,
        versions=(
            CrdVersion(name="v1beta1", struct=Thing, storage=False, deprecation_warning="use v1beta2"),
            CrdVersion(
                struct=Thing,
                columns=(PrinterColumn("Mode", ".spec.mode", priority=1), PrinterColumn("N", ".spec.n", "integer")),
                selectable_fields=(".spec.mode",),
            ),
        ),
    )
    definition = msgspec.json.decode(msgspec.json.encode(manifest(crd)))
    assert definition["metadata"]["name"] == "things.kueue.x-k8s.io"
    spec = definition["spec"]
    assert spec["scope"] == "Namespaced"
    assert spec["names"] == {
        "kind": "Thing",
        "listKind": "ThingList",
        "plural": "things",
        "singular": "thing",
        "shortNames": ["th"],
    }
    old, new = spec["versions"]
    assert (old["name"], old["storage"], old["deprecated"], old["deprecationWarning"]) == (
        "v1beta1",
        False,
        True,
        "use v1beta2",
    )
    assert (new["name"], new["storage"], new["served"]) == ("v1beta2", True, True)
    assert "deprecated" not in new
    assert new["additionalPrinterColumns"] == [
        {"name": "Mode", "type": "string", "jsonPath": ".spec.mode", "priority": 1},
        {"name": "N", "type": "integer", "jsonPath": ".spec.n"},
    ]
    assert new["selectableFields"] == [{"jsonPath": ".spec.mode"}]
    assert old["subresources"] == new["subresources"] == {"status": {}}
    assert old["schema"] == new["schema"]
