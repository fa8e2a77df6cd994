"""Kueue's feature gates: the table, how they are set, and what may not be set together.

Sets of gates are values: a service asks `gates["PartialAdmission"]`, and a name that is not in the table is a defect of ours (KeyError), never a
silent False. `AllAlpha` and `AllBeta` set all gates of their stage that are not named themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from shared.config.gate_table import GATES, Stage

GROUPS = {"AllAlpha": Stage.ALPHA, "AllBeta": Stage.BETA}
_TRUE = frozenset({"1", "t", "T", "true", "TRUE", "True"})
_FALSE = frozenset({"0", "f", "F", "false", "FALSE", "False"})


class GateError(ValueError):
    """`errors`: (gate, why) for each that cannot be set so."""

    def __init__(self, errors: tuple[tuple[str, str], ...]) -> None:
        super().__init__("; ".join(f"{gate}: {why}" for gate, why in errors))
        self.errors = errors


class FeatureGates(msgspec.Struct, frozen=True):
    """The state of every gate. Make it with `resolve`."""

    states: dict[str, bool]

    def __getitem__(self, name: str) -> bool:
        """Raises KeyError for a gate that does not exist."""
        return self.states[name]

    def __iter__(self) -> Iterator[tuple[str, bool]]:
        """(name, state) in the order of names."""
        return iter(sorted(self.states.items()))

    def changed(self) -> dict[str, bool]:
        """Those that are not at their default."""
        return {name: state for name, state in self if state != GATES[name].default}


def parse_flag(text: str) -> dict[str, bool]:
    """`A=true,B=false` by name; the last one counts. Raises GateError for what is no such list (unknown names are for `resolve`)."""
    values: dict[str, bool] = {}
    errors: list[tuple[str, str]] = []
    for part in filter(None, (p.strip() for p in text.split(","))):
        name, equals, value = (p.strip() for p in part.partition("="))
        if not equals:
            errors.append((name, "no value: write NAME=true or NAME=false"))
        elif value in _TRUE or value in _FALSE:
            values[name] = value in _TRUE
        else:
            errors.append((name, f"not true or false: {value!r}"))
    if errors:
        raise GateError(tuple(errors))
    return values


def resolve(wanted: Mapping[str, bool]) -> FeatureGates:
    """Defaults with `wanted` on top. Raises GateError: unknown, locked, or on while one that it needs is off."""
    errors = [(name, "no such feature gate") for name in wanted if name not in GATES and name not in GROUPS]
    states = {name: gate.default for name, gate in GATES.items()}
    for group, stage in GROUPS.items():
        if group in wanted:
            states |= {n: wanted[group] for n, g in GATES.items() if g.stage is stage}
    for name, value in wanted.items():
        gate = GATES.get(name)
        if gate is None:
            continue
        if gate.locked and value != gate.default:
            errors.append((name, f"cannot be set to {str(value).lower()}: it is locked to {str(gate.default).lower()}"))
            continue
        states[name] = value
    for name, gate in GATES.items():
        off = [n for n in gate.needs if not states[n]]
        if states[name] and off:
            errors.append((name, f"needs {', '.join(off)}, which {'is' if len(off) == 1 else 'are'} off"))
    if errors:
        raise GateError(tuple(errors))
    return FeatureGates(states)


DEFAULT_GATES = resolve({})
