"""Which kubeconfig, which of its contexts, and what it says of the namespace, by kubectl's rules.

`--cluster` and `--user` mix parts of a kubeconfig: a small file with a context of just these is read behind the user's own files, whose entries it names.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import yaml
from kubernetes_asyncio.config import ConfigException
from kubernetes_asyncio.config.kube_config import KubeConfigMerger

MIXED = "sluice-flags"
"""Name of the context that flags make."""


def files(given: str) -> str:
    """The files to read, with `:` between: the flag, else $KUBECONFIG, else the user's own; empty where there is none (in a pod)."""
    own = Path.home() / ".kube" / "config"
    return given or os.environ.get("KUBECONFIG", "") or (str(own) if own.is_file() else "")


def namespace(kubeconfig: str, context: str) -> str:
    """The namespace of the context (of the current one if none is named); empty if it says nothing or cannot be read."""
    found = _context(kubeconfig, context)
    return found.get("namespace", "") or ""


@contextlib.contextmanager
def mixed(kubeconfig: str, context: str, cluster: str, user: str) -> Iterator[tuple[str, str]]:
    """(files, context) to use: with `cluster` or `user` in place of the context's own."""
    if not (cluster or user):
        yield kubeconfig, context
        return
    base = _context(kubeconfig, context)
    made = {**base, **({"cluster": cluster} if cluster else {}), **({"user": user} if user else {})}
    with tempfile.TemporaryDirectory(prefix="sluice-") as folder:
        path = Path(folder) / "context.yaml"
        content = {"apiVersion": "v1", "kind": "Config", "contexts": [{"name": MIXED, "context": made}]}
        path.write_text(yaml.safe_dump(content))
        yield f"{kubeconfig}{os.pathsep}{path}", MIXED


def _context(kubeconfig: str, context: str) -> dict[str, str]:
    if not kubeconfig or not all(Path(part).is_file() for part in kubeconfig.split(os.pathsep) if part):
        # The reader would log a line of its own about it; the error is told once, when the credentials are loaded.
        return {}
    try:
        merged = KubeConfigMerger(kubeconfig).config
        name = context or (merged.safe_get("current-context") if merged else "")
        entry = merged["contexts"].get_with_name(name) if merged and name else None
        return dict(entry["context"].value) if entry is not None else {}
    except (ConfigException, OSError, ValueError, TypeError, AttributeError, yaml.YAMLError):
        # What is wrong with it is told when the credentials are loaded.
        return {}
