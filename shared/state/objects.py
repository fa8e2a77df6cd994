"""The newest state of every object, by kind and key: the part of the fold that every service shares.

OBJECTS may repeat a message and may bring states in an order of its own after a reconnect; this keeps the newest and says what changed. It knows
no meaning of any kind. What the bus could decode but what stands under the wrong subject is not taken in and is remembered in `misfits`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Generic, TypeVar, cast

import msgspec

from shared.bus.interface import ObjectChanged
from shared.events.objects import (
    KINDS,
    AdmissionCheck,
    ClusterQueue,
    Cohort,
    LocalQueue,
    Namespace,
    Object,
    PodSet,
    PodTemplate,
    ProvisioningRequest,
    ProvisioningRequestConfig,
    ResourceFlavor,
    Tombstone,
    Topology,
    Workload,
    WorkloadPriorityClass,
)
from shared.events.subjects import ObjectName

TEMPLATES_SHARED = 4096
"""How many different pod sets of workloads are kept ready to be shared."""

_encode = msgspec.msgpack.Encoder().encode

TOMBSTONES_KEPT = 50_000
"""How many deleted keys are remembered, to know a late repetition of an older state."""

T = TypeVar(
    "T",
    Workload,
    ClusterQueue,
    LocalQueue,
    Cohort,
    ResourceFlavor,
    AdmissionCheck,
    WorkloadPriorityClass,
    Namespace,
    Topology,
    ProvisioningRequestConfig,
    ProvisioningRequest,
    PodTemplate,
)
S = TypeVar("S")

_KIND_OF: dict[type, str] = {type_: kind for kind, type_ in KINDS.items()}
_BELONGS: dict[str, tuple[type, ...]] = {kind: (type_, Tombstone) for kind, type_ in KINDS.items()}
"""What may stand under each kind."""


class Seen(msgspec.Struct, frozen=True, gc=False):
    """How new the state is that is held of a key."""

    uid: str
    version: int
    position: int


class Change(msgspec.Struct, Generic[S], frozen=True, gc=False):
    """What an accepted message did: the state before (None: unknown) and after (None: gone)."""

    name: ObjectName
    key: str
    """Of `name`; worked out once, for each reader of the change needs it."""
    old: S | None
    new: S | None
    trace: str = ""


class Objects:
    """Newest object per kind and key.

    A state replaces the one that is held if its stream position is higher and, for the same uid, its version is higher (a Tombstone: not lower).
    """

    def __init__(self) -> None:
        self._held: dict[str, dict[str, Object]] = {kind: {} for kind in KINDS}
        self._seen: dict[tuple[str, str], Seen] = {}
        self._tombstones: OrderedDict[tuple[str, str], None] = OrderedDict()
        self._templates: dict[bytes, tuple[PodSet, ...]] = {}
        self.misfits: dict[ObjectName, str] = {}
        """Why the newest message under a name was not taken in."""

    def clear(self) -> None:
        """Forget everything (a Reset)."""
        self.__init__()  # type: ignore[misc]

    def apply(self, item: ObjectChanged) -> Change[Object] | None:
        """Take in a state; None if it is not newer than what is held or does not belong where it stands."""
        name, new = item.name, item.object
        held = self._held.get(name.kind)
        if held is None or not isinstance(new, _BELONGS[name.kind]):
            self.misfits[name] = f"{type(new).__name__} under kind {name.kind!r}"
            return None
        key = name.key
        at = (name.kind, key)
        seen = self._seen.get(at)
        gone = isinstance(new, Tombstone)
        if seen is not None and not _newer(seen, new, item.position, gone):
            return None
        if self.misfits:
            self.misfits.pop(name, None)
        old = held.get(key)
        self._seen[at] = Seen(new.uid or (seen.uid if seen is not None else ""), new.version, item.position)
        if gone:
            held.pop(key, None)
            self._remember_tombstone(at)
            return Change(name, key, old, None, item.trace)
        if self._tombstones:
            self._tombstones.pop(at, None)
        if isinstance(new, Workload):
            new = self._with_shared_template(new, old)
        held[key] = new
        return Change(name, key, old, new, item.trace)

    def _with_shared_template(self, workload: Workload, old: Object | None) -> Workload:
        """The workload with the pod sets of an equal one, where there is one: the jobs of a cluster come from few templates."""
        if isinstance(old, Workload) and old.pod_sets == workload.pod_sets:
            # Most changes are changes of status.
            known: tuple[PodSet, ...] | None = old.pod_sets
            return workload if known is workload.pod_sets else msgspec.structs.replace(workload, pod_sets=old.pod_sets)
        encoded = _encode(workload.pod_sets)
        known = self._templates.get(encoded)
        if known is not None:
            return workload if known is workload.pod_sets else msgspec.structs.replace(workload, pod_sets=known)
        if len(self._templates) >= TEMPLATES_SHARED:
            self._templates.clear()
        self._templates[encoded] = workload.pod_sets
        return workload

    def _remember_tombstone(self, at: tuple[str, str]) -> None:
        self._tombstones[at] = None
        if len(self._tombstones) > TOMBSTONES_KEPT:
            self._seen.pop(self._tombstones.popitem(last=False)[0], None)

    def get(self, type_: type[T], key: str) -> T | None:
        """The object of this kind, or None."""
        return cast("T | None", self._held[_KIND_OF[type_]].get(key))

    def all(self, type_: type[T]) -> Mapping[str, T]:
        """Every object of a kind by key; live, not to be changed."""
        return cast("Mapping[str, T]", self._held[_KIND_OF[type_]])

    def version(self, kind: str, key: str) -> int:
        """Version of the newest state seen of a key, its deletion included; 0 if never seen."""
        seen = self._seen.get((kind, key))
        return seen.version if seen is not None else 0

    def dump(self) -> dict[str, dict[str, Object]]:
        """Everything held, for comparisons."""
        return {kind: dict(sorted(held.items())) for kind, held in self._held.items() if held}


def _newer(seen: Seen, new: Object, position: int, gone: bool) -> bool:
    if position <= seen.position:
        return False
    if new.uid and seen.uid and new.uid != seen.uid:
        return True
    return new.version >= seen.version if gone else new.version > seen.version
