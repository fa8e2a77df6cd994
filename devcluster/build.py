"""Builds the control plane from its Go modules, once: results are kept by a hash of what they are built from.

Processes that build at the same time wait for one another; a half-built result is never seen.
"""

import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from rich.console import Console

from devcluster.progress import step
from devcluster.toolchain import find_go, required_version

GO_DIRECTORY = Path(__file__).parent / "go"
SOURCES = ("go.mod", "go.sum", "main.go")
KUBERNETES_MINOR = 35
KUBERNETES_VERSIONS = {34: "v1.34.4", KUBERNETES_MINOR: "v1.35.4", 36: "v1.36.3"}
"""Minor -> the version that is built. The default is in `go/kube/go.mod`, the others in files beside it: `minor-34.mod`, `minor-34.sum`."""
KUBERNETES_VERSION = KUBERNETES_VERSIONS[KUBERNETES_MINOR]


class GoModule(msgspec.Struct, frozen=True):
    """One Go module: the binaries it yields (the first is a file, the others link to it) and its cost.

    `usually` is the time of a first build on two cores, dependencies included. `sources` are its files, of which the first is the go.mod. `package` is
    what is built: the module's own program, or one that its go.mod names as a tool and that needs no main.go of ours.
    """

    name: str
    binaries: tuple[str, ...]
    usually: str
    link_flags: str = "-s -w"
    sources: tuple[str, ...] = SOURCES
    package: str = "."


def kubernetes_module(minor: int = KUBERNETES_MINOR) -> GoModule:
    """The control plane of a minor version of Kubernetes; raises KeyError for one that we have no go.mod for."""
    # The defaults of a plain build would call the server v0.0.0-master, which clients and CEL libraries refuse.
    stamps = {"gitVersion": KUBERNETES_VERSIONS[minor], "gitMajor": "1", "gitMinor": str(minor)}
    flags = ["-s -w", *(f"-X k8s.io/component-base/version.{key}={value}" for key, value in stamps.items())]
    own = minor == KUBERNETES_MINOR
    return GoModule(
        "kube",
        ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl"),
        "4 minutes",
        " ".join(flags),
        SOURCES if own else (f"minor-{minor}.mod", f"minor-{minor}.sum", "main.go"),
    )


def _helm() -> GoModule:
    # Without these it would render for Kubernetes 1.20.
    stamps = {"k8sVersionMajor": "1", "k8sVersionMinor": str(KUBERNETES_MINOR)}
    flags = ["-s -w", *(f"-X helm.sh/helm/v3/pkg/chartutil.{key}={value}" for key, value in stamps.items())]
    flags.append(f"-X helm.sh/helm/v3/internal/version.version={HELM_VERSION}")
    return GoModule("helm", ("helm",), "1 minute", " ".join(flags), SOURCES[:2], "helm.sh/helm/v3/cmd/helm")


HELM_VERSION = "v3.22.0"
MODULES = (
    GoModule("etcd", ("etcd",), "1 minute"),
    GoModule("kwok", ("kwok",), "2 minutes"),
    kubernetes_module(),
    _helm(),
)
"""What tests and `make up` need. In the order in which they are built."""
KUEUE = GoModule("kueue", ("kueue",), "3 minutes", sources=SOURCES[:2], package="sigs.k8s.io/kueue/cmd/kueue")
"""Kueue's own controller, for `make handback` only."""
JOB_CONTROLLERS = (GoModule("jobset", ("jobset",), "1.5 minutes", sources=SOURCES[:2], package="sigs.k8s.io/jobset"),)
"""The controllers of kinds of jobs, for `make e2e` only."""


class BuildError(RuntimeError):
    """The Go build failed; the message ends with the compiler's last lines."""


def cache_directory() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "sluice" / "devcluster"


def module_hash(module: GoModule, source: Path) -> str:
    """Changes with the module's sources, its link flags and the machine's kind; 16 hexadecimal digits."""
    digest = hashlib.sha256()
    for part in (module.name, module.link_flags, platform.system(), platform.machine()):
        digest.update(part.encode() + b"\0")
    for name in module.sources:
        content = (source / name).read_bytes()
        digest.update(f"{name} {len(content)}\0".encode() + content)
    return digest.hexdigest()[:16]


def built_directory(module: GoModule) -> Path:
    """Where the module's binaries are, or will be once they are built."""
    return cache_directory() / module_hash(module, GO_DIRECTORY / module.name)


def ensure_built(module: GoModule, console: Console) -> Path:
    """The folder with the module's binaries, built now if need be; raises BuildError or NoGoError."""
    target = built_directory(module)
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with _exclusive(target.with_suffix(".lock"), module, console):
        if target.is_dir():
            return target
        what = f"building {', '.join(module.binaries)}"
        with step(console, what, f"once; usually {module.usually}"):
            _build(module, target)
    return target


def _build(module: GoModule, target: Path) -> None:
    source = GO_DIRECTORY / module.name
    modfile = module.sources[0]
    go = find_go(required_version((source / modfile).read_text()))
    workplace = Path(tempfile.mkdtemp(prefix=f"{target.name}.", dir=target.parent))
    try:
        first, *links = module.binaries
        command = [str(go), "build", "-mod=readonly", "-buildvcs=false", "-trimpath"]
        command += [f"-modfile={modfile}"] if modfile != "go.mod" else []
        command += ["-ldflags", module.link_flags, "-o", str(workplace / first), module.package]
        environment = {**os.environ, "CGO_ENABLED": "0", "GOWORK": "off"}
        done = subprocess.run(command, cwd=source, env=environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            last = "\n".join(done.stderr.strip().splitlines()[-20:])
            raise BuildError(f"go build of {source} failed with exit code {done.returncode}:\n{last}")
        for link in links:
            (workplace / link).symlink_to(first)
        workplace.chmod(0o755)
        workplace.rename(target)
    finally:
        shutil.rmtree(workplace, ignore_errors=True)


def downloaded(module: GoModule, path: str) -> Path:
    """The sources of a Go module (by its path) that a module of ours was built from, with the manifests that come with it; raises NoGoError."""
    source = GO_DIRECTORY / module.name
    go = find_go(required_version((source / "go.mod").read_text()))
    command = [str(go), "list", "-mod=readonly", "-m", "-f", "{{.Dir}}", path]
    environment = {**os.environ, "GOWORK": "off"}
    listed = subprocess.run(command, cwd=source, env=environment, capture_output=True, text=True, check=True)
    return Path(listed.stdout.strip())


@contextmanager
def _exclusive(path: Path, module: GoModule, console: Console) -> Iterator[None]:
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            console.print(f"another process builds {module.name} now: waiting for it (usually {module.usually})")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
