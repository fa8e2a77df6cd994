"""Ends pods that nobody else will end: those of a node that is gone (gate FailureRecoveryPolicy; core rule 9.8).

A pod is watched for while it is annotated as safe to delete forcefully and being deleted. Its turn is `GRACE_S` after its deletionTimestamp:

1. Its Node is read. Without the taint of an unreachable node, or without the node itself, nothing is done, and both are looked at again later.
2. Its phase becomes Failed, unless it is terminal, with a condition that says by whom: its job counts it as failed, and quota is released.
3. A Warning Event on the pod, and it is deleted without grace.

Steps that were done before a crash are not repeated: what is gone is gone, and what is Failed stays so. The gateway's own rights do not include pods;
who turns the gate on grants them (k8s/components/failure-recovery).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec

from services.watcher.kubernetes_events import POD_TERMINATION_CONTROLLER, EventRecorder, regarding
from shared.api import names
from shared.api.meta import ObjectMeta, format_time
from shared.api.schema_hints import ApiStruct
from shared.jobs.manifest import JsonObject
from shared.kube.client import KubeClient
from shared.kube.errors import ApiError, Conflict, NotFound
from shared.kube.list_watch import Changed, Deleted, Down, Item, Listed, ListWatch, ObjectReference, Timing
from shared.kube.resources import NODES, PODS

log = logging.getLogger("sluice.watcher.failure_recovery")

UNREACHABLE = "node.kubernetes.io/unreachable"
CONDITION, REASON, ACTION = "KueueFailureRecovery", "KueueForcefullyDeleted", "ForcefulTermination"
GRACE_S = 60.0
"""After the time by which a pod should have ended."""
LOOK_S = 10.0
"""Until a node that was reachable, or a call that failed, is tried again."""
_TERMINAL = frozenset({"Succeeded", "Failed"})


class PodSpec(ApiStruct, frozen=True, kw_only=True):
    node_name: str = ""


class PodStatus(ApiStruct, frozen=True, kw_only=True):
    phase: str = ""
    conditions: tuple[dict[str, Any], ...] = ()
    """As they are: they are written back with one more."""


class Pod(ApiStruct, frozen=True, kw_only=True):
    """v1 Pod: what decides whether it is ended here."""

    metadata: ObjectMeta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class Taint(ApiStruct, frozen=True, kw_only=True):
    key: str


class NodeSpec(ApiStruct, frozen=True, kw_only=True):
    taints: tuple[Taint, ...] = ()


class Node(ApiStruct, frozen=True, kw_only=True):
    """v1 Node: its taints."""

    metadata: ObjectMeta
    spec: NodeSpec = NodeSpec()


_decoder = msgspec.json.Decoder(Pod)


def due(pod: Pod, grace_s: float = GRACE_S) -> float | None:
    """When the pod may be ended by force (seconds since the epoch); None: never."""
    deletion = pod.metadata.deletion_timestamp
    if (
        deletion is None
        or pod.metadata.annotations.get(names.SAFE_TO_FORCEFULLY_DELETE) != "true"
        or not pod.spec.node_name
    ):
        return None
    return deletion.timestamp() + grace_s


def is_unreachable(node: Node) -> bool:
    """Whether the control plane has lost it."""
    return any(taint.key == UNREACHABLE for taint in node.spec.taints)


def failed(pod: Pod, now: str) -> JsonObject | None:
    """The patch of the pod's status; None when it says so already. A terminal phase stays."""
    if any(c.get("type") == CONDITION and c.get("status") == "True" for c in pod.status.conditions):
        return None
    told = {
        "type": CONDITION,
        "status": "True",
        "reason": REASON,
        "message": f"Its node {pod.spec.node_name} is unreachable",
        "lastTransitionTime": now,
    }
    others = [c for c in pod.status.conditions if c.get("type") != CONDITION]
    phase = {} if pod.status.phase in _TERMINAL else {"phase": "Failed"}
    # A list is replaced as a whole: only while it is the one that was read.
    return {
        "metadata": {"resourceVersion": pod.metadata.resource_version},
        "status": {**phase, "conditions": [*others, told]},
    }


