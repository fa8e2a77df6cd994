"""The flags that many commands share, as kubectl has them.

A command says `@on_cluster`. Its parameters `cluster: Cluster`, `style: Style` and `how: DryRun` stand for the flags that each of them is made of; its own
flags are typer's as always. The flags of the cluster may also stand in front of the command.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any

import msgspec
import typer

from cli.ctl import completing
from cli.ctl.cluster import REQUEST_TIMEOUT_S, Cluster, ClusterFlags, CommandError
from cli.ctl.printing import FORMATS, DryRun, Style

PANEL = "Cluster"


def _kubeconfig(
    kubeconfig: Annotated[str, typer.Option(help="Kubeconfig file.", rich_help_panel=PANEL)] = "",
    context: Annotated[str, typer.Option(help="Context of the kubeconfig.", rich_help_panel=PANEL)] = "",
    kube_cluster: Annotated[
        str, typer.Option("--cluster", help="Cluster of the kubeconfig.", rich_help_panel=PANEL)
    ] = "",
    kube_user: Annotated[str, typer.Option("--user", help="User of the kubeconfig.", rich_help_panel=PANEL)] = "",
    as_user: Annotated[str, typer.Option("--as", help="User to impersonate.", rich_help_panel=PANEL)] = "",
    as_group: Annotated[
        list[str] | None, typer.Option("--as-group", help="Group to impersonate, repeatable.", rich_help_panel=PANEL)
    ] = None,
    namespace: Annotated[
        str,
        typer.Option(
            "--namespace",
            "-n",
            help="Namespace, else the context's.",
            rich_help_panel=PANEL,
            autocompletion=completing.namespaces,
        ),
    ] = "",
    request_timeout: Annotated[
        float, typer.Option(help="Seconds one request may take.", min=0.1, rich_help_panel=PANEL)
    ] = REQUEST_TIMEOUT_S,
) -> ClusterFlags:
    return ClusterFlags(
        kubeconfig=kubeconfig,
        context=context,
        cluster=kube_cluster,
        user=kube_user,
        as_user=as_user,
        as_group=tuple(as_group or ()),
        namespace=namespace,
        request_timeout_s=request_timeout,
    )


def _style(
    output: Annotated[str, typer.Option("--output", "-o", help=f"One of {', '.join(FORMATS)}.")] = "",
    template: Annotated[str, typer.Option(help="Text or file of the template of -o go-template.")] = "",
    show_managed_fields: Annotated[
        bool, typer.Option("--show-managed-fields", help="Print managedFields too.")
    ] = False,
    allow_missing_template_keys: Annotated[
        bool, typer.Option(help="Templates may name fields that are not there.")
    ] = True,
) -> Style:
    return Style(output, template, show_managed_fields, allow_missing_template_keys)


def _how(
    dry_run: Annotated[
        str, typer.Option(help="none, server (checked, not stored) or client (printed, not sent).")
    ] = "none",
) -> DryRun:
    return DryRun.of(dry_run)


_PARTS: dict[str, Callable[..., Any]] = {"style": _style, "how": _how}
_CLUSTER = inspect.signature(_kubeconfig, eval_str=True).parameters
_CONTEXT = inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
_NONE_GIVEN = ClusterFlags()


def on_cluster(command: Callable[..., None]) -> Callable[..., None]:
    """The command with the shared flags in place of their parameters. What the cluster refuses becomes one line and exit code 1."""
    parameters = inspect.signature(command, eval_str=True).parameters
    own = [parameter for name, parameter in parameters.items() if name not in ("cluster", *_PARTS)]
    parts = {
        name: inspect.signature(make, eval_str=True).parameters for name, make in _PARTS.items() if name in parameters
    }

    @functools.wraps(command)
    def wrapped(*, ctx: typer.Context, **given: Any) -> None:
        flags = _kubeconfig(**{name: given.pop(name) for name in _CLUSTER})
        try:
            made = {part: _PARTS[part](**{name: given.pop(name) for name in names}) for part, names in parts.items()}
            command(cluster=Cluster(_merged(ctx.obj, flags)), **made, **given)
        except CommandError as error:
            typer.echo(f"error: {error}", err=True)
            raise typer.Exit(1) from None

    shared = [parameter for names in parts.values() for parameter in names.values()]
    return _with_parameters(wrapped, [_CONTEXT, *own, *shared, *_CLUSTER.values()])


def before_commands(help_text: str) -> Callable[..., None]:
    """The callback of a group: takes the same flags in front of a command."""

    def keep(*, ctx: typer.Context, **given: Any) -> None:
        ctx.obj = _merged(ctx.obj, _kubeconfig(**given))

    keep.__doc__ = help_text
    return _with_parameters(keep, [_CONTEXT, *_CLUSTER.values()])


def _with_parameters(function: Callable[..., None], parameters: list[inspect.Parameter]) -> Callable[..., None]:
    keywords = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in parameters]
    function.__signature__ = inspect.Signature(keywords)  # type: ignore[attr-defined]
    function.__annotations__ = {p.name: p.annotation for p in keywords}
    return function


def _merged(earlier: object, flags: ClusterFlags) -> ClusterFlags:
    """What stands behind the command wins over what stands in front of it."""
    if not isinstance(earlier, ClusterFlags):
        return flags
    given = {
        name: value for name, value in msgspec.structs.asdict(flags).items() if value != getattr(_NONE_GIVEN, name)
    }
    return msgspec.structs.replace(earlier, **given)
