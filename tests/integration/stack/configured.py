"""A Stack of its own that reads a Kueue configuration."""

from __future__ import annotations

from pathlib import Path

from devcluster.options import ClusterOptions
from devcluster.stack import Stack


def configured_stack(
    folder: Path, configuration: str, options: ClusterOptions | None = None, integrations: tuple[str, ...] = ()
) -> Stack:
    """To be used with `async with`. `folder`: where the file is put; `integrations`: components of k8s that are applied besides."""
    file = folder / "configuration.yaml"
    file.write_text(configuration)
    return Stack(
        options if options is not None else ClusterOptions(default_pod_seconds=0.5),
        settings={"SLUICE_CONFIGURATION": str(file)},
        integrations=integrations,
    )
