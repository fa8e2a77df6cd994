"""What becomes of a family of concurrent admission: a parent workload, which has the job, and its variants, one for each flavor (core rules 9.4).

Why it exists: who makes, deletes, stops, starts and releases variants, and who tells the parent, must only carry out; what is to be done is decided
here, level-triggered, from one look at the whole family. Which variant is admitted is the scheduler's (`variants`).

One look, in order:
 1. Variants are made for flavors that have none, and deleted for flavors that are gone; so are those that ask for what the parent no longer asks for.
 2. An evicted variant that holds quota: the parent that runs by it is evicted first, then its job stops, then the quota is given back.
 3. Variants that can bring nothing any more are deactivated,
 4. those that can are activated.
 5. The parent follows: it finishes its variants, is admitted with the admitted one, evicted without one.
 6. One variant after the other may preempt, the most preferred first, five minutes apart.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from shared.api import names

UNGATE_EVERY_S = 300
"""Time between two variants of a family that are let preempt."""


class Variant(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be known of one variant."""

    name: str
    flavor: str
    current: bool = True
    """Its pods are those of the parent."""
    follows: bool = True
    """Queue, priority and admission gates are those of the parent."""
    active: bool = True
    admissible: bool = True
    """It may be queued (core rules 2.10)."""
    reserved: bool = False
    admitted: bool = False
    evicted: bool = False
    finished: bool = False
    deleting: bool = False
    looked_at: bool = False
    """It has a QuotaReserved condition."""
    blocked: bool = False
    """It would have to preempt, and its gate is closed."""
    open_since: int | None = None
    """When its gate was opened; None: it is closed."""
    parked: bool = False
    """A migration took it out of the queue, and nobody else puts it back."""
    same_progress: bool = True
    """PodsReady and the pods that are done for good are those of the parent."""


class Family(msgspec.Struct, frozen=True, kw_only=True):
    """The parent, the policy of its ClusterQueue, and its variants in any order."""

    variants: tuple[Variant, ...] = ()
    flavors: tuple[str, ...] | None = None
    """Of the ClusterQueue, the preferred one first; None: there is no such queue. Empty: it has no policy."""
    retain_first: bool = False
    """RetainFirstAdmission, not TryPreferredFlavors."""
    last_acceptable: str = ""
    active: bool = True
    finished: bool = False
    deleting: bool = False
    reserved: bool = False
    admitted: bool = False
    evicted: bool = False
    flavor: str = ""
    """Where its job runs, by its admission."""
    requeue_at: int | None = None


class CreateVariant(msgspec.Struct, frozen=True):
    flavor: str


class DeleteVariant(msgspec.Struct, frozen=True):
    name: str


class FollowParent(msgspec.Struct, frozen=True):
    """The variant takes over what may change of its parent."""

    name: str


class EvictParent(msgspec.Struct, frozen=True):
    reason: str
    message: str


class ReleaseVariant(msgspec.Struct, frozen=True):
    """Its quota is free: no job runs by it."""

    name: str


class SetVariantActive(msgspec.Struct, frozen=True):
    name: str
    active: bool


class RequeueVariant(msgspec.Struct, frozen=True):
    """It may be tried again although it was migrated away from."""

    name: str


class FinishVariant(msgspec.Struct, frozen=True):
    name: str


class AdmitParent(msgspec.Struct, frozen=True):
    """The parent gets the admission of the variant."""

    name: str


class CopyProgress(msgspec.Struct, frozen=True):
    """PodsReady, and pods that are done for good, from the parent to the variant."""

    name: str


class OpenGate(msgspec.Struct, frozen=True):
    name: str


class Disband(msgspec.Struct, frozen=True):
    """There is nothing to choose from: the parent becomes an ordinary workload."""


Step = (
    CreateVariant
    | DeleteVariant
    | FollowParent
    | EvictParent
    | ReleaseVariant
    | SetVariantActive
    | RequeueVariant
    | FinishVariant
    | AdmitParent
    | CopyProgress
    | OpenGate
    | Disband
)


class FamilyVerdict(msgspec.Struct, frozen=True):
    """All that can be done now, in this order, and when to look again though nothing changes (seconds since the epoch)."""

    steps: tuple[Step, ...] = ()
    again_at: float | None = None


def next_steps(family: Family, now: float) -> FamilyVerdict:
    """See the module. The same family without its own effects gives the same steps, so a step that failed is simply asked for again."""
    if family.deleting:
        # Its variants go after it, once its job has stopped.
        return FamilyVerdict()
    if family.finished:
        return FamilyVerdict(tuple(FinishVariant(v.name) for v in _ordered(family) if not v.finished))
    members = tuple(_members(family))
    leaving = [v for v in _ordered(family) if v not in members and not v.deleting]
    changes: list[Step] = [DeleteVariant(v.name) for v in leaving]
    if family.flavors == () and not family.variants and not family.reserved:
        return FamilyVerdict((Disband(),))
    changes += [CreateVariant(flavor) for flavor in _missing(family)]
    changes += [FollowParent(v.name) for v in members if not v.follows]
    stopped = _evictions(family, members)
    if stopped is not None:
        return FamilyVerdict((*changes, *stopped))
    first = _admitted(family, members)
    steps = [*changes, *_activity(family, members, first), *_parent(family, first, now)]
    again_at = float(family.requeue_at) if family.requeue_at is not None and family.requeue_at > now else None
    if any(isinstance(change, CreateVariant) for change in changes):
        return FamilyVerdict(tuple(steps), again_at)
    gate, gate_at = _gate(members, now)
    times = [at for at in (again_at, gate_at) if at is not None]
    return FamilyVerdict((*steps, *gate), min(times, default=None))


