"""One simulated API server: what its clients are answered, what other writers do to it, and what goes wrong.

Clients are real KubeClients over a SimulatedTransport. A write without a webhook is carried out in one step, so what an invariant sees is always a state
between two commits. Kinds, writes, watches, pages, admission and garbage each have their own file; this one puts them together.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterable
from contextvars import Context
from datetime import UTC, datetime
from random import Random
from typing import Any

import msgspec

from shared.api.meta import format_time
from shared.jobs.manifest import JsonObject, section
from shared.kube import client as kube
from shared.kube.errors import AlreadyExists, ApiError, Conflict, Forbidden, NotFound, Unreachable, error_of
from shared.kube.resources import NAMESPACES, Resource
from shared.kube.transport import Answer, Request
from shared.testing.link import Link
from shared.testing.simulated_api import writes
from shared.testing.simulated_api.admission import Webhook, admitted, matching
from shared.testing.simulated_api.faults import REASONS, Call, Fault, Late, Refuse, TimeOut
from shared.testing.simulated_api.garbage import FOREGROUND, ORPHAN, GarbageCollector
from shared.testing.simulated_api.kinds import kind_of
from shared.testing.simulated_api.pages import page
from shared.testing.simulated_api.server_side_apply import AppliedManifests
from shared.testing.simulated_api.storage import Commit, ObjectKey, State, Storage
from shared.testing.simulated_api.transport import SimulatedTransport
from shared.testing.simulated_api.watches import Watch, Watches, status_of

_ATTEMPTS = 5
"""How often a write that names no version is tried on a newer state, when admission took its time."""
_FINALIZER = {"Foreground": FOREGROUND, "Orphan": ORPHAN}


Document = dict[str, Any]
"""An object as tests and players of controllers write and read it."""


class _Preconditions(msgspec.Struct, rename="camel"):
    uid: str = ""
    resource_version: str = ""


class _DeleteOptions(msgspec.Struct, rename="camel"):
    preconditions: _Preconditions = msgspec.field(default_factory=_Preconditions)
    propagation_policy: str = ""
    dry_run: tuple[str, ...] = ()


_delete_options = msgspec.json.Decoder(_DeleteOptions)
_NO_OPTIONS = _DeleteOptions()


class SimulatedApi:
    """`now` gives seconds since the epoch; `random` decides uids and delays, so give it one of its own.

    States: up; `down`, when nothing is answered. `restart` breaks what is open, `restore_to` goes back in time.
    """

    def __init__(
        self,
        now: Callable[[], float],
        random: Random,
        *,
        gc_delay_s: tuple[float, float] = (0.01, 0.5),
        bookmark_s: float = 60.0,
    ) -> None:
        self._now = now
        self._random = random
        self._storage = Storage()
        self._watches = Watches(self._storage, random, bookmark_s=bookmark_s)
        self._garbage = GarbageCollector(self._storage, self, random, gc_delay_s)
        self._applied = AppliedManifests()
        self._late: set[asyncio.Task[bytes]] = set()
        self.boot = 0
        """Counts restarts: what began before one is not answered after it."""
        self.down = False
        """While True every new call ends in Unreachable."""
        self.fault: Callable[[Call], Fault | None] | None = None
        """Asked for every call that arrives."""
        self.webhooks: list[Webhook] = []
        self.not_served: set[str] = set()
        """Plurals of resources that this server does not know."""
        self.create(NAMESPACES, {"metadata": {"name": "default"}}, user="system:apiserver")

    # Clients.

    def client(
        self,
        link: Link | None = None,
        *,
        user: str = "admin",
        groups: tuple[str, ...] = (),
        timeout_s: float = 2.0,
        on_call: kube.OnCall | None = None,
    ) -> kube.KubeClient:
        """A client that is `user`; without a link nothing takes time."""
        transport = SimulatedTransport(self, link, user, groups)
        return kube.KubeClient(transport, timeout_s=timeout_s, on_call=on_call)

    async def answer(self, request: Request, user: str, groups: tuple[str, ...] = ()) -> Answer:
        """What a call that arrived is answered; never, for one that times out."""
        try:
            fault = await self._faulty(request, user)
            if isinstance(fault, Late):
                body = await self._carry_out_late(fault.delay_s, request, user, groups)
            else:
                body = await self._carry_out(request, user, groups)
        except Unreachable:
            raise
        except ApiError as error:
            retry = str(int(error.retry_after)) if error.retry_after else ""
            return Answer(error.status, msgspec.json.encode(status_of(error)), retry)
        if isinstance(fault, TimeOut):
            await asyncio.get_running_loop().create_future()
        return Answer(201 if request.verb == "create" else 200, body)

    async def open_watch(self, request: Request, user: str) -> Watch:
        """A watch, open. Raises the ApiError that refuses it."""
        await self._faulty(request, user)
        self._check_served(request.resource)
        return self._watches.open(request)

    def close_watch(self, watch: Watch) -> None:
        """Its stream ended."""
        self._watches.close(watch)

    def bookmark(self, watch: Watch, now: float) -> None:
        """A bookmark is due on a watch."""
        self._watches.bookmark(watch, now)

    # Other writers: at once, without admission, as the errors of shared.kube.errors.

    def create(self, resource: Resource, document: Document, *, user: str = "admin") -> Document:
        """The object as created."""
        namespace = str(section(document, "metadata").get("namespace", "")) if resource.namespaced else ""
        return self._create(Request("create", resource, namespace, body=msgspec.json.encode(document)), user).document

    def write(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        patch: Document,
        *,
        subresource: str = "",
        user: str = "admin",
    ) -> Document:
        """The object after a merge patch."""
        body = msgspec.json.encode(patch)
        request = Request("patch", resource, namespace, name, subresource, body=body, content_type=kube.MERGE_PATCH)
        old = self._existing(resource, namespace, name)
        return self._store(
            request, old, writes.proposal(kind_of(resource), old.document, request, self._applied), user
        ).document

    def delete(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        *,
        uid: str = "",
        propagation: str = "Background",
        user: str = "admin",
    ) -> None:
        """Delete an object, or mark it as long as it has finalizers."""
        options = _DeleteOptions(_Preconditions(uid), propagation)
        self._delete(Request("delete", resource, namespace, name), options, user)

    def finalize(self, resource: Resource, key: ObjectKey, *, user: str) -> None:
        """Remove an object, whatever its finalizers."""
        self._storage.commit(resource, key, None, user=user)

    # Reading, for invariants and other controllers; what is returned must not be changed.

    @property
    def version(self) -> int:
        """Of the last commit."""
        return self._storage.version

    @property
    def history(self) -> list[Commit]:
        """All commits, oldest first."""
        return self._storage.history

    def objects(self, resource: Resource) -> Iterable[Document]:
        """All objects of a resource."""
        return (state.document for state in self._storage.all(resource).values())

    def get(self, resource: Resource, namespace: str, name: str) -> Document | None:
        """One object."""
        state = self._storage.find(resource, (namespace, name))
        return None if state is None else state.document

    def open_watches(self, resource: Resource | None = None) -> int:
        """How many watches are open."""
        return self._watches.count(resource)

    def subscribe(self, callback: Callable[[Commit], None]) -> None:
        """Have `callback` called at each commit, before the answer travels; it may read, not write."""
        self._storage.subscribe(callback)

    def timestamp(self) -> str:
        """Now, as the API writes times."""
        return format_time(datetime.fromtimestamp(self._now(), UTC))

    # What goes wrong.

    def break_watches(self, resource: Resource | None = None) -> None:
        """Reset the connections of open watches."""
        self._watches.break_all(resource)

    def silence_watches(self, resource: Resource | None = None) -> None:
        """Let nothing more arrive on open watches, and nobody know."""
        self._watches.silence(resource)

    def compact(self) -> None:
        """Versions before now cannot be watched or listed from any more."""
        self._storage.compacted = self._storage.version

    def restart(self) -> None:
        """Everything that is open breaks; what a webhook still thinks about is not carried out."""
        self.boot += 1
        self._watches.break_all()

    def restore_to(self, version: int) -> None:
        """The data as they were at an earlier version, as from a backup; then a restart. No subscriber is told."""
        self._storage.rewind(version)
        self._garbage.rebuild([state.document for _, _, state in self._storage.everything()])
        self.restart()

    def collect_garbage(self) -> None:
        """What would be collected in a while, now."""
        self._garbage.collect()

    async def _faulty(self, request: Request, user: str) -> Fault | None:
        """The fault that leaves the call to be carried out, if any. Raises a refusal; does not return if nothing is to happen."""
        if self.fault is None:
            return None
        call = Call(request.verb, request.resource, request.namespace, request.name, request.subresource, user)
        fault = self.fault(call)
        match fault:
            case Refuse(status=status, retry_after=retry_after):
                told = {"reason": REASONS.get(status, "InternalError"), "message": "the server refuses this call"}
                raise error_of(status, msgspec.json.encode(told), str(retry_after) if retry_after else "")
            case TimeOut(committed=committed) if not committed or request.verb == "watch":
                await asyncio.get_running_loop().create_future()
        return fault

    async def _carry_out_late(self, delay_s: float, request: Request, user: str, groups: tuple[str, ...]) -> bytes:
        """Like _carry_out, but a caller that gives up does not take the call back."""
        boot = self.boot

        async def later() -> bytes:
            await asyncio.sleep(delay_s)
            if boot != self.boot:
                raise Unreachable(0, "Unreachable", "the server went away")
            return await self._carry_out(request, user, groups)

        # The server's work, not the caller's: it goes on when the caller is killed.
        task = asyncio.get_running_loop().create_task(later(), context=Context())
        self._late.add(task)
        task.add_done_callback(self._done_late)
        return await asyncio.shield(task)

    def _done_late(self, task: asyncio.Task[bytes]) -> None:
        self._late.discard(task)
        if not task.cancelled():
            # Whoever still waits is told; nobody else is left to tell.
            task.exception()

    async def _carry_out(self, request: Request, user: str, groups: tuple[str, ...]) -> bytes:
        resource = request.resource
        self._check_served(resource)
        if request.document:
            raise NotFound(404, "NotFound", "discovery is not simulated")
        match request.verb:
            case "get":
                return self._existing(resource, request.namespace, request.name).raw
            case "list":
                return page(self._storage, resource, request.namespace, request.query)
            case "create":
                return (await self._admit_and_create(request, user, groups)).raw
            case "patch" | "update":
                return (await self._admit_and_update(request, user, groups)).raw
            case "delete":
                options = _delete_options.decode(request.body) if request.body else _NO_OPTIONS
                return self._delete(request, options, user)
            case verb:
                raise ValueError(f"no such verb: {verb}")

    async def _admit_and_create(self, request: Request, user: str, groups: tuple[str, ...]) -> State:
        webhooks = matching(self.webhooks, self._storage, request, "CREATE", user) if self.webhooks else []
        if not webhooks:
            return self._create(request, user)
        new = self._new_object(request)
        self._check_free(request, new)
        new = await self._admitted(webhooks, request, None, new, "CREATE", user, groups)
        self._check_free(request, new)
        return self._put_new(request, new, user)

    async def _admit_and_update(self, request: Request, user: str, groups: tuple[str, ...]) -> State:
        kind = kind_of(request.resource)
        if request.subresource and not (request.subresource == "status" and kind.status):
            raise NotFound(404, "NotFound", "the server could not find the requested resource")
        webhooks = matching(self.webhooks, self._storage, request, "UPDATE", user) if self.webhooks else []
        for _ in range(_ATTEMPTS):
            old = self._storage.find(request.resource, (request.namespace, request.name))
            if old is None:
                if request.content_type == kube.APPLY_PATCH:
                    return await self._apply_new(request, user, groups)
                raise NotFound(404, "NotFound", writes.not_found(request.resource, request.name))
            new = writes.proposal(kind, old.document, request, self._applied)
            if webhooks:
                new = await self._admitted(webhooks, request, old.document, new, "UPDATE", user, groups)
                if self._storage.find(request.resource, (request.namespace, request.name)) is not old:
                    # With a version of its own it will find its conflict now.
                    continue
            return self._store(request, old, new, user)
        raise Conflict(409, "Conflict", f"{request.resource.plural} {request.name!r} changes too fast")

    async def _apply_new(self, request: Request, user: str, groups: tuple[str, ...]) -> State:
        manifest = writes.manifest_of(request)
        named = {**manifest, "metadata": {**section(manifest, "metadata"), "name": request.name}}
        body = msgspec.json.encode(named)
        made = await self._admit_and_create(
            Request("create", request.resource, request.namespace, body=body), user, groups
        )
        self._applied.remember(made.uid, manifest, request.query.get("fieldManager", ""))
        return made

    async def _admitted(
        self,
        webhooks: list[Webhook],
        request: Request,
        old: JsonObject | None,
        new: JsonObject,
        operation: str,
        user: str,
        groups: tuple[str, ...],
    ) -> JsonObject:
        boot = self.boot
        new = await admitted(
            webhooks, request, old, new, operation=operation, user=user, groups=groups, uid=self._uid()
        )
        if boot != self.boot:
            raise Unreachable(0, "Unreachable", "the server went away")
        return kind_of(request.resource).fill(new, old)

    def _create(self, request: Request, user: str) -> State:
        new = self._new_object(request)
        self._check_free(request, new)
        return self._put_new(request, new, user)

    def _new_object(self, request: Request) -> JsonObject:
        resource = request.resource
        suffix = "".join(self._random.choices("bcdfghjklmnpqrstvwxz2456789", k=5))
        return writes.new_object(kind_of(resource), request, uid=self._uid(), at=self.timestamp(), suffix=suffix)

    def _check_free(self, request: Request, new: JsonObject) -> None:
        resource, name = request.resource, str(section(new, "metadata")["name"])
        if resource.namespaced:
            namespace = self._storage.find(NAMESPACES, ("", request.namespace))
            if namespace is None:
                raise NotFound(404, "NotFound", writes.not_found(NAMESPACES, request.namespace))
            if "deletionTimestamp" in namespace.metadata:
                why = f"unable to create new content in namespace {request.namespace} because it is being terminated"
                raise Forbidden(403, "Forbidden", f'{resource.plural} "{name}" is forbidden: {why}')
        if self._storage.find(resource, (request.namespace, name)) is not None:
            raise AlreadyExists(409, "AlreadyExists", f'{resource.plural} "{name}" already exists')

    def _put_new(self, request: Request, new: JsonObject, user: str) -> State:
        new = writes.settled(kind_of(request.resource), None, new)
        key = (request.namespace if request.resource.namespaced else "", str(section(new, "metadata")["name"]))
        return self._commit(request, key, new, user)

    def _store(self, request: Request, old: State, new: JsonObject, user: str) -> State:
        """Commit what became of an update."""
        resource, key = request.resource, (request.namespace, request.name)
        new = writes.settled(kind_of(resource), old.document, new)
        if request.content_type == kube.APPLY_PATCH and not _is_dry(request):
            self._applied.remember(old.uid, writes.manifest_of(request), request.query.get("fieldManager", ""))
        if new is old.document:
            return old
        metadata = section(new, "metadata")
        if "deletionTimestamp" in metadata and not metadata.get("finalizers") and resource != NAMESPACES:
            if not _is_dry(request):
                self._storage.commit(resource, key, None, user=user, subresource=request.subresource)
            return State(new)
        return self._commit(request, key, new, user)

    def _commit(self, request: Request, key: ObjectKey, new: JsonObject, user: str) -> State:
        """Store it; a dry run only shows it."""
        if _is_dry(request):
            return State(new)
        commit = self._storage.commit(request.resource, key, new, user=user, subresource=request.subresource)
        assert commit.after is not None
        return commit.after

    def _delete(self, request: Request, options: _DeleteOptions, user: str) -> bytes:
        resource, namespace, name = request.resource, request.namespace, request.name
        state = self._existing(resource, namespace, name)
        metadata, wanted = state.metadata, options.preconditions
        for field, value in (("uid", wanted.uid), ("resourceVersion", wanted.resource_version)):
            if value and metadata[field] != value:
                why = f"Precondition failed: {field} in precondition: {value}, in object meta: {metadata[field]}"
                raise Conflict(409, "Conflict", f"Operation cannot be fulfilled on {resource.plural} {name!r}: {why}")
        key = (namespace, name)
        finalizers = metadata.get("finalizers") or []
        assert isinstance(finalizers, list)
        extra = _FINALIZER.get(options.propagation_policy, "")
        if "deletionTimestamp" in metadata:
            return state.raw
        if extra and extra not in finalizers:
            finalizers = [*finalizers, extra]
        if finalizers or resource == NAMESPACES:
            marked = writes.with_next_generation(self._marked(state.document, finalizers))
            if options.dry_run:
                return State(marked).raw
            return self._commit(request, key, marked, user).raw
        if not options.dry_run:
            self._storage.commit(resource, key, None, user=user)
        details = {"name": name, "group": resource.group, "kind": resource.plural, "uid": state.uid}
        return msgspec.json.encode(
            {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
        )

    def _marked(self, document: JsonObject, finalizers: list[object]) -> JsonObject:
        metadata = {
            **section(document, "metadata"),
            "deletionTimestamp": self.timestamp(),
            "deletionGracePeriodSeconds": 0,
        }
        if finalizers:
            metadata["finalizers"] = finalizers
        marked = {**document, "metadata": metadata}
        if document.get("kind") == NAMESPACES.kind:
            marked["status"] = {**section(document, "status"), "phase": "Terminating"}
        return marked

    def _existing(self, resource: Resource, namespace: str, name: str) -> State:
        state = self._storage.find(resource, (namespace, name))
        if state is None:
            raise NotFound(404, "NotFound", writes.not_found(resource, name))
        return state

    def _check_served(self, resource: Resource) -> None:
        if resource.plural in self.not_served:
            raise NotFound(404, "NotFound", "the server could not find the requested resource")

    def _uid(self) -> str:
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))


def _is_dry(request: Request) -> bool:
    """Of a write with an object; a deletion says so in its options."""
    return "dryRun" in request.query
