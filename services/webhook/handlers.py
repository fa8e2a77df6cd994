"""One function per admission path; each makes a Verdict of a request. The paths are Kueue's."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from functools import partial

import msgspec
from msgspec.structs import replace

from services.webhook.admission_review import PatchOperation, Request, Verdict, pointer
from services.webhook.default_job import DEFAULT_NAME, Surroundings, defaults, must_queue, parent_defaults
from services.webhook.default_pod import UNDER_PARENT, has_parent, pod_defaults
from services.webhook.known_objects import KnownObjects
from services.webhook.settings import WebhookSettings
from services.webhook.validate_job import created_errors, updated_errors
from services.webhook.validate_pod import owner_warnings, pod_errors
from services.webhook.validate_queues import cluster_queue_errors, cohort_errors, resource_flavor_errors
from services.webhook.validate_workload import workload_errors
from shared.api import names
from shared.api.cluster_queue import ClusterQueue
from shared.api.cohort import Cohort
from shared.api.conditions import is_true
from shared.api.decoding import convert, decode
from shared.api.field_errors import FieldError, invalid
from shared.api.meta import ObjectMeta
from shared.api.quantity import QuantityError
from shared.api.raw_workload import RawWorkload
from shared.api.resource_flavor import ResourceFlavor
from shared.api.selectors import matches
from shared.api.workload import Workload
from shared.config.configuration import Configured
from shared.jobs.manifest import JsonObject, items, section
from shared.jobs.pod import PlainPod
from shared.jobs.protocol import Circumstances, JobKind, Reference
from shared.jobs.queue_membership import AncestorSearch, OwnershipError
from shared.jobs.queueing_parent import QueueingParent
from shared.jobs.referred import with_referred
from shared.jobs.registry import (
    INTEGRATED,
    KNOWN,
    PARENTS,
    OwnerKind,
    enabled_owners,
    external,
    owner_kind,
    review_path,
)
from shared.kube.client import KubeClient
from shared.kube.errors import ApiError, NotFound
from shared.kube.plurals import Plurals
from shared.kube.resources import WORKLOADS, Resource

Handler = Callable[[Request], Awaitable[Verdict]]


class Handlers:
    """The handlers, with what they look things up in."""

    def __init__(
        self, settings: WebhookSettings, known: KnownObjects, client: KubeClient, configured: Configured | None = None
    ) -> None:
        configured = configured if configured is not None else Configured()
        configuration = configured.configuration
        self._gates = configured.gates
        self._known = known
        self._client = client
        self._manage_all = configuration.manage_jobs_without_queue_name
        self._namespaces = configuration.managed_namespaces(configured.namespace(settings.namespace))
        self._circumstances = Circumstances(gates=self._gates, manage_all=self._manage_all)
        self._plurals = Plurals(client)
        self._pods = any(kind.framework in configuration.integrations.frameworks for kind in PARENTS)
        """Pods are reviewed for the sake of what makes them."""
        self._enabled = enabled_owners(configuration.integrations.frameworks) | external(
            configuration.integrations.external_frameworks
        )

    def routes(self) -> dict[str, Handler]:
        """Path -> handler."""
        group = "kueue-x-k8s-io-v1beta2"
        jobs: dict[str, Handler] = {}
        for kind in INTEGRATED:
            # An integration that is not enabled has its endpoints all the same, which let everything pass.
            enabled = owner_kind(kind) in self._enabled or (isinstance(kind, PlainPod) and self._pods)
            default = self.default_pod if isinstance(kind, PlainPod) else self.default_job
            jobs[review_path(kind, "mutate")] = partial(default, kind) if enabled else _passed
            jobs[review_path(kind, "validate")] = partial(self.validate_job, kind) if enabled else _passed
        for parent in PARENTS:
            enabled = owner_kind(parent) in self._enabled
            jobs[review_path(parent, "mutate")] = partial(self.default_parent, parent) if enabled else _passed
            jobs[review_path(parent, "validate")] = partial(self.validate_parent, parent) if enabled else _passed
        return jobs | {
            f"/mutate-{group}-clusterqueue": self.default_finalizer,
            f"/mutate-{group}-resourceflavor": self.default_finalizer,
            f"/mutate-{group}-workload": self.default_workload,
            f"/validate-{group}-clusterqueue": self.validate_cluster_queue,
            f"/validate-{group}-cohort": self.validate_cohort,
            f"/validate-{group}-resourceflavor": self.validate_resource_flavor,
            f"/validate-{group}-workload": self.validate_workload,
        }

    async def default_job(self, kind: JobKind, request: Request) -> Verdict:
        """Queue, priority class, suspension of a job that is created."""
        job = _json(request.object)
        meta = convert(ObjectMeta, section(job, "metadata"))
        found = await self._surroundings(meta, request.namespace)
        if isinstance(found, Verdict):
            return found
        return Verdict(patch=defaults(kind, job, meta, found, self._gates))

    async def default_parent(self, kind: QueueingParent, request: Request) -> Verdict:
        """Marks of an object whose pods queue, whenever it changes."""
        parent = _json(request.object)
        meta = convert(ObjectMeta, section(parent, "metadata"))
        found = await self._surroundings(meta, request.namespace)
        if isinstance(found, Verdict):
            return found
        return Verdict(patch=parent_defaults(kind, parent, meta, found, self._gates))

    async def validate_parent(self, kind: QueueingParent, request: Request) -> Verdict:
        """Our labels and annotations on an object whose pods queue, and what may not change while they do."""
        parent = _json(request.object)
        if not request.has_old:
            return _refused(kind.errors(parent, None, self._circumstances))
        meta = convert(ObjectMeta, section(parent, "metadata"))
        found = await self._surroundings(meta, request.namespace, live=False)
        if isinstance(found, Verdict):
            return found
        old = _json(request.old_object)
        around = replace(
            self._circumstances,
            managed=must_queue(meta, found),
            unreleased=await self._holds_quota(request.namespace, kind.resumed(parent, old)),
        )
        return _refused(kind.errors(parent, old, around))

    async def _holds_quota(self, namespace: str, workloads: Iterable[str]) -> bool:
        """Whether any workload of these names has a reservation (still). Read live: the gateway gives it back at any moment."""
        for name in workloads:
            try:
                found = decode(Workload, await self._client.get(WORKLOADS, namespace, name))
            except NotFound:
                continue
            conditions = found.status.conditions
            if is_true(conditions, names.QUOTA_RESERVED) and not is_true(conditions, names.FINISHED):
                return True
        return False

    async def default_pod(self, kind: JobKind, request: Request) -> Verdict:
        """Queue, mark and gates of a pod that is created."""
        pod = _json(request.object)
        meta = convert(ObjectMeta, section(pod, "metadata"))
        if has_parent(pod):
            return Verdict(patch=pod_defaults(pod, UNDER_PARENT, self._gates))
        if not matches(self._namespaces, self._known.namespace_labels(request.namespace)):
            return Verdict()
        found = await self._surroundings(meta, request.namespace, live=meta.controller_owner() is None)
        if isinstance(found, Verdict):
            return found
        return Verdict(patch=pod_defaults(pod, found, self._gates))

    async def _surroundings(self, meta: ObjectMeta, namespace: str, *, live: bool = True) -> Surroundings | Verdict:
        """What the decision about a job depends on; a refusal if its ancestors cannot be told. Not `live`: a default queue that is not known does not
        count, for objects of which there are very many."""
        search = AncestorSearch(meta, manage_all=self._manage_all, enabled=self._enabled)
        try:
            if meta.deletion_timestamp is None:
                await self._walk(search, namespace)
        except OwnershipError as error:
            return Verdict(errors=(invalid("metadata.ownerReferences", meta.name, str(error)),))
        owner = meta.controller_owner()
        around = Surroundings(
            # A miss costs a call to the API server: asked only where the answer matters, and of the queue alone, which users
            # apply together with their Jobs.
            default_queue=names.QUEUE_NAME_LABEL not in meta.labels
            and (
                await self._known.exists("localqueue", namespace, DEFAULT_NAME)
                if live
                else self._known.knows("localqueue", namespace, DEFAULT_NAME)
            ),
            default_priority_class=self._gates["WorkloadPriorityClassDefaulting"]
            and self._known.knows("workloadpriorityclass", "", DEFAULT_NAME),
            owner_managed=owner is not None and OwnerKind(owner.api_version, owner.kind) in self._enabled,
            ancestor=search.result is not None,
            manage_all=self._manage_all,
            namespace_matches=matches(self._namespaces, self._known.namespace_labels(namespace)),
        )
        if self._gates["MultiKueue"] and self._known.dispatched(namespace, around.queue(meta.labels)):
            around = replace(around, dispatched=True)
        return around

    async def _walk(self, search: AncestorSearch, namespace: str) -> None:
        while owner := search.next_owner():
            api_version, _, version = owner.api_version.rpartition("/")
            plural = KNOWN.get(OwnerKind(owner.api_version, owner.kind))
            try:
                if plural is not None:
                    resource = Resource(api_version, version, plural, owner.kind, True)
                else:
                    resource = await self._plurals.resource(api_version, version, owner.kind)
                body = await self._client.get(resource, namespace, owner.name)
                search.found(decode(_Anything, body).metadata)
            except NotFound:
                search.found(None)
            except ApiError as error:
                raise OwnershipError(f"workload owner cannot be read: {error}") from error

    async def validate_job(self, kind: JobKind, request: Request) -> Verdict:
        """Our labels and annotations on a job."""
        try:
            job = await self._with_referred(kind, _json(request.object), request.namespace)
        except _UnreadableError as error:
            return Verdict(errors=(error.fault,))
        warnings = self._pod_warnings(job, request.has_old) if isinstance(kind, PlainPod) else ()
        if not request.has_old:
            errors = (*created_errors(kind, job, self._circumstances), *self._of_pod(kind, job, None))
            return replace(_refused(errors), warnings=warnings)
        old = _json(request.old_object)
        label = names.QUEUE_NAME_LABEL
        queue_is_gone = label in section(old, "metadata", "labels") and label not in section(job, "metadata", "labels")
        default = queue_is_gone and await self._known.exists("localqueue", request.namespace, DEFAULT_NAME)
        around = replace(self._circumstances, default_queue=default)
        errors = (*updated_errors(kind, job, old, around), *self._of_pod(kind, job, old))
        return replace(_refused(errors), warnings=warnings)

    def _pod_warnings(self, pod: JsonObject, has_old: bool) -> tuple[str, ...]:
        owner = convert(ObjectMeta, section(pod, "metadata")).controller_owner()
        managed = owner is not None and OwnerKind(owner.api_version, owner.kind) in self._enabled
        return owner_warnings(pod, owner if managed else None, changed=has_old)

    async def _with_referred(self, kind: JobKind, job: JsonObject, namespace: str) -> JsonObject:
        """With the objects without which its pods cannot be told, read anew: few jobs have any, and users apply them together."""
        found: dict[Reference, JsonObject | None] = {}
        for reference in kind.refers_to(job):
            resource = Resource(
                reference.group, reference.version, reference.plural, reference.kind, reference.namespaced
            )
            try:
                body = await self._client.get(resource, namespace if reference.namespaced else "", reference.name)
            except NotFound:
                found[reference] = None
            except ApiError as error:
                raise _UnreadableError(reference, str(error)) from error
            else:
                found[reference] = msgspec.json.decode(body, type=dict[str, object])
        return with_referred(job, found)

    def _of_pod(self, kind: JobKind, job: JsonObject, old: JsonObject | None) -> Iterable[FieldError]:
        return pod_errors(job, old, self._gates) if isinstance(kind, PlainPod) else ()

    async def default_finalizer(self, request: Request) -> Verdict:
        """ClusterQueues and ResourceFlavors are not deleted while they are used."""
        metadata = decode(_Anything, bytes(request.object)).metadata
        if names.RESOURCE_IN_USE in metadata.finalizers:
            return Verdict()
        value: object = names.RESOURCE_IN_USE if metadata.finalizers else [names.RESOURCE_IN_USE]
        last = ("-",) if metadata.finalizers else ()
        return Verdict(patch=(PatchOperation("add", pointer("metadata", "finalizers", *last), value),))

    async def default_workload(self, request: Request) -> Verdict:
        """Without partial admission, no pod set may have fewer pods."""
        if self._gates["PartialAdmission"]:
            return Verdict()
        pod_sets = items(_json(request.object), "spec", "podSets")
        variable = [i for i, pod_set in enumerate(pod_sets) if "minCount" in pod_set]
        return Verdict(
            patch=tuple(
                PatchOperation("remove", pointer("spec", "podSets", str(i), "minCount"), None) for i in variable
            )
        )

    async def validate_cluster_queue(self, request: Request) -> Verdict:
        """A ClusterQueue beyond its schema."""
        old = decode(ClusterQueue, bytes(request.old_object)) if request.has_old else None
        return _refused(cluster_queue_errors(decode(ClusterQueue, bytes(request.object)), old, self._gates))

    async def validate_cohort(self, request: Request) -> Verdict:
        """A Cohort beyond its schema."""
        return _refused(cohort_errors(decode(Cohort, bytes(request.object))))

    async def validate_resource_flavor(self, request: Request) -> Verdict:
        """A ResourceFlavor beyond its schema."""
        return _refused(resource_flavor_errors(decode(ResourceFlavor, bytes(request.object))))

    async def validate_workload(self, request: Request) -> Verdict:
        """A Workload beyond its schema, status included."""
        old = decode(RawWorkload, bytes(request.old_object)) if request.has_old else None
        return _refused(workload_errors(decode(RawWorkload, bytes(request.object)), old, self._gates))


async def _passed(request: Request) -> Verdict:
    """Nothing to say about it."""
    return Verdict()


class _UnreadableError(Exception):
    """The API server did not say whether there is such an object: a rule that depends on it cannot be held."""

    def __init__(self, reference: Reference, why: str) -> None:
        super().__init__(why)
        self.fault = FieldError(
            "spec", "Internal error", "", f"{reference.kind} {reference.name} cannot be read: {why}"
        )


class _Anything(msgspec.Struct):
    metadata: ObjectMeta


def _json(raw: msgspec.Raw) -> JsonObject:
    value = msgspec.json.decode(raw)
    if not isinstance(value, dict):
        raise msgspec.ValidationError("the review holds no object")
    return value


def _refused(errors: Iterable[FieldError]) -> Verdict:
    try:
        return Verdict(errors=tuple(dict.fromkeys(errors)))
    except QuantityError as error:
        return Verdict(errors=(FieldError("spec", "Invalid value", "", str(error)),))
