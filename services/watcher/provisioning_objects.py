"""Makes and deletes the objects of two-phase admission: a ProvisioningRequest and the PodTemplates it names.

 1. Missing PodTemplates are created, controlled by the Workload: the pod set's own template, where its flavors put it, requests filled from limits.
 2. The ProvisioningRequest is created, controlled by the Workload.
 3. The templates are handed over to the ProvisioningRequest and go when it goes.

Each step finds what an earlier attempt left behind. Templates are built here from the gateway's own copy; they never cross the bus.
"""

import msgspec

from services.watcher.build_workload import pod_sets_of_workload
from services.watcher.kubernetes_events import PROVISIONING_CONTROLLER, EventRecorder, about_workload
from services.watcher.object_writer import ObjectWriter, Rejected, Result, Written, version_of
from services.watcher.patches import Refusal
from services.watcher.start_info import pod_set_infos
from services.watcher.store import Store, Stored
from services.watcher.workload_state import is_reserved, workload_of
from shared.api import names
from shared.api.workload import Workload
from shared.events import commands
from shared.jobs.manifest import JsonObject, items, replaced, section
from shared.jobs.podset_info import MissingFlavor, PermanentError, merged_template
from shared.kube import resources
from shared.kube.client import KubeClient
from shared.kube.errors import AlreadyExists, Conflict, NotFound, Refused
from shared.kube.resources import Resource


class ProvisioningObjects:
    """Raises Unavailable when the API server gives no answer: try again later."""

    def __init__(self, store: Store, client: KubeClient, writer: ObjectWriter, events: EventRecorder) -> None:
        self._store = store
        self._client = client
        self._writer = writer
        self._events = events

    async def create(self, command: commands.CreateProvisioningRequest) -> Result:
        """The three steps; rejected if the workload is gone, holds no quota, or an object is refused."""
        stored = self._store.get("workload", command.namespace, command.workload)
        if stored is None or stored.uid != command.workload_uid:
            return Rejected("the workload is gone", gone=True)
        workload = workload_of(stored)
        if not is_reserved(workload):
            return Rejected("the workload holds no quota", stored.version)
        what = f'ProvisioningRequest "{command.name}"'
        try:
            for name, template in self._templates(command, stored).items():
                what = f'PodTemplate "{name}"'
                await self._create("podtemplate", resources.POD_TEMPLATES, template)
            what = f'ProvisioningRequest "{command.name}"'
            request = await self._create(
                "provisioningrequest", resources.PROVISIONING_REQUESTS, _provisioning_request(command, workload)
            )
        except (Refused, PermanentError, MissingFlavor, NotFound, LookupError) as error:
            # A kind that was never listed is not served by this cluster.
            is_missing = isinstance(error, NotFound) and not self._store.version_of("provisioningrequest")
            is_request = what.startswith("ProvisioningRequest")
            text = f"Error creating {what}: {names.PROVISIONING_NOT_SERVED if is_missing and is_request else error}"
            self._events.emit(
                about_workload(workload.metadata), "Warning", "FailedCreate", text, controller=PROVISIONING_CONTROLLER
            )
            return Rejected(text, stored.version)
        owner = _reference(resources.PROVISIONING_REQUESTS, command.name, request.uid)
        for source in command.templates:
            await self._hand_over(command.namespace, source.name, owner)
        return Written(request.version, changed=True)

    async def delete(self, command: commands.DeleteProvisioningRequest) -> Result:
        """Delete the request, if it still is the one that was meant; its templates are garbage then."""
        stored = self._store.get("provisioningrequest", command.namespace, command.name)
        uid = command.uid or (stored.uid if stored is not None else "")
        try:
            await self._client.delete(
                resources.PROVISIONING_REQUESTS, command.namespace, command.name, uid=uid, propagation="Background"
            )
        except (NotFound, Conflict):
            return Rejected("the object is gone", gone=True)
        return Written(0 if stored is None else stored.version, changed=True)

    async def _create(self, kind: str, resource: Resource, manifest: JsonObject) -> Stored:
        """The object, ours from an earlier attempt or new. Raises LookupError if it is someone else's."""
        metadata = section(manifest, "metadata")
        namespace, name = str(metadata["namespace"]), str(metadata["name"])
        stored = self._store.get(kind, namespace, name)
        if stored is None:
            try:
                raw = await self._client.create(resource, namespace, msgspec.json.encode(manifest))
            except AlreadyExists:
                stored = await self._writer.read(kind, namespace, name)
            else:
                self._store.upsert(kind, raw)
                stored = self._store.get(kind, namespace, name)
                if kind == "provisioningrequest" and stored is not None:
                    self._announce(manifest, namespace, name)
                if stored is not None and stored.version != version_of(raw):
                    stored = await self._writer.read(kind, namespace, name)
        if stored is None:
            raise LookupError(f"{resource.kind} {namespace}/{name} was deleted at once")
        if stored.object.metadata.labels.get(names.MANAGED_LABEL) != "true":
            raise LookupError(f"{resource.kind} {namespace}/{name} exists and is not ours")
        return stored

    def _announce(self, manifest: JsonObject, namespace: str, name: str) -> None:
        owner = next(iter(items(manifest, "metadata", "ownerReferences")), {})
        workload = self._store.get("workload", namespace, str(owner.get("name", "")))
        if workload is not None:
            self._events.emit(
                about_workload(workload.object.metadata),
                "Normal",
                "ProvisioningRequestCreated",
                f"Created ProvisioningRequest: {name!r}",
                controller=PROVISIONING_CONTROLLER,
            )

    def _templates(self, command: commands.CreateProvisioningRequest, stored: Stored) -> dict[str, JsonObject]:
        workload = workload_of(stored)
        infos = {info.name: info for info in pod_set_infos(self._store, workload, with_check_updates=False)}
        pod_sets = {pod_set.name: pod_set for pod_set in pod_sets_of_workload(stored.raw)}
        owner = _reference(resources.WORKLOADS, workload.metadata.name, workload.metadata.uid)
        result: dict[str, JsonObject] = {}
        for source in command.templates:
            if source.pod_set not in pod_sets or source.pod_set not in infos:
                raise LookupError(f"the workload has no pod set {source.pod_set!r}")
            template = merged_template(pod_sets[source.pod_set].template, infos[source.pod_set])
            result[source.name] = {
                "apiVersion": resources.POD_TEMPLATES.api_version,
                "kind": resources.POD_TEMPLATES.kind,
                "metadata": {
                    "name": source.name,
                    "namespace": command.namespace,
                    "labels": {names.MANAGED_LABEL: "true"},
                    "ownerReferences": [owner],
                },
                "template": requests_from_limits(template),
            }
        return result

    async def _hand_over(self, namespace: str, name: str, owner: JsonObject) -> None:
        def plan(stored: Stored) -> JsonObject | Refusal:
            if any(reference.uid == owner["uid"] for reference in stored.object.metadata.owner_references):
                return {}
            return {"metadata": {"ownerReferences": [owner]}}

        await self._writer.change("podtemplate", namespace, name, "", plan)


