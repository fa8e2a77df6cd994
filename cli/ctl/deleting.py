"""`delete workload`: a workload goes by way of what owns it, since its job would only make it again."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from cli.ctl import completing
from cli.ctl.cluster import Cluster, CommandError, Json, Session
from cli.ctl.discovery import resource_of
from cli.ctl.flags import on_cluster
from cli.ctl.printing import DryRun, said, singular
from shared.kube.errors import NotFound
from shared.kube.resources import WORKLOADS, Resource


class _Owner(msgspec.Struct, frozen=True):
    resource: Resource
    name: str

    def __str__(self) -> str:
        return f"{singular(self.resource)}/{self.name}"


class _Doomed(msgspec.Struct, frozen=True):
    namespace: str
    name: str
    owners: tuple[_Owner, ...]


@on_cluster
def workload(
    cluster: Cluster,
    how: DryRun,
    names: Annotated[
        list[str] | None, typer.Argument(help="Names of workloads.", autocompletion=completing.workloads)
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    all_: Annotated[bool, typer.Option("--all", help="All workloads of the namespace.")] = False,
    all_namespaces: Annotated[bool, typer.Option("--all-namespaces", "-A", help="With --all: of every one.")] = False,
) -> None:
    """Delete workloads and the jobs that own them."""
    named = names or []
    if not named and not all_:
        raise CommandError("requires at least 1 arg(s), only received 0")
    if named and all_:
        raise CommandError("name cannot be provided when a selector is specified")
    if named and all_namespaces:
        raise CommandError("a resource cannot be retrieved by name across all namespaces")

    async def find(session: Session) -> list[_Doomed]:
        found = await session.all(WORKLOADS, everywhere=all_namespaces) if all_ else await _by_name(session, named)
        return [await _doomed(session, one) for one in found]

    doomed = cluster.run(find)
    if any(one.owners for one in doomed) and not yes and how is DryRun.NONE:
        _ask(doomed, all_)

    async def delete(session: Session) -> None:
        for one in doomed:
            await _delete(session, one, how)

    cluster.run(delete)


async def _by_name(session: Session, names: list[str]) -> list[Json]:
    found = []
    for name in names:
        try:
            found.append(await session.get(WORKLOADS, name))
        except NotFound as error:
            typer.echo(error.message, err=True)
    return found


async def _doomed(session: Session, found: Json) -> _Doomed:
    metadata = found["metadata"]
    owners = [
        _Owner(await resource_of(session, one["apiVersion"], one["kind"]), one["name"])
        for one in metadata.get("ownerReferences") or ()
    ]
    return _Doomed(metadata["namespace"], metadata["name"], tuple(owners))


def _ask(doomed: list[_Doomed], is_all: bool) -> None:
    if is_all:
        typer.echo("This operation will also delete every job that owns one of these workloads.")
    else:
        typer.echo("This operation will also delete:")
        for one in doomed:
            if one.owners:
                owners = ", ".join(map(str, one.owners))
                typer.echo(f"  - {owners} associated with the {one.namespace}/{one.name} workload")
    typer.echo("Do you want to proceed (y/n)? ", nl=False)
    try:
        answer = input()
    except EOFError:
        answer = ""
    if answer.strip() not in ("y", "Y"):
        typer.echo("Deletion is canceled")
        raise typer.Exit(0)


async def _delete(session: Session, one: _Doomed, how: DryRun) -> None:
    doomed = [(owner.resource, owner.name) for owner in one.owners] or [(WORKLOADS, one.name)]
    for resource, name in doomed:
        if how is not DryRun.CLIENT:
            try:
                await session.delete(resource, one.namespace, name, dry_run=how is DryRun.SERVER)
            except NotFound as error:
                typer.echo(error.message, err=True)
                continue
        said(resource, name, "deleted", how)
