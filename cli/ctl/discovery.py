"""Which resource a kind is: asked of the API server, as only it knows the kinds that are installed."""

from __future__ import annotations

from cli.ctl.cluster import CommandError, Session
from shared.kube.errors import NotFound
from shared.kube.resources import Resource

BATCH = "batch"


async def resource_of(session: Session, api_version: str, kind: str) -> Resource:
    """The resource of an apiVersion and kind. Raises CommandError when it is not served."""
    for one in await _served(session, api_version):
        if one.kind == kind:
            return one
    raise CommandError(f"the server does not know {kind} of {api_version}")


async def resource_named(session: Session, text: str) -> Resource:
    """The resource that `job`, `jobs`, `job.batch` or `rayjob.ray.io` means. Without a group: of any. Raises CommandError."""
    word, _, group = text.lower().partition(".")
    for api_version in await session.preferred_versions():
        found_group = api_version.rpartition("/")[0]
        if group and found_group != group:
            continue
        for one in await _served(session, api_version):
            if word in (one.plural, one.kind.lower()):
                return one
    raise CommandError(f'the server doesn\'t have a resource type "{text}"')


async def _served(session: Session, api_version: str) -> list[Resource]:
    group, _, version = api_version.rpartition("/")
    try:
        found = await session.discover(f"/apis/{api_version}" if group else f"/api/{version}")
    except NotFound:
        return []
    return [
        Resource(group, version, one["name"], one["kind"], one["namespaced"])
        for one in found.get("resources", ())
        if "/" not in one["name"]
    ]
