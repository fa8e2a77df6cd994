"""Writes what is generated of the Helm chart, or checks that it is current.

python -m cli.chart                 needs kubectl, ours or another: `python -m devcluster build`
python -m cli.chart --check         exit code 1 and the differing files if anything is stale
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from functools import cache
from pathlib import Path

import yaml
from rich.console import Console

from cli.chart.generate import files
from cli.chart.places import Document
from devcluster.binaries import resolve_binaries

MANIFESTS = Path(__file__).resolve().parents[2] / "k8s"
CHART = MANIFESTS / "charts" / "sluice"


@cache
def render(folder: str) -> tuple[Document, ...]:
    """All objects of a kustomization below k8s/. Raises CalledProcessError."""
    kubectl = resolve_binaries(("kubectl",), Console(stderr=True))["kubectl"]
    done = subprocess.run(
        [kubectl, "kustomize", str(MANIFESTS / folder)], stdout=subprocess.PIPE, text=True, check=True
    )
    return tuple(document for document in yaml.safe_load_all(done.stdout) if document)


def differing(wanted: dict[str, str], chart: Path = CHART) -> list[str]:
    """Paths that are missing, stale or not generated any more."""
    templates = (chart / "templates").rglob("*.yaml")
    present = {
        str(p.relative_to(chart)): p.read_text() for p in (*templates, chart / "values.schema.json") if p.exists()
    }
    return sorted(name for name in wanted.keys() | present.keys() if wanted.get(name) != present.get(name))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m cli.chart", description="Generate the Helm chart from k8s/.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a file differs")
    options = parser.parse_args(arguments)
    wanted = files(render)
    stale = differing(wanted)
    for name in stale:
        if options.check:
            print(f"{CHART / name} differs from the manifests: run `make chart`", file=sys.stderr)
        elif name in wanted:
            (CHART / name).parent.mkdir(parents=True, exist_ok=True)
            (CHART / name).write_text(wanted[name])
        else:
            (CHART / name).unlink()
    return 1 if options.check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
