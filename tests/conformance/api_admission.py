"""Cases of the area `api_admission`: requests to a real API server that has our definitions and webhooks."""

from __future__ import annotations

from typing import Any

import msgspec

from shared.config.feature_gates import resolve
from shared.kube import resources
from shared.kube.errors import AlreadyExists, ApiError, NotFound
from shared.kube.resources import Resource
from tests.conformance.live import LIVE
from tests.conformance.scenario import Case, Mismatch, NotCovered, demand_equal
from tests.integration.admission_server import Admission

Json = dict[str, Any]

RESOURCES: dict[str, Resource] = {
    one.kind: one
    for one in (
        resources.NAMESPACES,
        resources.PRIORITY_CLASSES,
        resources.JOBS,
        resources.WORKLOADS,
        resources.LOCAL_QUEUES,
        resources.CLUSTER_QUEUES,
        resources.COHORTS,
        resources.RESOURCE_FLAVORS,
        resources.ADMISSION_CHECKS,
        resources.WORKLOAD_PRIORITY_CLASSES,
        resources.TOPOLOGIES,
        resources.PROVISIONING_REQUEST_CONFIGS,
        resources.MULTIKUEUE_CLUSTERS,
        resources.MULTIKUEUE_CONFIGS,
    )
}
VERDICTS = {403: "Forbidden", 422: "Invalid"}
DROP_FINALIZERS = b'{"metadata":{"finalizers":null}}'


def run(case: Case) -> None:
    """Run one case; raises Mismatch, NotCovered or Unavailable."""
    server = LIVE.server()
    LIVE.run(_run(server, case))


async def _run(server: Admission, case: Case) -> None:
    server.use(resolve(case.raw.get("gates") or {}))
    attempt = Attempt(server)
    try:
        for one in case.raw.get("objects") or ():
            await attempt.prepare(one)
        request, expect = case.raw["request"], case.raw["expect"]
        if request["op"] == "create":
            verdict, stored = await attempt.create(request["object"])
            demand_equal("verdict", verdict, expect["verdict"])
            if "stored" in expect:
                _compare_stored(stored, expect["stored"])
        elif request["op"] == "steps":
            await _steps(attempt, case.raw["steps"], expect["verdicts"])
        else:
            raise NotCovered(f"request {request['op']}")
    finally:
        await attempt.clean_up()


async def _steps(attempt: Attempt, steps: list[Json], wanted: list[str]) -> None:
    for step, expected in zip(steps, wanted, strict=True):
        if step["op"] == "create":
            verdict, _ = await attempt.create(step["object"])
        elif step["op"] in ("merge_patch", "status_merge_patch"):
            verdict = await attempt.patch(step["patch"], status=step["op"].startswith("status"))
        else:
            raise NotCovered(f"step {step['op']}")
        demand_equal(f"verdict on {step['op']}", verdict, expected)
        if verdict != "accepted":
            # What comes after a refusal has no meaning.
            return


class Attempt:
    """The objects of one case, removed afterwards: the next one starts on an empty server."""

    def __init__(self, server: Admission) -> None:
        self._server = server
        self._made: list[tuple[Resource, str, str]] = []
        self._subject: tuple[Resource, str, str] | None = None
        """What patches are for: the object created first."""

    async def prepare(self, raw: Json) -> None:
        """An object that is there before."""
        verdict, _ = await self.create(raw, subject=False)
        if verdict != "accepted":
            raise Mismatch(f"{raw['kind']} {raw['metadata'].get('name')}: could not be prepared: {verdict}")

    async def create(self, raw: Json, *, subject: bool = True) -> tuple[str, Json]:
        """(verdict, what was stored)."""
        resource = _resource(raw)
        namespace = raw["metadata"].get("namespace", "") if resource.namespaced else ""
        try:
            stored = await self._server.create(resource, raw, namespace=namespace)
        except AlreadyExists:
            if resource is not RESOURCES["Namespace"]:
                raise
            # Nothing here ends a namespace: they stay.
            return "accepted", {}
        except ApiError as error:
            return _verdict(error), {}
        place = (resource, namespace, stored["metadata"]["name"])
        if resource is not RESOURCES["Namespace"]:
            self._made.append(place)
        if subject and self._subject is None:
            self._subject = place
        return "accepted", stored

    async def patch(self, patch: Json, *, status: bool) -> str:
        """Verdict on a JSON merge patch of the object, or of its status."""
        if self._subject is None:
            raise NotCovered("a patch before anything is created")
        resource, namespace, name = self._subject
        try:
            body = msgspec.json.encode(patch)
            await self._server.admin.patch(resource, namespace, name, body, subresource="status" if status else "")
        except ApiError as error:
            return _verdict(error)
        return "accepted"

    async def clean_up(self) -> None:
        """Remove what was made."""
        for resource, namespace, name in reversed(self._made):
            try:
                # Nobody here waits for the end of what a finalizer protects.
                await self._server.admin.patch(resource, namespace, name, DROP_FINALIZERS)
                await self._server.admin.delete(resource, namespace, name)
            except NotFound:
                continue


def _resource(raw: Json) -> Resource:
    try:
        found = RESOURCES[raw["kind"]]
    except KeyError as error:
        raise NotCovered(f"kind {raw['kind']}") from error
    version = raw.get("apiVersion", found.api_version).rpartition("/")[2]
    return found if version == found.version else msgspec.structs.replace(found, version=version)


def _verdict(error: ApiError) -> str:
    return VERDICTS.get(error.status) or f"{error.status} {error.message}"


def _compare_stored(stored: Json, wanted: Json) -> None:
    for key in ("apiVersion", "kind"):
        demand_equal(key, stored[key], wanted.get(key, stored[key]))
    demand_equal("name", stored["metadata"]["name"], wanted["metadata"].get("name", stored["metadata"]["name"]))
    finalizers = (one["metadata"].get("finalizers") or [] for one in (stored, wanted))
    demand_equal("finalizers", *finalizers)
    demand_equal("spec", _filled(stored.get("spec")), _filled(wanted.get("spec")))


def _filled(value: Any) -> Any:
    """Without what is empty, which is the same as absent."""
    if isinstance(value, dict):
        inner = {key: _filled(one) for key, one in value.items()}
        return {key: one for key, one in inner.items() if one not in (None, {}, [])}
    return [_filled(one) for one in value] if isinstance(value, list) else value
