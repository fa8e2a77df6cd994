"""Where each binary comes from, in the promised order, and which versions on PATH are taken."""

from collections.abc import Callable
from pathlib import Path

import pytest

from devcluster.binaries import RULES, Version, ask_version, existing_binary, module_of
from devcluster.build import KUBERNETES_MINOR, MODULES

FITTING: Version = (1, KUBERNETES_MINOR)


def make(directory: Path, name: str, says: str = "") -> Path:
    directory.mkdir(exist_ok=True)
    program = directory / name
    program.write_text(f"#!/bin/sh\n{says}\n")
    program.chmod(0o755)
    return program


def always(version: Version | None) -> Callable[[Path, tuple[str, ...]], Version | None]:
    return lambda program, question: version


def test_assets_win_over_path(tmp_path: Path) -> None:
    wanted = make(tmp_path / "assets", "kube-apiserver")
    make(tmp_path / "path", "kube-apiserver")
    environment = {"KUBEBUILDER_ASSETS": str(tmp_path / "assets"), "PATH": str(tmp_path / "path")}
    assert existing_binary("kube-apiserver", environment, always(FITTING)) == wanted


def test_assets_are_taken_whatever_their_version(tmp_path: Path) -> None:
    wanted = make(tmp_path / "assets", "etcd")
    environment = {"KUBEBUILDER_ASSETS": str(tmp_path / "assets"), "PATH": ""}
    assert existing_binary("etcd", environment, always((0, 1))) == wanted


def test_another_version_of_kubernetes_is_neither_the_assets_nor_the_default_on_path(tmp_path: Path) -> None:
    make(tmp_path / "assets", "kube-apiserver")
    on_path = make(tmp_path / "path", "kube-apiserver")
    environment = {"KUBEBUILDER_ASSETS": str(tmp_path / "assets"), "PATH": str(tmp_path / "path")}
    other = KUBERNETES_MINOR + 1
    assert existing_binary("kube-apiserver", environment, always(FITTING), other) is None
    assert existing_binary("kube-apiserver", environment, always((1, other)), other) == on_path


def test_only_the_control_plane_is_another_for_another_version() -> None:
    for name in RULES:
        same = module_of(name, KUBERNETES_MINOR + 1) == module_of(name)
        assert same == (name in ("etcd", "kwok", "helm")), name


def test_what_the_assets_lack_comes_from_path(tmp_path: Path) -> None:
    make(tmp_path / "assets", "etcd")
    wanted = make(tmp_path / "path", "kubectl")
    environment = {"KUBEBUILDER_ASSETS": str(tmp_path / "assets"), "PATH": str(tmp_path / "path")}
    assert existing_binary("kubectl", environment, always(FITTING)) == wanted


def test_what_nobody_has_is_to_be_built(tmp_path: Path) -> None:
    assert existing_binary("kwok", {"PATH": str(tmp_path)}, always((0, 8))) is None


def test_a_file_that_cannot_be_executed_is_not_a_binary(tmp_path: Path) -> None:
    make(tmp_path / "path", "kubectl").chmod(0o644)
    assert existing_binary("kubectl", {"PATH": str(tmp_path / "path")}, always(FITTING)) is None


@pytest.mark.parametrize(
    ("name", "version", "taken"),
    [
        ("kubectl", (1, KUBERNETES_MINOR - 2), False),
        ("kubectl", (1, KUBERNETES_MINOR - 1), True),
        ("kubectl", (1, KUBERNETES_MINOR + 1), True),
        ("kubectl", (1, KUBERNETES_MINOR + 2), False),
        ("kube-apiserver", (1, KUBERNETES_MINOR), True),
        ("kube-apiserver", (1, KUBERNETES_MINOR - 1), False),
        ("kube-scheduler", (1, KUBERNETES_MINOR + 1), False),
        ("etcd", (3, 5), True),
        ("etcd", (3, 4), False),
        ("etcd", (2, 5), False),
        ("kwok", (0, 8), True),
        ("kwok", (0, 7), False),
        ("helm", (3, 18), True),
        ("helm", (3, 17), False),
        ("helm", (4, 3), False),
        ("kubectl", None, False),
    ],
)
def test_version_on_path_must_fit(tmp_path: Path, name: str, version: Version | None, taken: bool) -> None:
    program = make(tmp_path / "path", name)
    found = existing_binary(name, {"PATH": str(tmp_path / "path")}, always(version))
    assert found == (program if taken else None)


@pytest.mark.parametrize(
    ("says", "version"),
    [
        ("echo Kubernetes v1.35.4", (1, 35)),
        ("echo 'Client Version: v1.32.4-dispatcher'; echo 'Kustomize Version: v5.5.0'", (1, 32)),
        ("echo 'etcd Version: 3.6.16'; echo 'Go Version: go1.26.8'", (3, 6)),
        ("echo 'kwok version v0.8.0 go1.26.8 (linux/amd64)'", (0, 8)),
        ("echo nothing of the kind", None),
        ("echo v3.22.0+gd1a9f2b", (3, 22)),
        ("exit 3", None),
    ],
)
def test_ask_version_reads_what_the_programs_print(tmp_path: Path, says: str, version: Version | None) -> None:
    assert ask_version(make(tmp_path / "path", "program", says), ("--version",)) == version


def test_ask_version_of_something_that_is_no_program(tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.write_bytes(b"\x7fELF")
    broken.chmod(0o755)
    assert ask_version(broken, ()) is None


def test_every_binary_has_a_rule_and_a_module_and_no_two_modules_share_one() -> None:
    built = [name for module in MODULES for name in module.binaries]
    assert sorted(built) == sorted(RULES)
    assert all(name in module_of(name).binaries for name in built)
    with pytest.raises(KeyError):
        module_of("kubelet")
