"""The people, and other people's programs, who write to the simulated API server: one method for each thing that a scenario lets them do.

What goes through admission is asked again until the webhooks answer, as kubectl's user would. `jobs` and `workloads` say what was asked for and is
still wanted: the promise "nothing is lost" is about those.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random

import msgspec

from shared.api import names
from shared.jobs.naming import workload_name
from shared.kube.client import KubeClient
from shared.kube.errors import AlreadyExists, ApiError, Conflict, NotFound, Refused, Unavailable
from shared.kube.resources import CLUSTER_QUEUES, JOBS, LOCAL_QUEUES, WORKLOADS, Resource
from shared.testing.simulated_api import SimulatedApi
from tests.integration.stack.manifests import API
from tests.simulation.scenario import Manifest, find

_RESOURCES: dict[str, Resource] = {
    "Job": JOBS,
    "Workload": WORKLOADS,
    "ClusterQueue": CLUSTER_QUEUES,
    "LocalQueue": LOCAL_QUEUES,
}
_OF_KIND = {"job": JOBS, "workload": WORKLOADS}
_PAUSE_S = 0.25
_LOOK_S = 0.01


class Wanted(msgspec.Struct):
    """A job, or a workload without one, that somebody asked for with `manifest`. `runs_s`: how long its pods need; `gone`: nobody wants it any more;
    `done`: it has run to its end."""

    uid: str
    key: str
    runs_s: float
    manifest: Manifest
    gone: bool = False
    done: bool = False


class Users:
    """Everybody who is not us; `client` goes through admission, `api` does not."""

    def __init__(self, api: SimulatedApi, client: KubeClient, draw: Random, tell: Callable[[str, str], None]) -> None:
        self._api = api
        self._client = client
        self._draw = draw
        self._tell = tell
        self.jobs: dict[str, Wanted] = {}
        """By uid."""
        self.workloads: dict[str, Wanted] = {}
        self._by_key: dict[str, Wanted] = {}
        self._cancelled: set[str] = set()
        """Keys that were deleted before they were created."""

    # --- jobs and workloads ----------------------------------------------------------------------------------------

    async def create_job(self, manifest: Manifest, runs_s: float) -> None:
        """Ask for a Job."""
        made = await self._create(JOBS, manifest)
        self._wanted(self.jobs, made, runs_s, manifest)

    async def create_workload(
        self, namespace: str, name: str, queue: str, cpu: str, pods: int, priority: int, runs_s: float
    ) -> None:
        """Bring a Workload along that no job of ours stands behind."""
        manifest = bare_workload(namespace, name, queue, cpu, pods, priority)
        made = await self._create(WORKLOADS, manifest)
        self._wanted(self.workloads, made, runs_s, manifest)

    def _wanted(self, where: dict[str, Wanted], made: Manifest, runs_s: float, manifest: Manifest) -> None:
        metadata = made["metadata"]
        key = f"{metadata['namespace']}/{metadata['name']}"
        wanted = Wanted(metadata["uid"], key, runs_s, manifest)
        where[wanted.uid] = self._by_key[key] = wanted
        if key in self._cancelled:
            self._delete(_RESOURCES[made["kind"]], key)

    async def delete_job(self, key: str) -> None:
        """Nobody wants it any more."""
        self._delete(JOBS, key)

    async def delete_workload(self, key: str) -> None:
        """The same for a Workload without a job."""
        self._delete(WORKLOADS, key)

    def _delete(self, resource: Resource, key: str) -> None:
        wanted = self._by_key.get(key)
        if wanted is None:
            self._cancelled.add(key)
            return
        wanted.gone = True
        self._do(lambda: self._api.delete(resource, *key.split("/"), propagation="Background", user="user"))

    async def replace(self, kind: str, key: str) -> None:
        """The same once more under the same name as soon as the old one is gone, as `kubectl replace --force` does it."""
        resource, where = _OF_KIND[kind], self.jobs if kind == "job" else self.workloads
        old = self._by_key.get(key)
        if old is None or old.gone or old.done:
            return
        self._delete(resource, key)
        namespace, name = key.split("/")
        while True:
            found = find(self._api, resource, namespace, name)
            if found is None or found["metadata"]["uid"] != old.uid:
                break
            await asyncio.sleep(_LOOK_S)
        self._wanted(where, await self._create(resource, old.manifest), old.runs_s, old.manifest)

    async def delete_workload_of(self, key: str) -> None:
        """Delete the Workload of a job that goes on."""
        name = self._workload_of(key)
        if name is not None:
            self._do(lambda: self._api.delete(WORKLOADS, key.split("/")[0], name, user="user"))

    async def set_active(self, kind: str, key: str, active: bool) -> None:
        """Pause a workload, or let it go on."""
        name = key.split("/")[1] if kind == "workload" else self._workload_of(key)
        if name is not None:
            self._patch(WORKLOADS, f"{key.split('/')[0]}/{name}", {"spec": {"active": active}})

    async def annotate(self, kind: str, key: str) -> None:
        """A note that means nothing to us."""
        note = {"metadata": {"annotations": {"example.com/note": str(self._draw.randrange(1000))}}}
        self._patch(_OF_KIND[kind], key, note)

    async def unsuspend(self, key: str) -> None:
        """Somebody starts a job by hand."""
        self._patch(JOBS, key, {"spec": {"suspend": False}})

    async def priority(self, key: str) -> None:
        """Another priority class."""
        self._patch(
            JOBS, key, {"metadata": {"labels": {names.PRIORITY_CLASS_LABEL: self._draw.choice(("low", "high"))}}}
        )

    async def foreign_workload(self, key: str) -> None:
        """A Workload of nobody's has the name that a job needs."""
        wanted = self._by_key.get(key)
        if wanted is None:
            return
        namespace, name = key.split("/")
        taken = workload_name(kind="Job", group="batch", name=name, uid=wanted.uid)
        self._do(lambda: self._api.create(WORKLOADS, bare_workload(namespace, taken, "", "1", 1, 0), user="user"))

    async def remove_foreign_workload(self, key: str) -> None:
        """And is taken away again."""
        name = self._workload_of(key)
        found = find(self._api, WORKLOADS, key.split("/")[0], name) if name is not None else None
        if name is not None and found is not None and not found["metadata"].get("ownerReferences"):
            self._do(lambda: self._api.delete(WORKLOADS, key.split("/")[0], name, user="user"))

    def _workload_of(self, key: str) -> str | None:
        wanted = self._by_key.get(key)
        return (
            None if wanted is None else workload_name(kind="Job", group="batch", name=key.split("/")[1], uid=wanted.uid)
        )

    # --- queues ----------------------------------------------------------------------------------------------------

    async def create_queue(self, manifest: Manifest) -> None:
        """Make a ClusterQueue or LocalQueue, once the one of that name is gone."""
        await self._create(_RESOURCES[manifest["kind"]], manifest)

    async def delete_queue(self, name: str) -> None:
        """Delete a ClusterQueue; it stays while it is in use."""
        self._do(lambda: self._api.delete(CLUSTER_QUEUES, "", name, user="user"))

    async def delete_local_queue(self, namespace: str, name: str) -> None:
        """Delete a LocalQueue."""
        self._do(lambda: self._api.delete(LOCAL_QUEUES, namespace, name, user="user"))

    async def set_quota(self, name: str, cpu: int) -> None:
        """Another nominal quota for the first flavor."""
        found = find(self._api, CLUSTER_QUEUES, "", name)
        if found is not None:
            groups: list[Manifest] = msgspec.json.decode(msgspec.json.encode(found["spec"]["resourceGroups"]))
            groups[0]["flavors"][0]["resources"][0]["nominalQuota"] = str(cpu)
            limits = groups[0]["flavors"][0]["resources"][0]
            if "lendingLimit" in limits:
                limits["lendingLimit"] = str(min(int(limits["lendingLimit"]), cpu))
            self._patch(CLUSTER_QUEUES, f"/{name}", {"spec": {"resourceGroups": groups}})

    async def dip_quota(self, name: str, for_s: float) -> None:
        """No quota at all for the first flavor, and what it was before."""
        found = find(self._api, CLUSTER_QUEUES, "", name)
        if found is not None:
            before: list[Manifest] = msgspec.json.decode(msgspec.json.encode(found["spec"]["resourceGroups"]))
            await self.set_quota(name, 0)
            await asyncio.sleep(for_s)
            self._patch(CLUSTER_QUEUES, f"/{name}", {"spec": {"resourceGroups": before}})

    async def on_its_own(self, name: str, cpu: int) -> None:
        """Out of its cohort, with this much of every flavor and nothing from anybody else."""
        found = find(self._api, CLUSTER_QUEUES, "", name)
        if found is not None:
            groups: list[Manifest] = msgspec.json.decode(msgspec.json.encode(found["spec"]["resourceGroups"]))
            for resource in (r for g in groups for f in g["flavors"] for r in f["resources"]):
                resource.pop("borrowingLimit", None)
                resource.pop("lendingLimit", None)
                resource["nominalQuota"] = str(cpu)
            self._patch(CLUSTER_QUEUES, f"/{name}", {"spec": {"cohortName": None, "resourceGroups": groups}})

    async def move_queue(self, name: str, cohort: str) -> None:
        """Another cohort, or none."""
        if cohort:
            self._patch(CLUSTER_QUEUES, f"/{name}", {"spec": {"cohortName": cohort}})
            return
        found = find(self._api, CLUSTER_QUEUES, "", name)
        if found is not None:
            # Without a cohort there is nothing to borrow or lend, and the schema says so.
            groups: list[Manifest] = msgspec.json.decode(msgspec.json.encode(found["spec"]["resourceGroups"]))
            for resource in (r for g in groups for f in g["flavors"] for r in f["resources"]):
                resource.pop("borrowingLimit", None)
                resource.pop("lendingLimit", None)
            self._patch(CLUSTER_QUEUES, f"/{name}", {"spec": {"cohortName": None, "resourceGroups": groups}})

    async def stop_queue(self, name: str, policy: str) -> None:
        """Hold a ClusterQueue, drain it, or let it go on."""
        self._patch(CLUSTER_QUEUES, f"/{name}", {"spec": {"stopPolicy": policy}})

    # --- how -------------------------------------------------------------------------------------------------------

    async def _create(self, resource: Resource, manifest: Manifest) -> Manifest:
        namespace, name = manifest["metadata"].get("namespace", ""), manifest["metadata"]["name"]
        while True:
            try:
                body = await self._client.create(resource, namespace, msgspec.json.encode(manifest))
                made: Manifest = msgspec.json.decode(body)
                return made
            except AlreadyExists:
                found = find(self._api, resource, namespace, name)
                if found is not None and resource in (JOBS, WORKLOADS):
                    return found
            except (Unavailable, Refused) as error:
                self._tell(f"{resource.kind} {name}", f"creation refused: {error}")
            await asyncio.sleep(_PAUSE_S)

    def _patch(self, resource: Resource, key: str, patch: Manifest) -> None:
        namespace, _, name = key.rpartition("/")
        self._do(lambda: self._api.write(resource, namespace, name, patch, user="user"))

    def _do(self, write: Callable[[], object]) -> None:
        """A write that may come too late, or be refused: people shrug."""
        try:
            write()
        except (NotFound, Conflict):
            return
        except ApiError as error:
            self._tell("user", f"refused: {error}")


def bare_workload(namespace: str, name: str, queue: str, cpu: str, pods: int, priority: int) -> Manifest:
    """A Workload of one pod set; without a queue it waits for ever."""
    container = {"name": "c", "image": "pause", "resources": {"requests": {"cpu": cpu}}}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    spec: Manifest = {"podSets": [{"name": "main", "count": pods, "template": template}], "priority": priority}
    return {
        "apiVersion": API,
        "kind": names.WORKLOAD,
        "metadata": {"namespace": namespace, "name": name},
        "spec": {**spec, **({"queueName": queue} if queue else {})},
    }
