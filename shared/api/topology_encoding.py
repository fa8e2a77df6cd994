"""Topology assignments: from single domains to the compact form that v1beta2 stores, and back.

Any legal compact form is read. Written is the one that Kueue writes (spec/topology-and-checks.md 9.3): hosts that share the
beginning of their names in one slice each, unless a single slice for all is shorter. v1beta1 lists the domains one by one.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

import msgspec

from shared.api import names
from shared.api.topology_assignment import (
    TopologyAssignment,
    TopologyLevelIndividual,
    TopologyLevelValues,
    TopologyPodCounts,
    TopologySlice,
)

MAX_SLICES = 1000
MAX_DOMAINS_PER_SLICE = 100_000


class Domain(msgspec.Struct, frozen=True, gc=False):
    """Pods in one domain; `values` are those of the levels' labels, widest level first."""

    values: tuple[str, ...]
    count: int


def decode(assignment: TopologyAssignment) -> list[Domain]:
    """The domains in the order of the slices. Raises ValueError when a slice does not add up."""
    return [domain for part in assignment.slices for domain in _domains(part, len(assignment.levels))]


def encode(levels: Sequence[str], domains: Sequence[Domain]) -> TopologyAssignment:
    """The compact form. Raises ValueError when a domain has not one value per level."""
    for domain in domains:
        if len(domain.values) != len(levels):
            raise ValueError(
                f"domain {','.join(domain.values)} has {len(domain.values)} values for {len(levels)} levels"
            )
    single = tuple(_slice(run) for run in _chunks(domains))
    slices = single
    if len(domains) > 1 and levels[-1] == names.HOSTNAME_LABEL:
        slices = _by_prefix(domains)
        if len(domains) <= MAX_DOMAINS_PER_SLICE and _size(single) < _size(slices):
            slices = single
    return TopologyAssignment(levels=tuple(levels), slices=slices)


def _domains(part: TopologySlice, levels: int) -> Iterator[Domain]:
    columns = [_column(values, part.domain_count) for values in part.values_per_level]
    counts = part.pod_counts
    if counts.universal is not None:
        numbers: Sequence[int] = (counts.universal,) * part.domain_count
    else:
        numbers = counts.individual or ()
    if len(columns) != levels or len(numbers) != part.domain_count:
        raise ValueError(f"slice of {part.domain_count} domains: {len(columns)} levels, {len(numbers)} counts")
    return map(Domain, zip(*columns, strict=True), numbers)


def _column(values: TopologyLevelValues, count: int) -> Sequence[str]:
    if values.universal is not None:
        return (values.universal,) * count
    individual = values.individual
    if individual is None or len(individual.roots) != count:
        raise ValueError(f"slice of {count} domains without as many values")
    return [individual.prefix + root + individual.suffix for root in individual.roots]


def _slice(domains: Sequence[Domain]) -> TopologySlice:
    counts = [domain.count for domain in domains]
    same = len(set(counts)) == 1
    return TopologySlice(
        domain_count=len(domains),
        values_per_level=tuple(_values(column) for column in zip(*(d.values for d in domains), strict=True)),
        pod_counts=TopologyPodCounts(universal=counts[0]) if same else TopologyPodCounts(individual=tuple(counts)),
    )


def _values(column: Sequence[str]) -> TopologyLevelValues:
    if column[0] and len(set(column)) == 1:
        return TopologyLevelValues(universal=column[0])
    # Where both meet in the shortest value, the suffix wins.
    suffix = _common([value[::-1] for value in column])[::-1]
    prefix = _common(column)[: min(map(len, column)) - len(suffix)]
    roots = tuple(value[len(prefix) : len(value) - len(suffix)] for value in column)
    return TopologyLevelValues(individual=TopologyLevelIndividual(prefix=prefix, suffix=suffix, roots=roots))


def _common(values: Sequence[str]) -> str:
    """The longest beginning that all share."""
    low, high = min(values), max(values)
    length = next((i for i, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), min(len(low), len(high)))
    return low[:length]


def _by_prefix(domains: Sequence[Domain]) -> tuple[TopologySlice, ...]:
    """A slice per run of hosts with the same prefix; shorter prefixes until they are few enough."""
    hosts = [domain.values[-1] for domain in domains]
    sharing = Counter(prefix for host in set(hosts) for prefix in _prefixes(host))
    depth = max((host.count("-") for host in hosts), default=0)
    while True:
        keys = [_shared(host, sharing, depth) for host in hosts]
        runs = [list(run) for _, run in groupby(zip(keys, domains, strict=True), key=lambda pair: pair[0])]
        parts = [part for run in runs for part in _chunks([domain for _, domain in run])]
        if len(parts) <= MAX_SLICES or depth == 0:
            return tuple(_slice(part) for part in parts)
        depth -= 1


def _prefixes(host: str) -> Iterator[str]:
    """Beginnings that end in a dash, the shortest first."""
    return (host[: i + 1] for i, character in enumerate(host) if character == "-")


def _shared(host: str, sharing: Counter[str], depth: int) -> str:
    """The longest beginning, of at most `depth` dashes, that another host has too."""
    candidates: Iterable[str] = list(_prefixes(host))[:depth]
    return max((prefix for prefix in candidates if sharing[prefix] > 1), key=len, default="")


def _chunks(domains: Sequence[Domain]) -> Iterator[Sequence[Domain]]:
    return (domains[i : i + MAX_DOMAINS_PER_SLICE] for i in range(0, len(domains), MAX_DOMAINS_PER_SLICE))


def _size(slices: tuple[TopologySlice, ...]) -> int:
    return len(msgspec.json.encode(slices))
