"""The `sluice` command."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Annotated

import typer

from cli import demo as demo_command
from cli import up as up_command
from devcluster.api import NotReadyError
from devcluster.build import BuildError
from devcluster.cluster import ExistingClusterError
from devcluster.kubectl import KubectlError
from devcluster.processes import ProcessDiedError
from devcluster.toolchain import NoGoError

EXPECTED = (BuildError, NoGoError, ProcessDiedError, NotReadyError, ExistingClusterError, KubectlError, TimeoutError)
"""What a person can read and act on; anything else is a defect and shows its traceback."""

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Kubernetes job queueing as event-driven services.")


@app.command()
def up(
    jobs: Annotated[bool, typer.Option(help="Keep sample Jobs flowing.")] = True,
    existing_cluster: Annotated[
        bool, typer.Option("--use-existing-cluster", help="Use the cluster of KUBECONFIG instead of starting one.")
    ] = False,
) -> None:
    """Run a control plane, NATS and all services here, show what happens, until Ctrl-C."""
    _run(up_command.up(jobs=jobs, existing_cluster=existing_cluster))


@app.command()
def demo() -> None:
    """The same unattended, with a check of the outcome; ends with 0 if all promises were kept. DEMO_BREAK=quota breaks one on purpose."""
    sys.exit(_run(demo_command.demo(os.environ.get("DEMO_BREAK", ""))))


@app.command()
def down() -> None:
    """End a `sluice up` that runs elsewhere on this machine."""
    up_command.down()


def _run(work: object) -> int:
    try:
        return asyncio.run(work) or 0  # type: ignore[arg-type]
    except EXPECTED as error:
        typer.secho(str(error), fg="red", err=True)
        return 1
    except KeyboardInterrupt:
        return 130


def main() -> None:
    """Entry point of the console script."""
    app()


if __name__ == "__main__":
    main()
