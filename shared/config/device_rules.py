"""What `resources.deviceClassMappings` may not say: (path, reason) of every fault. Source: the topology and checks specification, 17.1."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from shared.api.validation import dns_label_errors, dns_subdomain_errors, label_key_errors
from shared.config.configuration import DeviceAmount, DeviceClassMapping, DeviceSource

PATH = "resources.deviceClassMappings"
Fault = tuple[str, str]


def device_faults(mappings: Sequence[DeviceClassMapping]) -> Iterator[Fault]:
    """In the order of the file."""
    if len(mappings) > 16:
        yield PATH, f"at most 16, are {len(mappings)}"
    for name, count in Counter(mapping.name for mapping in mappings).items():
        if count > 1:
            yield PATH, f"{name} stands there {count} times"
    for index, mapping in enumerate(mappings):
        yield from _mapping_faults(f"{PATH}[{index}]", mapping)
    yield from _shared_classes(mappings)


def _mapping_faults(path: str, mapping: DeviceClassMapping) -> Iterator[Fault]:
    for error in label_key_errors(mapping.name):
        yield f"{path}.name", error
    if len(mapping.name) > 253:
        yield f"{path}.name", "must be no more than 253 characters"
    if not 1 <= len(mapping.device_class_names) <= 8:
        yield f"{path}.deviceClassNames", f"must be 1 to 8 names, are {len(mapping.device_class_names)}"
    for number, name in enumerate(mapping.device_class_names):
        for error in dns_subdomain_errors(name):
            yield f"{path}.deviceClassNames[{number}]", error
    kinds = set()
    for number, source in enumerate(mapping.sources):
        at = f"{path}.sources[{number}]"
        if (source.counter is None) == (source.capacity is None):
            yield at, "must be exactly one of counter and capacity"
            continue
        kinds.add("counter" if source.counter is not None else "capacity")
        yield from _source_faults(at, source)
    if len(kinds) > 1:
        yield f"{path}.sources", "counters and capacities may not be mixed"


def _source_faults(path: str, source: DeviceSource) -> Iterator[Fault]:
    if source.counter is not None:
        for error in dns_label_errors(source.counter.name):
            yield f"{path}.counter.name", error
        yield from _amount_faults(f"{path}.counter", source.counter)
    if source.capacity is not None:
        for error in label_key_errors(source.capacity.name):
            yield f"{path}.capacity.name", error
        yield from _amount_faults(f"{path}.capacity", source.capacity)


def _amount_faults(path: str, amount: DeviceAmount) -> Iterator[Fault]:
    for error in dns_subdomain_errors(amount.driver):
        yield f"{path}.driver", error
    if len(amount.driver) > 63:
        yield f"{path}.driver", "must be no more than 63 characters"
    if amount.device_selector is not None and not amount.device_selector.cel.expression.strip():
        yield f"{path}.deviceSelector.cel.expression", "must be set"


def _shared_classes(mappings: Sequence[DeviceClassMapping]) -> Iterator[Fault]:
    """A class in two mappings would be counted twice, unless each counts something else of it."""
    seen: dict[str, list[frozenset[str]]] = {}
    for index, mapping in enumerate(mappings):
        counters = frozenset(source.counter.name for source in mapping.sources if source.counter is not None)
        for name in dict.fromkeys(mapping.device_class_names):
            for others in seen.get(name, ()):
                if not counters or not others or counters & others:
                    yield (
                        f"{PATH}[{index}].deviceClassNames",
                        f"{name} is in another mapping, which counts the same of it",
                    )
            seen.setdefault(name, []).append(counters)
