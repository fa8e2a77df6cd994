"""The tree of commands: kueuectl's, under its names and aliases, and Sluice's own."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import typer

from cli.ctl import create, deleting, explain, list_workloads, listing, passthrough, stopping, story, version, watch
from cli.ctl.cluster import CommandError
from cli.ctl.flags import before_commands

PANEL = "Queues and workloads"
LOCAL_QUEUE = ("localqueue", "lq")
CLUSTER_QUEUE = ("clusterqueue", "cq")
WORKLOAD = ("workload", "kwl", "kueueworkload", "kueueworkloads")
RESOURCE_FLAVOR = ("resourceflavor", "rf")
PODS = ("pods", "po")

Command = Callable[..., None]
TREE: dict[str, tuple[str, dict[tuple[str, ...], Command]]] = {
    "create": (
        "Create a queue or a flavor.",
        {
            LOCAL_QUEUE: create.local_queue,
            CLUSTER_QUEUE: create.cluster_queue,
            RESOURCE_FLAVOR: create.resource_flavor,
        },
    ),
    "list": (
        "List queues, workloads, flavors, or the pods of a job.",
        {
            LOCAL_QUEUE: listing.local_queues,
            CLUSTER_QUEUE: listing.cluster_queues,
            WORKLOAD: list_workloads.workloads,
            RESOURCE_FLAVOR: listing.resource_flavors,
            PODS: listing.pods,
        },
    ),
    "stop": (
        "Stop a queue or a workload.",
        {
            WORKLOAD: stopping.stop_workload,
            LOCAL_QUEUE: stopping.stop_local_queue,
            CLUSTER_QUEUE: stopping.stop_cluster_queue,
        },
    ),
    "resume": (
        "Let a queue or a workload go on.",
        {
            WORKLOAD: stopping.resume_workload,
            LOCAL_QUEUE: stopping.resume_local_queue,
            CLUSTER_QUEUE: stopping.resume_cluster_queue,
        },
    ),
}
PASSED = (WORKLOAD, CLUSTER_QUEUE, LOCAL_QUEUE, RESOURCE_FLAVOR)
PASS_THROUGH = ("get", "edit", "describe", "patch")
ANYTHING = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
SHELLS = ("bash", "zsh", "fish", "powershell")


def add_to(app: typer.Typer) -> None:
    """Put all of it under `app`."""
    app.callback()(before_commands(app.info.help or ""))
    for verb, (text, commands) in TREE.items():
        group = _group(text)
        for names, command in commands.items():
            _add(group, names, command)
        app.add_typer(group, name=verb, rich_help_panel=PANEL)
    for verb in PASS_THROUGH:
        group = _group(f"kubectl {verb} of queues, workloads and flavors.")
        for names in PASSED:
            _add(group, names, _passing(verb), context_settings=ANYTHING)
        app.add_typer(group, name=verb, rich_help_panel=PANEL)
    group = _group("Delete a workload with its job, or a queue or flavor.")
    _add(group, WORKLOAD, deleting.workload)
    for names in (CLUSTER_QUEUE, LOCAL_QUEUE, RESOURCE_FLAVOR):
        _add(group, names, _passing("delete"), context_settings=ANYTHING)
    app.add_typer(group, name="delete", rich_help_panel=PANEL)
    for name, command in (
        ("explain", explain.explain_workload),
        ("story", story.tell_story),
        ("watch", watch.watch_events),
        ("version", version.show_version),
    ):
        app.command(name, rich_help_panel=PANEL)(command)
    app.add_typer(_completion(), name="completion", rich_help_panel=PANEL)


def _group(text: str) -> typer.Typer:
    group = typer.Typer(no_args_is_help=True, help=text)
    group.callback()(before_commands(text))
    return group


def _add(
    group: typer.Typer, names: tuple[str, ...], command: Command, context_settings: dict[str, object] | None = None
) -> None:
    for place, name in enumerate(names):
        group.command(name, hidden=place > 0, context_settings=context_settings)(command)


def _passing(verb: str) -> Command:
    def run() -> None:
        try:
            passthrough.to_kubectl(verb)
        except CommandError as error:
            typer.echo(f"error: {error}", err=True)
            raise typer.Exit(1) from None

    run.__doc__ = f"As kubectl {verb}."
    return run


def _completion() -> typer.Typer:
    group = typer.Typer(no_args_is_help=True, help="Print a shell's completion script.")
    for shell in SHELLS:
        group.command(shell)(_script_of(shell))
    return group


def _script_of(shell: str) -> Command:
    def run() -> None:
        # The library answers a program that is started with this variable.
        program = sys.argv[0]
        variable = f"_{Path(program).name.replace('-', '_').upper()}_COMPLETE"
        os.execvpe(program, [program], {**os.environ, variable: f"source_{shell}"})

    run.__doc__ = f"Print the script for {shell}."
    return run
