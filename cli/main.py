"""The `sluice` command. Each command imports what it needs when it is called: `all-in-one` has to be quick."""

from __future__ import annotations

import time

STARTED = time.monotonic()

# ruff: noqa: E402
import asyncio
import os
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Annotated, Any

import typer

from shared.events.streams import SERVICES

app = typer.Typer(no_args_is_help=True, help="Kubernetes job queueing as event-driven services.")


@app.command()
def up(
    jobs: Annotated[bool, typer.Option(help="Keep sample Jobs flowing.")] = True,
    existing_cluster: Annotated[
        bool, typer.Option("--use-existing-cluster", help="Use the cluster of KUBECONFIG instead of starting one.")
    ] = False,
) -> None:
    """Run a control plane, NATS and all services here, show what happens, until Ctrl-C."""
    from cli import up as command

    sys.exit(_run(lambda: command.up(jobs=jobs, existing_cluster=existing_cluster)))


@app.command()
def demo() -> None:
    """The same unattended, with a check of the outcome; ends with 0 if all promises were kept. DEMO_BREAK=quota breaks one on purpose."""
    from cli import demo as command

    sys.exit(_run(lambda: command.demo(os.environ.get("DEMO_BREAK", ""))))


@app.command()
def down() -> None:
    """End a `sluice up` that runs elsewhere on this machine."""
    from cli import up as command

    command.down()


@app.command()
def simulate(
    state: Annotated[
        typer.FileText, typer.Argument(help="YAML or JSON file of objects; - reads standard input.", encoding="utf-8")
    ],
    output: Annotated[str, typer.Option("--output", "-o", help="table or json")] = "table",
    fair_sharing: Annotated[bool, typer.Option("--fair-sharing", help="Share cohorts by weight.")] = False,
) -> None:
    """Print what the engine would decide about the objects of a file, and why the rest waits."""
    from cli.simulate import Output, simulate_command

    if output not in ("table", "json"):
        raise typer.BadParameter("table or json", param_hint="--output")
    simulate_command(state, Output(output), fair_sharing)


@app.command("hand-back")
def hand_back(
    kubeconfig: Annotated[str, typer.Option(envvar="KUBECONFIG", help="Credentials that may change Workloads.")] = "",
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="Where Sluice was installed.")] = "kueue-system",
) -> None:
    """Before Kueue takes over again: let it clear what Sluice wrote into Workloads. Needs Sluice's watcher stopped."""
    from cli import hand_back as command
    from shared.kube.credentials import CredentialsError

    try:
        done = asyncio.run(command.hand_back(kubeconfig, namespace))
    except (command.HandBackError, CredentialsError) as error:
        typer.secho(str(error), fg="red", err=True)
        sys.exit(1)
    typer.echo(f"{done.changed} of {done.workloads} workloads handed back")


@app.command("all-in-one")
def all_in_one(
    kubeconfig: Annotated[
        str, typer.Option(envvar="KUBECONFIG", help="Credentials for the cluster; without: the pod's service account.")
    ] = "",
    config: Annotated[str, typer.Option(envvar="KUEUE_CONFIG", help="Kueue's Configuration file.")] = "",
    feature_gates: Annotated[str, typer.Option(envvar="FEATURE_GATES", help="A=true,B=false")] = "",
    webhook_host: Annotated[
        str, typer.Option(envvar="WEBHOOK_HOST", help="Address to serve admission on.", show_default="127.0.0.1")
    ] = "",
    webhook_port: Annotated[
        int | None,
        typer.Option(envvar="WEBHOOK_PORT", min=0, max=65535, help="Its port; 0: a free one.", show_default="9443"),
    ] = None,
    webhook_url: Annotated[
        str, typer.Option(envvar="WEBHOOK_URL", help="How the API server reaches it.", show_default="https://HOST:PORT")
    ] = "",
    webhook_cert_dir: Annotated[
        str,
        typer.Option(
            envvar="WEBHOOK_CERT_DIR", help="Folder of tls.crt, tls.key and maybe ca.crt; without: makes its own."
        ),
    ] = "",
    install: Annotated[
        str,
        typer.Option(help="What to apply to the cluster first: crds,webhooks,rbac, or all. Else what is there stays."),
    ] = "",
    health_port: Annotated[
        int | None,
        typer.Option(
            envvar="HEALTH_PORT",
            min=0,
            max=65535,
            help="Of /readyz and /healthz over everything; 0: a free one.",
            show_default="8081",
        ),
    ] = None,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            envvar="METRICS_PORT",
            min=0,
            max=65535,
            help="Of /metrics, plain HTTP; 0: a free one.",
            show_default="8443",
        ),
    ] = None,
    without: Annotated[str, typer.Option(help="Services that are not to run here, with commas.")] = "",
    scheduler: Annotated[bool, typer.Option(envvar="SCHEDULER", help="Run the scheduler.")] = True,
    print_env: Annotated[
        str, typer.Option(metavar="SERVICE", help="Leave this one out and print what it needs to run elsewhere.")
    ] = "",
    log_dir: Annotated[str, typer.Option(help="A log file for each service, instead of standard error.")] = "",
) -> None:
    """Run NATS and every service as children of this process, against any cluster."""
    from cli import all_in_one as command
    from shared.config.configuration_file import ConfigurationError

    options = command.Options(
        kubeconfig=kubeconfig,
        config=config,
        feature_gates=feature_gates,
        webhook_host=webhook_host,
        webhook_port=webhook_port,
        webhook_url=webhook_url,
        webhook_cert_dir=webhook_cert_dir,
        install=_names(install),
        health_port=health_port,
        metrics_port=metrics_port,
        without=(*_names(without), *(() if scheduler else ("scheduler",))),
        print_env=print_env,
        log_dir=log_dir,
    )
    try:
        code = command.run(options, STARTED)
    except (command.StartError, ConfigurationError, OSError) as error:
        code = command.fail(error)
    sys.exit(code)