def _ordered(family: Family) -> list[Variant]:
    order = {flavor: place for place, flavor in enumerate(family.flavors or ())}
    return sorted(family.variants, key=lambda v: (order.get(v.flavor, len(order)), v.name))


def _members(family: Family) -> Iterator[Variant]:
    """Variants that belong to it as it is, the preferred one first."""
    seen: set[str] = set()
    for variant in _ordered(family):
        if variant.deleting or variant.finished or variant.flavor in seen:
            continue
        if family.flavors is not None and variant.flavor not in family.flavors:
            continue
        if not variant.current and not family.reserved:
            continue
        seen.add(variant.flavor)
        yield variant


def _missing(family: Family) -> Iterator[str]:
    """Flavors without any variant: one that is still going has the name that the next one needs."""
    present = {variant.flavor for variant in family.variants}
    return (flavor for flavor in family.flavors or () if flavor not in present)


def _evictions(family: Family, members: tuple[Variant, ...]) -> list[Step] | None:
    """Quota of evicted variants; None if there is none, or none that anything waits for."""
    evicted = [v for v in members if v.evicted and v.reserved]
    steps: list[Step] = []
    waits = False
    for variant in evicted:
        elsewhere = family.flavor and variant.flavor != family.flavor
        if not family.reserved or not variant.admitted or elsewhere:
            # No job runs by it, whatever else the parent does.
            steps.append(ReleaseVariant(variant.name))
        elif family.evicted:
            waits = True
        else:
            message = f"The variant on flavor {variant.flavor} was evicted"
            return [*steps, EvictParent(names.REASON_VARIANT_EVICTED, message)]
    return steps if steps or waits else None


def _admitted(family: Family, members: tuple[Variant, ...]) -> Variant | None:
    """The variant that counts as admitted: the preferred one, or, where the first admission stays, the one that the job runs by."""
    admitted = [v for v in members if v.admitted and not v.evicted]
    if family.retain_first and family.reserved:
        running = [v for v in admitted if v.flavor == family.flavor]
        admitted = running or admitted
    return admitted[0] if admitted else None


def _activity(family: Family, members: tuple[Variant, ...], first: Variant | None) -> Iterator[Step]:
    for place, variant in enumerate(members):
        wanted = _wanted(family, members, first, place)
        if wanted is not None and wanted != variant.active:
            yield SetVariantActive(variant.name, wanted)
        elif variant.parked and variant.active and wanted:
            yield RequeueVariant(variant.name)


def _wanted(family: Family, members: tuple[Variant, ...], first: Variant | None, place: int) -> bool | None:
    """Whether the variant at this place should be active; None: as it is."""
    variant = members[place]
    if not family.active:
        return False
    if first is None:
        return True
    if variant is first:
        return None
    if family.retain_first or place > members.index(first):
        return False
    return _acceptable(family, variant)


def _acceptable(family: Family, variant: Variant) -> bool:
    flavors = family.flavors or ()
    if family.last_acceptable not in flavors or variant.flavor not in flavors:
        return True
    return flavors.index(variant.flavor) <= flavors.index(family.last_acceptable)


def _parent(family: Family, first: Variant | None, now: float) -> Iterator[Step]:
    if first is None:
        if family.admitted and not family.evicted:
            yield EvictParent(names.REASON_CONCURRENT_ADMISSION, "No variant is admitted any more")
        return
    if family.admitted:
        if not family.evicted and first.flavor != family.flavor:
            message = f"The variant on flavor {first.flavor} is admitted in its place"
            yield EvictParent(names.REASON_VARIANT_EVICTED, message)
        elif not family.evicted and not first.same_progress:
            yield CopyProgress(first.name)
        return
    if family.reserved or not family.active or not first.active:
        return
    if family.requeue_at is not None and family.requeue_at > now:
        # Its pods were not ready in time: that the variant still has its quota is no reason to try again at once.
        return
    if not first.same_progress:
        yield CopyProgress(first.name)
    yield AdmitParent(first.name)


def _gate(members: tuple[Variant, ...], now: float) -> tuple[tuple[Step, ...], float | None]:
    """Whom to let preempt next, or when to look again."""
    last = max((v.open_since for v in members if v.open_since is not None), default=None)
    for variant in members:
        if not variant.active or not variant.admissible or variant.open_since is not None:
            continue
        if variant.blocked:
            if last is not None and now < last + UNGATE_EVERY_S:
                return (), float(last + UNGATE_EVERY_S)
            return (OpenGate(variant.name),), None
        if not variant.looked_at:
            return (), None
    return (), None