class FailureRecovery:
    """`run` until cancelled, in the active gateway. `now`: seconds since the epoch."""

    def __init__(
        self,
        client: KubeClient,
        recorder: EventRecorder,
        now: Callable[[], float],
        *,
        grace_s: float = GRACE_S,
        look_s: float = LOOK_S,
        timing: Timing | None = None,
    ) -> None:
        self._client = client
        self._recorder = recorder
        self._now = now
        self._grace_s = grace_s
        self._look_s = look_s
        self._pods: dict[str, Pod] = {}
        self._due: dict[str, float] = {}
        self._changed = asyncio.Event()
        self._down = ""
        self._watch = ListWatch(
            client, PODS, _decoder.decode, lambda pod: int(pod.metadata.resource_version),
            on_malformed=self._malformed, timing=timing,
        )  # fmt: skip

    async def run(self) -> None:
        """Watch, and act when it is time."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow())
            tasks.create_task(self._act())

    def _malformed(self, reference: ObjectReference, why: str) -> None:
        log.warning("a pod cannot be read", extra={"pod": f"{reference.namespace}/{reference.name}", "why": why})

    async def _follow(self) -> None:
        async with contextlib.aclosing(self._watch.run()) as steps:
            async for items in steps:
                for item in items:
                    self._take(item)
                self._changed.set()

    def _take(self, item: Item[Pod]) -> None:
        match item:
            case Listed(items=pods):
                kept = {pod.metadata.key for pod in pods}
                for key in [key for key in self._pods if key not in kept]:
                    self._forget(key)
                for pod in pods:
                    self._consider(pod)
            case Changed(item=pod):
                self._consider(pod)
            case Deleted(reference=gone):
                self._forget(f"{gone.namespace}/{gone.name}")
            case Down(why=why) if why != self._down:
                self._down = why
                log.warning("cannot watch pods: %s", why)
            case _:
                pass

    def _consider(self, pod: Pod) -> None:
        key, at = pod.metadata.key, due(pod, self._grace_s)
        if at is None:
            self._forget(key)
            return
        known = self._pods.get(key)
        if known is None or known.metadata.uid != pod.metadata.uid:
            # Also where the watch has missed that one of this name went and another came: each has a time of its own.
            self._due[key] = at
        self._pods[key] = pod

    def _forget(self, key: str) -> None:
        self._pods.pop(key, None)
        self._due.pop(key, None)

    async def _act(self) -> None:
        while True:
            self._changed.clear()
            now = self._now()
            for key in [key for key, at in self._due.items() if at <= now]:
                await self._try(key)
            first = min(self._due.values(), default=None)
            pause = None if first is None else max(first - self._now(), 0.0)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._changed.wait()

    async def _try(self, key: str) -> None:
        pod = self._pods.get(key)
        if pod is None:
            return
        self._due[key] = self._now() + self._look_s
        try:
            await self._end(pod)
        except NotFound:
            # The node or the pod: whichever it is, the watch tells of the pod, and a node may come back.
            pass
        except msgspec.MsgspecError as error:
            # One node in a form that we do not know is nobody else's trouble.
            log.warning("a node cannot be read", extra={"node": pod.spec.node_name, "why": str(error)})
        except ApiError as error:
            # A conflict is a newer state, which the watch brings.
            level = logging.DEBUG if isinstance(error, Conflict) else logging.WARNING
            log.log(level, "cannot end a pod by force, trying again", extra={"pod": key, "error": str(error)})

    async def _end(self, pod: Pod) -> None:
        """The three steps. One that is held by a finalizer is asked again to go. Raises ApiError."""
        metadata = pod.metadata
        node = msgspec.json.decode(await self._client.get(NODES, "", pod.spec.node_name), type=Node)
        if not is_unreachable(node):
            return
        patch = failed(pod, format_time(datetime.fromtimestamp(self._now(), UTC)))
        if patch is not None:
            body = msgspec.json.encode(patch)
            raw = await self._client.patch(PODS, metadata.namespace, metadata.name, body, subresource="status")
            # The watch may be behind: what comes after is about this state. It may have told meanwhile that the pod is gone, too.
            if self._pods.get(metadata.key) is pod:
                self._pods[metadata.key] = _decoder.decode(raw)
            note = f"Ended by force, as its node {pod.spec.node_name} is unreachable"
            about = regarding(PODS, metadata)
            self._recorder.emit(about, "Warning", REASON, note, controller=POD_TERMINATION_CONTROLLER, action=ACTION)
            log.info("a pod is ended by force", extra={"pod": metadata.key, "node": pod.spec.node_name})
        await self._client.delete(PODS, metadata.namespace, metadata.name, uid=metadata.uid, grace_s=0)
