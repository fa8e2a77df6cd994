"""The job that `--for TYPE[.GROUP]/NAME` names."""

from __future__ import annotations

from cli.ctl.cluster import CommandError, Json, Session
from cli.ctl.discovery import resource_named
from shared.kube.resources import Resource


async def find_job(session: Session, text: str) -> tuple[Resource, Json]:
    """Its resource and the object. Raises CommandError and ApiErrors."""
    kind, slash, name = text.partition("/")
    if not slash or not kind or not name:
        raise CommandError(f"invalid --for {text}: TYPE[.GROUP]/NAME")
    resource = await resource_named(session, kind)
    return resource, await session.get(resource, name)
