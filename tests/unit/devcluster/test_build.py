"""The build cache: what makes a new build, that one is made only once, and that a failed one leaves nothing."""

import io
import os
import shutil
import threading
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from devcluster import build
from devcluster.build import MODULES, BuildError, GoModule, built_directory, ensure_built, module_hash

MODULE = GoModule("demo", ("demo-server", "demo-client"), "1 second")

# Stands in for the Go toolchain: notes each build, waits while `hold` exists, and fails when `break` does.
FAKE_GO = """#!/bin/sh
here=$(dirname "$0")
if [ "$1" = version ]; then echo "go version go1.99.1 linux/amd64"; exit 0; fi
echo "$@" >> "$here/builds"
while [ -e "$here/hold" ]; do /bin/sleep 0.01; done
if [ -e "$here/break" ]; then echo "main.go:3: no such thing" >&2; exit 2; fi
while [ "$1" != -o ]; do shift; done
echo binary > "$2"
"""


@pytest.fixture
def go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module to build and a fake Go that builds it; the folder of that Go."""
    source = tmp_path / "go" / MODULE.name
    source.mkdir(parents=True)
    (source / "go.mod").write_text("module demo\n\ngo 1.25.0\n")
    (source / "go.sum").write_text("")
    (source / "main.go").write_text("package main\n")
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "go").write_text(FAKE_GO)
    (tools / "go").chmod(0o755)
    monkeypatch.setattr(build, "GO_DIRECTORY", tmp_path / "go")
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tools


def quiet() -> Console:
    return Console(file=io.StringIO())


def builds(go: Path) -> int:
    noted = go / "builds"
    return len(noted.read_text().splitlines()) if noted.exists() else 0


def test_first_use_builds_and_links_every_binary(go: Path) -> None:
    directory = ensure_built(MODULE, quiet())
    assert (directory / "demo-server").read_text() == "binary\n"
    assert (directory / "demo-client").resolve() == (directory / "demo-server").resolve()


def test_links_survive_a_move_of_the_cache(go: Path, tmp_path: Path) -> None:
    moved = shutil.move(ensure_built(MODULE, quiet()), tmp_path / "elsewhere")
    assert (Path(moved) / "demo-client").read_text() == "binary\n"


def test_second_use_builds_nothing(go: Path) -> None:
    assert ensure_built(MODULE, quiet()) == ensure_built(MODULE, quiet())
    assert builds(go) == 1


def test_changed_source_is_built_anew_beside_the_old(go: Path) -> None:
    first = ensure_built(MODULE, quiet())
    (build.GO_DIRECTORY / MODULE.name / "main.go").write_text("package main // changed\n")
    second = ensure_built(MODULE, quiet())
    assert first != second
    assert first.is_dir()
    assert builds(go) == 2


def test_failed_build_says_why_leaves_nothing_and_can_be_repeated(go: Path) -> None:
    (go / "break").touch()
    with pytest.raises(BuildError, match="no such thing"):
        ensure_built(MODULE, quiet())
    cache = build.cache_directory()
    assert [entry for entry in cache.iterdir() if entry.is_dir()] == []
    (go / "break").unlink()
    assert ensure_built(MODULE, quiet()).is_dir()


def test_two_at_once_build_once_and_the_second_says_that_it_waits(go: Path) -> None:
    (go / "hold").touch()
    first = threading.Thread(target=ensure_built, args=(MODULE, quiet()))
    first.start()
    while builds(go) == 0:
        assert first.is_alive()
    said = WaitNoticed()
    second = threading.Thread(target=ensure_built, args=(MODULE, Console(file=said, width=200)))
    second.start()
    assert said.waiting.wait(timeout=20)
    (go / "hold").unlink()
    for thread in (first, second):
        thread.join(timeout=20)
        assert not thread.is_alive()
    assert builds(go) == 1


class WaitNoticed(io.StringIO):
    """Sets `waiting` when something says that another process builds."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting = threading.Event()

    def write(self, text: str) -> int:
        if "another process builds" in text:
            self.waiting.set()
        return super().write(text)


