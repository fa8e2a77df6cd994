"""CustomResourceDefinitions made from the Structs of this package: the Structs are the source, the YAML is output.

1. `structural_schema` walks a Struct (msgspec.inspect) and gives the OpenAPI v3 schema the API server wants: types from
   Python types, limits and rules from the hints, `required` for fields without a default (or marked so), descriptions from docstrings.
2. `manifest` wraps the schemas of a kind's versions into one CustomResourceDefinition.

Which kinds there are stands in shared.api.crd_kinds; writing files is not done here (cli.crds).
"""

import inspect
from collections.abc import Mapping, Sequence

import msgspec
from msgspec import inspect as types

from shared.api import names
from shared.api.schema_hints import Json, RequiredOnWire, Rule, validations

Schema = dict[str, Json]

CONVERSION_NAMESPACE = "kueue-system"
CONVERSION_PATH = "/convert"


class PrinterColumn(msgspec.Struct, frozen=True):
    """A column of `kubectl get`; priority 1 shows with `-o wide` only."""

    name: str
    json_path: str
    type: str = "string"
    priority: int = 0


class CrdVersion(msgspec.Struct, frozen=True, kw_only=True):
    """One served version of a kind; `struct` is its Python form."""

    struct: type[msgspec.Struct]
    name: str = names.V1BETA2
    columns: tuple[PrinterColumn, ...] = ()
    rules: tuple[Rule, ...] = ()
    selectable_fields: tuple[str, ...] = ()
    storage: bool = True
    deprecation_warning: str = ""


class Crd(msgspec.Struct, frozen=True, kw_only=True):
    """One kind. `status` says whether it has the status subresource, `converted` whether a webhook converts between its versions (else the
    API server only changes apiVersion and prunes)."""

    kind: str
    plural: str
    namespaced: bool = False
    short_names: tuple[str, ...] = ()
    status: bool = False
    converted: bool = False
    versions: tuple[CrdVersion, ...]

    @property
    def name(self) -> str:
        return f"{self.plural}.{names.GROUP}"


def manifest(crd: Crd) -> Schema:
    """The CustomResourceDefinition object (apiextensions.k8s.io/v1)."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": crd.name},
        "spec": {
            "group": names.GROUP,
            "names": {
                "kind": crd.kind,
                "listKind": f"{crd.kind}List",
                "plural": crd.plural,
                "singular": crd.kind.lower(),
                "shortNames": list(crd.short_names),
            },
            "scope": "Namespaced" if crd.namespaced else "Cluster",
            "conversion": _conversion(crd),
            "versions": [_version(crd, version) for version in crd.versions],
        },
    }


def _conversion(crd: Crd) -> Schema:
    """The gateway adds the CA, and an address where the API server cannot reach a Service."""
    if not crd.converted:
        return {"strategy": "None"}
    service: Schema = {
        "name": names.CONVERSION_SERVICE,
        "namespace": CONVERSION_NAMESPACE,
        "path": CONVERSION_PATH,
        "port": 443,
    }
    # The null takes away the address that an all-in-one left: with both the API server refuses the definition.
    webhook: Schema = {"conversionReviewVersions": ["v1"], "clientConfig": {"url": None, "service": service}}
    return {"strategy": "Webhook", "webhook": webhook}


def structural_schema(struct: type[msgspec.Struct], rules: tuple[Rule, ...] = ()) -> Schema:
    """The schema of a whole object, with rules that look at all of it."""
    schema = _schema(types.type_info(struct))
    properties = schema["properties"]
    assert isinstance(properties, dict)
    # The API server has its own schema for metadata and refuses another one.
    properties["metadata"] = {"type": "object"}
    if rules:
        schema["x-kubernetes-validations"] = validations(rules)
    return schema


def _version(crd: Crd, version: CrdVersion) -> Schema:
    entry: Schema = {
        "name": version.name,
        "served": True,
        "storage": version.storage,
        "schema": {"openAPIV3Schema": structural_schema(version.struct, version.rules)},
    }
    if version.deprecation_warning:
        entry["deprecated"] = True
        entry["deprecationWarning"] = version.deprecation_warning
    if version.columns:
        entry["additionalPrinterColumns"] = [_column(column) for column in version.columns]
    if version.selectable_fields:
        entry["selectableFields"] = [{"jsonPath": path} for path in version.selectable_fields]
    if crd.status:
        entry["subresources"] = {"status": {}}
    return entry


def _column(column: PrinterColumn) -> Schema:
    entry: Schema = {"name": column.name, "type": column.type, "jsonPath": column.json_path}
    if column.priority:
        entry["priority"] = column.priority
    return entry


def _schema(info: types.Type) -> Schema:
    """Hints on a type go over what the type itself says."""
    match info:
        case types.Metadata(type=inner, extra_json_schema=hints):
            return _with_hints(_schema(inner), hints or {})
        case types.UnionType(types=members):
            return _union([member for member in members if not isinstance(member, types.NoneType)])
        case types.StructType():
            return _object(info)
        case types.VarTupleType(item_type=item) | types.ListType(item_type=item):
            return {"type": "array", "items": _schema(item)}
        case types.DictType(value_type=value):
            return {"type": "object", "additionalProperties": _schema(value)}
        case types.LiteralType(values=values):
            return {"type": "string", "enum": sorted(str(value) for value in values)}
        case types.DateTimeType():
            return {"type": "string", "format": "date-time"}
        case types.BoolType():
            return {"type": "boolean"}
        case types.IntType():
            return {"type": "integer"}
        case types.StrType():
            return {"type": "string"}
        case _:
            raise TypeError(f"no CRD schema for {info}")


def _union(members: list[types.Type]) -> Schema:
    """An optional type is the type; of several types only the hints can say what they mean together."""
    return _schema(members[0]) if len(members) == 1 else {}


def _object(info: types.StructType) -> Schema:
    schema: Schema = {"type": "object"}
    description = _first_paragraph(info.cls)
    if description:
        schema["description"] = description
    if info.fields:
        schema["properties"] = {field.encode_name: _schema(field.type) for field in info.fields}
    required: Sequence[Json] = sorted(field.encode_name for field in info.fields if _is_required(field))
    if required:
        schema["required"] = required
    return schema


def _is_required(field: types.Field) -> bool:
    return field.required or isinstance(field.default_factory, RequiredOnWire)


def _with_hints(schema: Schema, hints: Mapping[str, Json]) -> Schema:
    merged = {**schema, **hints}
    if merged.get("x-kubernetes-preserve-unknown-fields"):
        merged.pop("properties", None)
        merged.pop("required", None)
    both = [given["x-kubernetes-validations"] for given in (schema, hints) if "x-kubernetes-validations" in given]
    if len(both) == 2:
        merged["x-kubernetes-validations"] = [rule for rules in both if isinstance(rules, list) for rule in rules]
    return merged


def _first_paragraph(cls: type) -> str:
    return " ".join(inspect.cleandoc(cls.__dict__.get("__doc__") or "").split("\n\n")[0].split())
