"""Every field of the specification, against the table `fields.yaml`: it is read, has its default, is validated with its path and a reason, in both versions,
and what has no effect is told. A field that is only in the code, or only in the table, fails."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
import yaml

from shared.config.configuration import Configuration, Selector
from shared.config.configuration_file import ConfigurationError, load
from shared.config.durations import Duration

TABLE: dict[str, dict[str, Any]] = yaml.safe_load((Path(__file__).parent / "fields.yaml").read_text())
HEAD = "apiVersion: config.kueue.x-k8s.io/{}\nkind: Configuration\n"
Json = dict[str, Any]


def struct_in(type_: Any) -> tuple[type[msgspec.Struct] | None, str]:
    """The Struct that a field's type holds, and what stands before it in a path: [] for items of a list."""
    if isinstance(type_, type) and issubclass(type_, msgspec.Struct):
        return type_, ""
    arguments = get_args(type_)
    is_list = getattr(type_, "__origin__", None) is tuple
    for inner in arguments:
        found, _ = struct_in(inner)
        if found is not None:
            return found, "[]" if is_list else ""
    return None, "{}" if getattr(type_, "__origin__", None) is dict else ""


def paths_of(struct: type[msgspec.Struct], prefix: str = "") -> Iterator[str]:
    """Leaves and lists of Structs, as the table writes them."""
    for field in msgspec.structs.fields(struct):
        path = f"{prefix}{field.encode_name}"
        inner, mark = struct_in(field.type)
        if inner is None:
            yield path + mark
            continue
        if inner is Selector or mark == "[]":
            yield path
        yield from paths_of(inner, f"{path}{mark}.")


DETAIL = re.compile(r"(matchExpressions|matchLabels)(\[\]\..*|\{\})|\.env\[\]\.|credentialsProviders\[\]")
"""Told by the field above: parts of label selectors and variables, and a list with the same items as another."""


def test_the_table_has_every_field_and_no_other() -> None:
    code = {path for path in paths_of(Configuration) if not DETAIL.search(path)}
    code |= {"managedJobsNamespaceSelector.matchLabels", "metrics.localQueueMetrics.localQueueSelector.matchLabels"}
    told = {path for path, row in TABLE.items() if "only" not in row}
    assert code == told


def document(path: str, value: object) -> Json:
    """A file in which the path has that value, with what its row says it needs."""
    row = TABLE[path]
    parts = path.split(".")
    found: object = value
    for place, part in reversed(list(enumerate(parts))):
        name, mark = re.fullmatch(r"(\w+)(\[\]|\{\})?", part).groups()  # type: ignore[union-attr]
        is_last = place == len(parts) - 1
        if mark == "{}":
            found = {name: {row.get("key", "key"): found}}
            is_last = False
        elif mark == "[]":
            found = {name: [{**DEFAULT_ITEMS.get(name, {}), **found}]} if isinstance(found, dict) else {name: [found]}
        else:
            found = {name: found}
        if is_last:
            found = {**found, **row.get("within", {}), **row.get("beside", {})}
        elif mark == "{}" and "within" in row:
            found = {**found, **row["within"]}
    assert isinstance(found, dict)
    for name, needed in NEEDED.items():
        if path.startswith(f"{name}."):
            found = {name: {**needed, **found[name]}}
    return found


DEFAULT_ITEMS: dict[str, Json] = {
    "deviceClassMappings": {"name": "a", "deviceClassNames": ["x"]},
    "accessProviders": {"name": "a"},
}
NEEDED: dict[str, Json] = {"fairSharing": {"preemptionStrategies": ["LessThanInitialShare"]}}
AMOUNT = {"name": "m", "driver": "d"}


def prepared(path: str, value: object, version: str) -> Json:
    found = document(path, value)
    if ".deviceSelector." in path:
        item = found["resources"]["deviceClassMappings"][0]["sources"][0]
        for kind in ("counter", "capacity"):
            if kind in item:
                item[kind] = {**AMOUNT, **item[kind]}
    if "incrementalDispatcherConfig" in path:
        step = found["multiKueue"]["incrementalDispatcherConfig"]
        found["multiKueue"] = {
            "incrementalDispatcherConfig": {"stepSize": step["stepSize"]},
            "dispatcherName": step["dispatcherName"],
        }
    if version == "v1beta1" and path.startswith("waitForPodsReady.") and "enable" not in found["waitForPodsReady"]:
        found["waitForPodsReady"]["enable"] = True
    if version == "v1beta1" and path.startswith("fairSharing.") and "enable" not in found["fairSharing"]:
        found["fairSharing"]["enable"] = True
    return found


def write(folder: Path, body: Json, version: str) -> str:
    file = folder / "config.yaml"
    file.write_text(HEAD.format(version) + yaml.safe_dump(body))
    return str(file)


def versions(path: str) -> tuple[str, ...]:
    row = TABLE[path]
    if "only" in row:
        return (row["only"],)
    return ("v1beta2", "v1beta1") if row.get("v1beta1", True) else ("v1beta2",)


