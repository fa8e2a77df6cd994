"""Writes the generated CustomResourceDefinitions, or checks that those on disk are current.

python -m cli.crds --out k8s/crds
python -m cli.crds --out k8s/crds --check     exit code 1 and the differing names if anything is stale
"""

import argparse
import sys
from pathlib import Path

import yaml

from shared.api import names
from shared.api.crd import Schema, manifest
from shared.api.crd_kinds import KINDS

_HEADER = "# Generated from shared/api by `make crds`; do not edit.\n"


def rendered() -> dict[str, str]:
    """File name to content: one file per kind, and the kustomization that lists them."""
    files = {f"{names.GROUP}_{crd.plural}.yaml": _render(manifest(crd)) for crd in KINDS}
    files["kustomization.yaml"] = _render(
        {
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "resources": list(files),
        }
    )
    return files


def differing(folder: Path) -> list[str]:
    """Names of files that are missing, stale or not generated any more."""
    wanted = rendered()
    present = {path.name: path.read_text() for path in folder.glob("*.yaml")}
    return sorted(name for name in wanted.keys() | present.keys() if wanted.get(name) != present.get(name))


def write(folder: Path) -> list[str]:
    """Makes the folder current; returns the names of the files that changed."""
    changed = differing(folder)
    wanted = rendered()
    folder.mkdir(parents=True, exist_ok=True)
    for name in changed:
        if name in wanted:
            (folder / name).write_text(wanted[name])
        else:
            (folder / name).unlink()
    return changed


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m cli.crds", description="Generate the CRDs from shared/api.")
    parser.add_argument("--out", type=Path, default=Path("k8s/crds"), help="folder of the CRD files")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a file differs")
    options = parser.parse_args(arguments)
    if options.check:
        stale = differing(options.out)
        for name in stale:
            print(f"{options.out / name} differs from the Structs: run `make crds`", file=sys.stderr)
        return 1 if stale else 0
    for name in write(options.out):
        print(options.out / name)
    return 0


class _Dumper(yaml.SafeDumper):
    """Block style, no aliases (many CRD readers do not know them)."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _render(document: Schema) -> str:
    return _HEADER + yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=120)


if __name__ == "__main__":
    sys.exit(main())
