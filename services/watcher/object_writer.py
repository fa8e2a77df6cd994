"""The one loop that changes an existing object: plan on our copy, patch with its version, read again only when that fails.

1. The plan looks at the newest copy we have and says what to change, that nothing is to change, or that it must not be changed.
2. The patch carries uid and resourceVersion of that copy, so it lands on exactly that state or not at all.
3. The response goes into the store at once: what follows in the same lane sees its own write.
4. Too many requests: wait as told, then plan again on what our copy is then.
5. Conflict, or no answer: read the object, plan again. A write that landed unseen is found to be there already; one that may still land carries an
   old version, so it cannot land once the object has moved on.
"""

import asyncio
from collections.abc import Callable

import msgspec

from services.watcher.patches import Refusal, workload_patch
from services.watcher.store import Store, Stored
from shared.api import names
from shared.api.workload import Workload
from shared.api.workload_status import WorkloadStatus
from shared.decide.legacy_reasons import in_old_words
from shared.jobs.manifest import JsonObject
from shared.kube import resources
from shared.kube.client import KubeClient
from shared.kube.errors import Conflict, NotFound, Refused, TooManyRequests, Unauthorized, Unavailable, WritesHeld
from shared.kube.resources import Resource

RESOURCES: dict[str, Resource] = {
    "workload": resources.WORKLOADS,
    "clusterqueue": resources.CLUSTER_QUEUES,
    "localqueue": resources.LOCAL_QUEUES,
    "cohort": resources.COHORTS,
    "resourceflavor": resources.RESOURCE_FLAVORS,
    "admissioncheck": resources.ADMISSION_CHECKS,
    "topology": resources.TOPOLOGIES,
    "provisioningrequest": resources.PROVISIONING_REQUESTS,
    "podtemplate": resources.POD_TEMPLATES,
}
"""Kinds that commands may change, by their token in the store, and where the API keeps them."""

_MOST_CONFLICTS = 20
_BUSY_S = 0.05
"""How long to wait for an API server that is busy and does not say how long."""


class Written(msgspec.Struct, frozen=True):
    """The object carries the content at `version`; `changed`: this call wrote it."""

    version: int
    changed: bool


class Rejected(msgspec.Struct, frozen=True):
    """The write can never land; `version` is that of the state which proves it (0 if the object is gone)."""

    why: str
    version: int = 0
    gone: bool = False


Result = Written | Rejected
Plan = Callable[[Stored], JsonObject | Refusal]


class _Meta(msgspec.Struct, rename="camel"):
    resource_version: str
    uid: str = ""


class _Versioned(msgspec.Struct):
    metadata: _Meta


_versioned = msgspec.json.Decoder(_Versioned)


def version_of(raw: bytes) -> int:
    """The resourceVersion of an object that the API server sent."""
    return int(_versioned.decode(raw).metadata.resource_version)


class ObjectWriter:
    """Changes objects through `client`, reading from and feeding `store`. Raises Unavailable when the API server gives no answer: try again later."""

    def __init__(self, store: Store, client: KubeClient, *, legacy_reasons: bool = False) -> None:
        """`legacy_reasons`: conditions of workloads say the words of before the gate UnadmittedWorkloadsObservability."""
        self._store = store
        self._client = client
        self._legacy_reasons = legacy_reasons

    async def workload_status(
        self,
        namespace: str,
        name: str,
        uid: str,
        plan: Callable[[Workload], WorkloadStatus | Refusal],
        *,
        field_manager: str = names.ADMISSION_MANAGER,
    ) -> Result:
        """Change a workload's status; the plan gives the status as it should be (the present one: nothing to write)."""

        def patch(stored: Stored) -> JsonObject | Refusal:
            workload = stored.object
            if not isinstance(workload, Workload):
                raise TypeError(f"the store holds {type(workload).__name__} as a workload")
            planned = plan(workload)
            if isinstance(planned, Refusal):
                return planned
            if self._legacy_reasons:
                planned = in_old_words(workload.status, planned)
            return workload_patch(workload, planned)

        return await self.change(
            "workload", namespace, name, uid, patch, subresource="status", field_manager=field_manager
        )

    async def change(
        self,
        kind: str,
        namespace: str,
        name: str,
        uid: str,
        plan: Plan,
        *,
        subresource: str = "",
        field_manager: str = "",
    ) -> Result:
        """Change any object. `uid` empty: whichever has that name. The plan gives a merge patch; an empty one means that there is nothing to write."""
        stored = self._store.get(kind, namespace, name)
        for _ in range(_MOST_CONFLICTS):
            if not self._client.may_write():
                # Whoever was stopped for long has an old copy; it is no evidence of anything, least of all that an object is gone.
                raise WritesHeld(0, "WritesHeld", "not the time to judge by our copy")
            if stored is None or (uid and stored.uid != uid):
                return Rejected("the object is gone", gone=True)
            patch = plan(stored)
            if isinstance(patch, Refusal):
                return Rejected(patch.why, stored.version, gone=patch.gone)
            if not patch:
                return Written(stored.version, changed=False)
            try:
                raw = await self._client.patch(
                    self._store.watched[kind].resource,
                    namespace,
                    name,
                    _guarded(patch, stored),
                    subresource=subresource,
                    field_manager=field_manager,
                    patient=False,
                )
            except TooManyRequests as error:
                # It was not carried out. Planned anew after the wait: what spoke for it may not hold any more.
                await asyncio.sleep(error.retry_after or _BUSY_S)
                stored = self._store.get(kind, namespace, name)
            except NotFound:
                return Rejected("the object is gone", gone=True)
            except Conflict:
                stored = await self.read(kind, namespace, name)
            except WritesHeld:
                raise
            except Unavailable:
                # Nobody knows whether it landed: look, and only if that fails too let the lane come back to it.
                stored = await self.read(kind, namespace, name)
            except Unauthorized as error:
                # Our own credentials, not this write: it may well land once they are good again.
                raise Unavailable(error.status, error.reason, error.message) from error
            except Refused as error:
                return Rejected(f"the API server refuses it: {error.message}", stored.version)
            else:
                self._store.upsert(kind, raw)
                return Written(version_of(raw), changed=True)
        raise Unavailable(409, "Conflict", f"{kind} {namespace}/{name} changes faster than it can be written")

    async def read(self, kind: str, namespace: str, name: str) -> Stored | None:
        """The object as it is now, also in the store; None if there is none."""
        try:
            raw = await self._client.get(self._store.watched[kind].resource, namespace, name)
        except NotFound:
            return None
        self._store.upsert(kind, raw)
        return self._store.get(kind, namespace, name)


def _guarded(patch: JsonObject, stored: Stored) -> bytes:
    metadata = patch.get("metadata")
    guard: JsonObject = {"uid": stored.uid, "resourceVersion": str(stored.version)}
    return msgspec.json.encode({**patch, "metadata": {**(metadata if isinstance(metadata, dict) else {}), **guard}})
