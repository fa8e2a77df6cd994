"""`python -m devcluster build|up|status|down`: the control plane from a shell. All it does is done by other modules."""

import asyncio
import os
import signal
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from devcluster import state
from devcluster.api import NotReadyError
from devcluster.binaries import RULES, describe_binary, resolve_binaries
from devcluster.build import (
    JOB_CONTROLLERS,
    KUBERNETES_MINOR,
    KUBERNETES_VERSIONS,
    KUEUE,
    BuildError,
    ensure_built,
)
from devcluster.cluster import DevCluster, ExistingClusterError
from devcluster.kubectl import KubectlError
from devcluster.options import ClusterOptions, NodeGroup
from devcluster.processes import ProcessDiedError
from devcluster.toolchain import NoGoError

# What a person can read and act on; anything else is a defect and shows its traceback.
EXPECTED = (BuildError, NoGoError, ProcessDiedError, NotReadyError, ExistingClusterError, KubectlError)

app = typer.Typer(add_completion=False, no_args_is_help=True, help="A real Kubernetes control plane on this machine.")
console = Console(stderr=True, highlight=False, soft_wrap=True)

StateDir = Annotated[
    Path | None, typer.Option(help="Where a running cluster's files are.", show_default="user's state")
]


@app.command()
def build(
    kubernetes: Annotated[
        str, typer.Option(help=f"Version of the control plane: {', '.join(f'1.{m}' for m in KUBERNETES_VERSIONS)}.")
    ] = f"1.{KUBERNETES_MINOR}",
    kueue: Annotated[bool, typer.Option(help="Kueue's controller too, for `make handback`.")] = False,
    job_controllers: Annotated[
        bool, typer.Option(help="The controllers of kinds of jobs too, for `make e2e`.")
    ] = False,
) -> None:
    """Build what is missing (about 8 minutes on two cores the first time, nothing afterwards; another control plane 4)."""
    minors = {f"1.{minor}": minor for minor in KUBERNETES_VERSIONS}
    if kubernetes not in minors:
        raise typer.BadParameter(f"{kubernetes!r}: one of {', '.join(minors)}", param_hint="--kubernetes")
    try:
        resolved = resolve_binaries(tuple(RULES), console, minors[kubernetes])
        if kueue:
            resolved["kueue"] = ensure_built(KUEUE, console) / "kueue"
        for module in JOB_CONTROLLERS if job_controllers else ():
            resolved[module.name] = ensure_built(module, console) / module.name
    except EXPECTED as error:
        raise _refusal(error) from error
    for name, path in resolved.items():
        print(f"{name}\t{path}")


@app.command()
def up(
    nodes: Annotated[int, typer.Option(min=0, help="How many fake nodes.")] = 3,
    cpu: Annotated[str, typer.Option(help="Of each node.")] = "64",
    memory: Annotated[str, typer.Option(help="Of each node.")] = "256Gi",
    gpus: Annotated[int, typer.Option(min=0, help="nvidia.com/gpu of each node.")] = 0,
    pod_seconds: Annotated[float, typer.Option(min=0, help="How long pods run by default.")] = 3.0,
    audit: Annotated[bool, typer.Option(help="Log every write with its user.")] = False,
    use_existing_cluster: Annotated[
        bool, typer.Option(help="Start nothing; check that the cluster of KUBECONFIG answers.")
    ] = False,
    state_dir: StateDir = None,
) -> None:
    """Start a control plane (about 4 s once built) and run it until Ctrl-C; prints its KUBECONFIG."""
    directory = state_dir or state.state_directory()
    resources = {"nvidia.com/gpu": str(gpus)} if gpus else {}
    options = ClusterOptions(
        nodes=(NodeGroup(name="node", count=nodes, cpu=cpu, memory=memory, resources=resources),),
        default_pod_seconds=pod_seconds,
        audit=audit,
        existing=use_existing_cluster,
        data_dir=directory,
    )
    recorded = state.read_state(directory)
    if recorded is not None and not use_existing_cluster and state.find(recorded.owner) is not None:
        console.print(f"a cluster runs there already (pid {recorded.owner.pid}): `python -m devcluster down` ends it")
        raise typer.Exit(1)
    try:
        raise typer.Exit(asyncio.run(_run(options, directory)))
    except EXPECTED as error:
        raise _refusal(error) from error


@app.command()
def status(state_dir: StateDir = None) -> None:
    """Show what runs, and where each binary comes from; exits 1 when no cluster runs."""
    recorded = state.read_state(state_dir or state.state_directory())
    for name in RULES:
        console.print(f"{name}: {describe_binary(name)}")
    if recorded is None or state.find(recorded.owner) is None:
        console.print("no cluster runs")
        raise typer.Exit(1)
    for part in recorded.parts:
        console.print(f"{part.name}: {'runs' if state.find(part) is not None else 'ended'} (pid {part.pid})")
    print(f"KUBECONFIG={recorded.kubeconfig}")


@app.command()
def down(state_dir: StateDir = None) -> None:
    """End the cluster that `up` runs, and any part a killed `up` left."""
    directory = state_dir or state.state_directory()
    recorded = state.read_state(directory)
    ended = state.end_recorded(recorded) if recorded is not None else []
    state.remove_state(directory)
    console.print(f"ended: {', '.join(ended)}" if ended else "no cluster runs")


async def _run(options: ClusterOptions, directory: Path) -> int:
    """Runs until a signal (exit code 0) or until a part ends by itself (1)."""
    async with DevCluster(options, console) as cluster:
        if options.existing:
            print(f"KUBECONFIG={cluster.kubeconfig}")
            return 0
        parts = tuple(state.identify(name, pid) for name, pid in cluster.pids.items())
        owner = state.identify("up", os.getpid())
        state.write_state(directory, state.ClusterState(str(cluster.kubeconfig), cluster.server, owner, parts))
        try:
            print(f"KUBECONFIG={cluster.kubeconfig}", flush=True)
            console.print("ready; Ctrl-C ends it")
            return await _until_the_end(cluster)
        finally:
            state.remove_state(directory)


async def _until_the_end(cluster: DevCluster) -> int:
    asked = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, asked.set)
    ending = asyncio.create_task(cluster.first_exit())
    asking = asyncio.create_task(asked.wait())
    try:
        await asyncio.wait((ending, asking), return_when=asyncio.FIRST_COMPLETED)
        if asked.is_set():
            return 0
        name = ending.result()
        console.print(f"{name} ended by itself; the last lines of its log:\n{cluster.last_lines(name)}", markup=False)
        return 1
    finally:
        for task in (ending, asking):
            task.cancel()


def _refusal(error: Exception) -> typer.Exit:
    console.print(str(error), markup=False, style="red")
    return typer.Exit(1)


if __name__ == "__main__":
    app()