GOOD = [(path, version, value) for path, row in TABLE.items() for version in versions(path) for value in row["good"]]
BAD = [
    (path, version, value, why)
    for path, row in TABLE.items()
    for version in versions(path)
    for value, why in row["bad"].items()
]


@pytest.mark.parametrize(("path", "version", "value"), GOOD)
def test_what_is_accepted(tmp_path: Path, path: str, version: str, value: object) -> None:
    configured = load(write(tmp_path, prepared(path, value, version), version))
    told = any(line.startswith(_shown(path)) or _shown(path).startswith(f"{line}.") for line in configured.unused)
    section = _shown(path).partition(".")[0]
    assert told or section in configured.unused or TABLE[path]["used"]
    if TABLE[path]["used"] and path != "featureGates{}":
        assert not [line for line in configured.unused if _shown(path).startswith(line)]
    if (path, version, value) == ("waitForPodsReady.timeout", "v1beta1", "0s"):
        # Stands for the default, which there is another one.
        assert configured.wait_for_pods_ready is not None
        assert configured.wait_for_pods_ready.timeout_s == 300
    elif "only" not in TABLE[path]:
        assert value_at(configured.configuration, path) == as_read(path, value)


def _shown(path: str) -> str:
    """The path of the field that stands for a list or a map."""
    return re.split(r"\[\]|\{\}", path)[0]


def value_at(configuration: Configuration, path: str) -> object:
    found: object = configuration
    for part in path.split("."):
        name = re.sub(r"(\[\]|\{\})$", "", part)
        field = next(f.name for f in msgspec.structs.fields(found) if f.encode_name == name)  # type: ignore[arg-type]
        found = getattr(found, field)
        if part.endswith("[]"):
            assert isinstance(found, tuple)
            found = found[0]
        elif part.endswith("{}"):
            assert isinstance(found, dict)
            (found,) = found.values()
    return _plain(found)


def _plain(value: object) -> object:
    """As a file would say it, without what was not given."""
    if isinstance(value, float):
        return float(value)
    if isinstance(value, msgspec.Struct):
        given = {
            f.encode_name: _plain(getattr(value, f.name))
            for f in msgspec.structs.fields(value)
            if f.default is msgspec.NODEFAULT or getattr(value, f.name) != f.default
        }
        return {name: inner for name, inner in given.items() if inner != {}}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value


def as_read(path: str, value: object) -> object:
    """What a value of the table becomes."""
    found = next(iter(_fields_at(path)))
    if found is Duration or (Duration in get_args(found)):
        units = {"s": 1, "m": 60, "h": 3600}
        return int(value[:-1]) * units[value[-1]] if isinstance(value, str) else int(str(value)) / 1e9
    return value


def _fields_at(path: str) -> Iterator[Any]:
    struct: type[msgspec.Struct] | None = Configuration
    type_: Any = None
    for part in path.split("."):
        assert struct is not None
        name = re.sub(r"(\[\]|\{\})$", "", part)
        type_ = next(f.type for f in msgspec.structs.fields(struct) if f.encode_name == name)
        struct, _ = struct_in(type_)
    yield type_


@pytest.mark.parametrize(("path", "version", "value", "why"), BAD)
def test_what_is_refused_with_path_and_reason(tmp_path: Path, path: str, version: str, value: Any, why: str) -> None:
    given = yaml.safe_load(value) if isinstance(value, str) and value[:1] in ("[", "{") else value
    file = write(tmp_path, prepared(path, given, version), version)
    with pytest.raises(ConfigurationError) as caught:
        load(file)
    where = _shown(path)
    lines = [line.removeprefix(f"{file}: ") for line in str(caught.value).splitlines()]
    assert any(why in line for line in lines), lines
    if not path.startswith("leaderElection."):
        # Durations of the election are compared with each other: the one to blame may be another.
        assert all(line.startswith(where) or where.startswith(line.partition(":")[0]) for line in lines), lines


@pytest.mark.parametrize("path", [p for p, row in TABLE.items() if row.get("v1beta1") is False])
def test_what_only_v1beta2_has(tmp_path: Path, path: str) -> None:
    row = TABLE[path]
    with pytest.raises(ConfigurationError, match="no such field in v1beta1"):
        load(write(tmp_path, prepared(path, row["good"][0], "v1beta1"), "v1beta1"))


@pytest.mark.parametrize("path", [p for p, row in TABLE.items() if "only" in row])
def test_what_only_v1beta1_has(tmp_path: Path, path: str) -> None:
    with pytest.raises(ConfigurationError, match="no such field"):
        load(write(tmp_path, prepared(path, TABLE[path]["good"][0], "v1beta2"), "v1beta2"))


@pytest.mark.parametrize("path", [p for p, row in TABLE.items() if row.get("default") is not None])
def test_defaults(path: str) -> None:
    configured = load()
    if path.endswith("{}"):
        section = path.removesuffix("{}")
        holder = value_at(configured.configuration, section)
        assert holder == TABLE[path]["default"]
        return
    assert value_at(configured.configuration, path) == TABLE[path]["default"]
