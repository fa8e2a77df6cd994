"""The Helm chart as helm renders it, and both it and the manifests brought to one form, for tests to compare."""

from __future__ import annotations

import copy
import os
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from devcluster.binaries import existing_binary, module_of
from devcluster.build import built_directory
from tests.unit.k8s.rendered import ROOT, Document, key

CHART = ROOT / "k8s" / "charts" / "sluice"
EXAMPLES = CHART / "examples"
CHECKSUMS = ("sluice.dev/settings-checksum", "sluice.dev/configuration-checksum")


def helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs helm. Skips the test where none is here."""
    built = built_directory(module_of("helm")) / "helm"
    program: Path | None = existing_binary("helm", os.environ) or (built if built.exists() else None)
    if program is None:
        pytest.skip("helm is not here: `python -m devcluster build` makes one")
    return subprocess.run([program, *arguments], capture_output=True, text=True, check=False)


@cache
def chart(*arguments: str, namespace: str = "kueue-system") -> tuple[Document, ...]:
    """All objects of the chart with these values."""
    done = helm("template", "sluice", str(CHART), "--namespace", namespace, *arguments)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return tuple(document for document in yaml.safe_load_all(done.stdout) if document)


def example(name: str) -> tuple[str, ...]:
    """Arguments for the values of an example; none for `default`."""
    return () if name == "default" else ("--values", str(EXAMPLES / f"{name}.yaml"))


def refused(*arguments: str) -> str:
    """What helm says of values that it must refuse."""
    done = helm("template", "sluice", str(CHART), *arguments)
    assert done.returncode != 0, arguments
    return done.stderr


def comparable(objects: tuple[Document, ...]) -> dict[str, Document]:
    """By key, without what the two ways of installing name or mark in their own way: hashes of ConfigMaps, checksums, revisions, the Namespace."""
    found: dict[str, Document] = {}
    generated = {
        o["metadata"]["name"]: o["metadata"]["name"].rpartition("-")[0]
        for o in objects
        if o["kind"] == "ConfigMap" and o["metadata"]["name"] not in ("sluice-settings", "kueue-manager-config")
    }
    for document in objects:
        if document["kind"] == "Namespace":
            continue
        one = _sorted(_renamed(copy.deepcopy(document), generated))
        metadata = one["metadata"]
        if one["kind"] == "Job":
            metadata["name"] = metadata["name"].removesuffix("-1")
        _without(metadata, "helm.sh/resource-policy")
        template = one.get("spec", {}).get("template")
        if template:
            _without(template["metadata"], *CHECKSUMS)
        assert key(one) not in found, key(one)
        found[key(one)] = one
    return found


def _without(metadata: Document, *annotations: str) -> None:
    left = {k: v for k, v in metadata.pop("annotations", {}).items() if k not in annotations}
    if left:
        metadata["annotations"] = left


def _renamed(node: Any, names: dict[str, str]) -> Any:
    match node:
        case dict():
            return {k: _renamed(v, names) for k, v in node.items()}
        case list():
            return [_renamed(item, names) for item in node]
        case str():
            return names.get(node, node)
        case _:
            return node


def _sorted(node: Any) -> Any:
    """Lists whose items have names in the order of the names: it means nothing in any of ours."""
    match node:
        case dict():
            return {k: _sorted(v) for k, v in node.items()}
        case list():
            items = [_sorted(item) for item in node]
            named = all(isinstance(item, dict) and "name" in item for item in items)
            return sorted(items, key=lambda item: str(item["name"])) if named else items
        case _:
            return node
