"""Decides which binary plays each part: KUBEBUILDER_ASSETS first, then PATH, then our own build.

What PATH offers is taken only when its version fits; what KUBEBUILDER_ASSETS names is taken as it is.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
from rich.console import Console

from devcluster.build import KUBERNETES_MINOR, MODULES, GoModule, built_directory, ensure_built, kubernetes_module

Version = tuple[int, int]
ASSETS_VARIABLE = "KUBEBUILDER_ASSETS"


class VersionRule(msgspec.Struct, frozen=True):
    """Which minor versions of a binary on PATH can play its part, and how to ask it for its version."""

    major: int
    lowest_minor: int
    highest_minor: int
    question: tuple[str, ...] = ("--version",)

    def accepts(self, version: Version | None) -> bool:
        if version is None or version[0] != self.major:
            return False
        return self.lowest_minor <= version[1] <= self.highest_minor


def rules(minor: int = KUBERNETES_MINOR) -> dict[str, VersionRule]:
    """For a control plane of a minor version of Kubernetes."""
    same = VersionRule(1, minor, minor)
    return {
        "etcd": VersionRule(3, 5, 6),
        "kube-apiserver": same,
        "kube-controller-manager": same,
        "kube-scheduler": same,
        # Kubernetes supports a kubectl one minor away from its server.
        "kubectl": VersionRule(1, minor - 1, minor + 1, ("version", "--client")),
        # Our Stage objects are written for this one.
        "kwok": VersionRule(0, 8, 8),
        # No part of a control plane: it renders the chart, for tests.
        "helm": VersionRule(3, 18, 99, ("version", "--short")),
    }


RULES = rules()


def ask_version(binary: Path, question: tuple[str, ...]) -> Version | None:
    """Major and minor of what the binary says of itself; None when it says nothing usable within 10 s."""
    try:
        shown = subprocess.run([binary, *question], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r"(?<![\d.])v?(\d+)\.(\d+)\.\d+", shown.stdout)
    return (int(match[1]), int(match[2])) if match else None


def existing_binary(
    name: str,
    environment: Mapping[str, str],
    version_of: Callable[[Path, tuple[str, ...]], Version | None] = ask_version,
    minor: int = KUBERNETES_MINOR,
) -> Path | None:
    """The binary that KUBEBUILDER_ASSETS or a fitting one on PATH provides, or None when it must be built.

    What KUBEBUILDER_ASSETS names plays for the default version only: it says nothing about another.
    """
    assets = environment.get(ASSETS_VARIABLE)
    if assets and minor == KUBERNETES_MINOR:
        found = shutil.which(name, path=assets)
        if found is not None:
            return Path(found)
    on_path = shutil.which(name, path=environment.get("PATH", ""))
    if on_path is None:
        return None
    rule = rules(minor)[name]
    return Path(on_path) if rule.accepts(version_of(Path(on_path), rule.question)) else None


def module_of(name: str, minor: int = KUBERNETES_MINOR) -> GoModule:
    """The Go module that yields a binary; raises KeyError for one that none does."""
    for module in MODULES:
        if name in module.binaries:
            return kubernetes_module(minor) if module == kubernetes_module() else module
    raise KeyError(name)


def resolve_binaries(names: tuple[str, ...], console: Console, minor: int = KUBERNETES_MINOR) -> dict[str, Path]:
    """A path for each name, building what is missing (minutes, the first time); raises BuildError or NoGoError."""
    resolved: dict[str, Path] = {}
    for name in names:
        found = existing_binary(name, os.environ, minor=minor)
        resolved[name] = found if found is not None else ensure_built(module_of(name, minor), console) / name
    return resolved


def describe_binary(name: str) -> str:
    """Where a binary would come from, for people; builds nothing."""
    found = existing_binary(name, os.environ)
    if found is not None:
        return str(found)
    built = built_directory(module_of(name))
    return str(built / name) if built.is_dir() else f"to be built (usually {module_of(name).usually})"
