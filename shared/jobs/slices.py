"""Which of the Workloads of an elastic job stands for it, and what becomes of the others (job specification 10.7).

An elastic job changes its number of pods while it runs. Growing asks for quota with a new Workload, a slice, that replaces the one before it once it is
admitted; shrinking only lessens the counts of the slice that is there.
"""

from collections.abc import Mapping, Sequence

import msgspec

from shared.api import names


class Slice(msgspec.Struct, frozen=True, kw_only=True):
    """One unfinished Workload of the job. `replaces`: key of the slice that it says it replaces, or empty."""

    key: str
    counts: Mapping[str, int]
    """Pods by pod set."""
    reserved: bool = False
    evicted: bool = False
    replaces: str = ""


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """What to do. `selected` and `finish` hold keys."""

    selected: str = ""
    """The slice that stands for the job; empty: a new one is to be made, while the job goes on."""
    resize: bool = False
    """The counts of `selected` become the job's."""
    compatible: bool = True
    """Off: the job has other pod sets than its slice, so that it is no matter of slices."""
    finish: tuple[tuple[str, str], ...] = ()
    """Slices that are over, and the reason."""


def choose(slices: Sequence[Slice], wanted: Mapping[str, int]) -> Choice:
    """`slices`: unfinished ones, the oldest first. `wanted`: pods by pod set, as the job has them now."""
    if not slices:
        return Choice()
    if len(slices) == 1:
        return _for(slices[0], wanted, ())
    admitted = _admitted(slices)
    pending = next(
        (s for s in slices if admitted and not s.evicted and not s.reserved and s.replaces == admitted.key), None
    )
    selected = pending or admitted or next((s for s in reversed(slices) if not s.evicted), None)
    replaced = {s.replaces for s in slices if not s.evicted and s.replaces}
    finish = tuple(
        (s.key, names.REASON_SLICE_REPLACED if s.key in replaced else names.REASON_OUT_OF_SYNC)
        for s in slices
        if s is not selected and s is not admitted
    )
    return Choice(finish=finish) if selected is None else _for(selected, wanted, finish)


def _admitted(slices: Sequence[Slice]) -> Slice | None:
    """The newest that holds quota and was not replaced by another that does."""
    holding = [s for s in slices if s.reserved and not s.evicted]
    replaced = {s.replaces for s in holding if s.replaces}
    return next((s for s in reversed(holding) if s.key not in replaced), None)


def _for(selected: Slice, wanted: Mapping[str, int], finish: tuple[tuple[str, str], ...]) -> Choice:
    if selected.counts.keys() != wanted.keys():
        return Choice(compatible=False, finish=finish)
    if selected.counts == wanted:
        return Choice(selected=selected.key, finish=finish)
    grows = any(wanted[name] > count for name, count in selected.counts.items())
    if not selected.reserved or not grows:
        return Choice(selected=selected.key, resize=True, finish=finish)
    return Choice(finish=finish)


class PodOfSlice(msgspec.Struct, frozen=True):
    """What deciding about its gate needs to know of a pod that has not ended."""

    name: str
    pod_set: str
    gated: bool


def to_ungate(pods: Sequence[PodOfSlice], counts: Mapping[str, int]) -> tuple[str, ...]:
    """Names of gated pods that may run: no more of each pod set than were granted (specification 16.2)."""
    found: list[str] = []
    for pod_set, granted in counts.items():
        of_set = [pod for pod in pods if pod.pod_set == pod_set]
        room = granted - sum(not pod.gated for pod in of_set)
        found += sorted(pod.name for pod in of_set if pod.gated)[: max(room, 0)]
    return tuple(found)