def test_progress_says_what_is_built_and_how_long_that_usually_takes(go: Path) -> None:
    said = io.StringIO()
    ensure_built(MODULE, Console(file=said, width=200))
    assert "building demo-server, demo-client (once; usually 1 second)" in said.getvalue()
    assert "took" in said.getvalue()


@pytest.mark.parametrize("name", build.SOURCES)
def test_hash_changes_with_each_source(go: Path, name: str) -> None:
    source = build.GO_DIRECTORY / MODULE.name
    before = module_hash(MODULE, source)
    (source / name).write_text("something else\n")
    assert module_hash(MODULE, source) != before


def test_hash_knows_in_which_file_a_line_stands(go: Path) -> None:
    source = build.GO_DIRECTORY / MODULE.name
    (source / "go.sum").write_text("one\ntwo\n")
    (source / "main.go").write_text("three\n")
    before = module_hash(MODULE, source)
    (source / "go.sum").write_text("one\n")
    (source / "main.go").write_text("two\nthree\n")
    assert module_hash(MODULE, source) != before


def test_hash_changes_with_link_flags_but_not_with_the_place(go: Path, tmp_path: Path) -> None:
    source = build.GO_DIRECTORY / MODULE.name
    copy = Path(shutil.copytree(source, tmp_path / "copy"))
    assert module_hash(MODULE, copy) == module_hash(MODULE, source)
    stamped = msgspec.structs.replace(MODULE, link_flags="-X version=2")
    assert module_hash(stamped, source) != module_hash(MODULE, source)


def test_cache_is_the_users_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert build.cache_directory() == tmp_path / "sluice" / "devcluster"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert build.cache_directory() == tmp_path / "home" / ".cache" / "sluice" / "devcluster"


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.name)
def test_every_shipped_module_has_its_sources(module: GoModule) -> None:
    assert built_directory(module).name == module_hash(module, build.GO_DIRECTORY / module.name)


@pytest.mark.parametrize("minor", build.KUBERNETES_VERSIONS)
def test_kubernetes_modules_agree_on_one_version(minor: int) -> None:
    module = build.kubernetes_module(minor)
    version = build.KUBERNETES_VERSIONS[minor]
    text = (build.GO_DIRECTORY / "kube" / module.sources[0]).read_text()
    assert f"k8s.io/kubernetes {version}" in text
    staging = [line.split()[-1] for line in text.splitlines() if " => k8s.io/" in line]
    assert set(staging) == {version.replace("v1.", "v0.", 1)}
    assert version.startswith(f"v1.{minor}.")
    assert f"gitMinor={minor}" in module.link_flags


def test_each_version_of_kubernetes_is_built_apart() -> None:
    built = {built_directory(build.kubernetes_module(minor)) for minor in build.KUBERNETES_VERSIONS}
    assert len(built) == len(build.KUBERNETES_VERSIONS)


@pytest.mark.parametrize("module", [build.KUEUE, *build.JOB_CONTROLLERS, *MODULES], ids=lambda module: module.name)
def test_a_tool_is_named_in_its_go_mod(module: GoModule) -> None:
    text = (build.GO_DIRECTORY / module.name / "go.mod").read_text()
    assert (f"tool {module.package}\n" in text) == (module.package != ".")
    if module.name == "helm":
        assert f"helm.sh/helm/v3 {build.HELM_VERSION}" in text


def test_another_go_mod_and_package_are_what_is_built(go: Path) -> None:
    (build.GO_DIRECTORY / MODULE.name / "minor-9.mod").write_text("module demo\n\ngo 1.24.0\n")
    (build.GO_DIRECTORY / MODULE.name / "minor-9.sum").write_text("")
    other = msgspec.structs.replace(MODULE, sources=("minor-9.mod", "minor-9.sum"), package="example.com/tool")
    assert ensure_built(other, quiet()) != ensure_built(MODULE, quiet())
    first, second = (go / "builds").read_text().splitlines()
    assert "-modfile=minor-9.mod" in first
    assert first.endswith(" example.com/tool")
    assert "-modfile" not in second
    assert second.endswith(" .")