def _service_command(service: str) -> Callable[..., None]:
    def command(
        print_env: Annotated[
            bool, typer.Option("--print-env", help="Print what it needs beside a running all-in-one, and end.")
        ] = False,
        folder: Annotated[
            Path | None, typer.Option(help="Of that all-in-one.", show_default="the newest that runs")
        ] = None,
    ) -> None:
        from cli import run_service

        sys.exit(run_service.print_environment(service, folder) if print_env else run_service.run(service))

    command.__doc__ = f"Run {service} alone, as SLUICE_* variables say."
    return command


for _service in SERVICES:
    app.command(_service.replace("_", "-"), rich_help_panel="Services")(_service_command(_service))


def _names(text: str) -> tuple[str, ...]:
    return tuple(n.strip().replace("-", "_") for n in text.split(",") if n.strip())


def _run(work: Callable[[], Coroutine[Any, Any, int | None]]) -> int:
    # What a person can read and act on; anything else is a defect and shows its traceback.
    from devcluster.api import NotReadyError
    from devcluster.build import BuildError
    from devcluster.cluster import ExistingClusterError
    from devcluster.kubectl import KubectlError
    from devcluster.processes import ProcessDiedError
    from devcluster.toolchain import NoGoError

    expected = (
        BuildError,
        NoGoError,
        ProcessDiedError,
        NotReadyError,
        ExistingClusterError,
        KubectlError,
        TimeoutError,
    )
    try:
        return asyncio.run(work()) or 0
    except expected as error:
        typer.secho(str(error), fg="red", err=True)
        return 1
    except BaseExceptionGroup as group:
        found, rest = group.split(expected)
        if found is None or rest is not None:
            raise
        typer.secho(str(found.exceptions[0]), fg="red", err=True)
        return 1
    except BrokenPipeError:
        return 0
    except KeyboardInterrupt:
        return 130


QUICK = ("all-in-one", *(service.replace("_", "-") for service in SERVICES))
"""Commands for which not even the names of the others are worth an import."""


def main() -> None:
    """Entry point of the console script."""
    if sys.argv[1:2] and sys.argv[1] in QUICK:
        app()
        return
    from cli.ctl.app import add_to

    add_to(app)
    app()


def kubectl_plugin() -> None:
    """Entry point of `kubectl sluice` and `kubectl kueue`: only what is done to queues and workloads."""
    from cli.ctl.app import add_to

    plugin = typer.Typer(no_args_is_help=True, help="Queues and workloads of Kueue's API.")
    add_to(plugin)
    sys.exit(_as_kubectl(plugin))


def _as_kubectl(plugin: typer.Typer) -> int:
    """Run it; whatever was typed wrong is one line and exit code 1, as with kueuectl, and a command alone prints its help."""
    from typer.exceptions import TyperException

    try:
        return plugin(standalone_mode=False) or 0
    except TyperException as error:
        # The help of a command alone was printed on the way; there is no message then.
        if error.format_message():
            typer.echo(f"error: {error.format_message()}", err=True)
        return 1 if error.format_message() else 0
    except typer.Abort:
        return 1


if __name__ == "__main__":
    main()
