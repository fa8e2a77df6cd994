"""The manifests as kustomize renders them, for tests to look into. Renders only; applies nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from devcluster.binaries import existing_binary, module_of
from devcluster.build import built_directory

ROOT = Path(__file__).resolve().parents[3]
Document = dict[str, Any]


def kubectl() -> Path | None:
    """One that is there; none is built for this."""
    built = built_directory(module_of("kubectl")) / "kubectl"
    return existing_binary("kubectl", os.environ) or (built if built.exists() else None)


@cache
def render(folder: str) -> tuple[Document, ...]:
    """All objects of a kustomization below k8s/. Skips the test where there is neither kubectl nor kustomize."""
    program = kubectl()
    kustomize = shutil.which("kustomize")
    if program is None and kustomize is None:
        pytest.skip("neither kubectl nor kustomize is here: `python -m devcluster build` makes one")
    command = [str(program), "kustomize"] if program is not None else [str(kustomize), "build"]
    done = subprocess.run([*command, str(ROOT / "k8s" / folder)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return tuple(document for document in yaml.safe_load_all(done.stdout) if document)


def of_kind(objects: tuple[Document, ...], *kinds: str) -> Iterator[Document]:
    """Those of some kinds."""
    return (o for o in objects if o["kind"] in kinds)


def key(document: Document) -> str:
    """`Kind/namespace/name`."""
    metadata = document["metadata"]
    return f"{document['kind']}/{metadata.get('namespace', '')}/{metadata['name']}"


def pod_specs(objects: tuple[Document, ...]) -> dict[str, Document]:
    """Kind/namespace/name -> pod template, of everything that makes pods."""
    return {key(o): o["spec"]["template"] for o in of_kind(objects, "Deployment", "StatefulSet", "Job", "DaemonSet")}