def requests_from_limits(template: JsonObject) -> JsonObject:
    """The template with each container's missing requests taken from its limits, as the API server does for pods."""
    for key in ("initContainers", "containers"):
        containers = items(template, "spec", key)
        if containers:
            template = replaced(template, ("spec", key), [_with_requests(container) for container in containers])
    return template


def _with_requests(container: JsonObject) -> JsonObject:
    limits = section(container, "resources", "limits")
    if not limits:
        return container
    requests = {**limits, **section(container, "resources", "requests")}
    return replaced(container, ("resources", "requests"), requests)


def _provisioning_request(command: commands.CreateProvisioningRequest, workload: Workload) -> JsonObject:
    spec: JsonObject = {
        "provisioningClassName": command.class_name,
        "podSets": [{"podTemplateRef": {"name": t.name}, "count": t.count} for t in command.templates],
    }
    if command.parameters:
        spec["parameters"] = command.parameters
    return {
        "apiVersion": resources.PROVISIONING_REQUESTS.api_version,
        "kind": resources.PROVISIONING_REQUESTS.kind,
        "metadata": {
            "name": command.name,
            "namespace": command.namespace,
            "labels": {names.MANAGED_LABEL: "true"},
            "ownerReferences": [_reference(resources.WORKLOADS, workload.metadata.name, workload.metadata.uid)],
        },
        "spec": spec,
    }


def _reference(resource: Resource, name: str, uid: str) -> JsonObject:
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "name": name,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
