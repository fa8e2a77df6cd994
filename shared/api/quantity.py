"""Exact Kubernetes quantities: text or JSON number in, integers out, canonical text back.

One parser for the whole product. Nothing here is a float: a quantity is a whole number of nano-units, the finest
step Kubernetes knows. Arithmetic on quota (saturation, Unlimited) lives with the model; this module only converts.

Source of the rules: apimachinery `resource.Quantity` (formats, rounding away from zero, canonical form) and the
amount conventions of the queueing API (cpu counted in milli-cores, every other resource in whole units).
"""

import re
from collections.abc import Collection
from functools import lru_cache
from typing import Literal

import msgspec

QuantityFormat = Literal["DecimalSI", "BinarySI", "DecimalExponent"]

INT64_MAX = 2**63 - 1
INT64_MIN = -(2**63)
UNLIMITED = INT64_MAX
"""Quota that is not bounded; the model gives it its own arithmetic."""

CPU = "cpu"

_NANO = 10**9
_MILLI = 10**6
# Above this many whole cores the milli-value no longer fits an int64.
_MAX_CPU_CORES = INT64_MAX // 1000
# Long enough for every sane text, short enough that a hostile one costs nothing.
_MAX_TEXT = 512
_MAX_EXPONENT = 1024

_TEXT = re.compile(
    r"(?P<sign>[+-]?)(?P<whole>[0-9]*)(?:\.(?P<fraction>[0-9]*))?"
    r"(?:(?P<suffix>[KMGTPE]i|[numkMGTPE])|[eE](?P<exponent>[+-]?[0-9]+))?",
    re.ASCII,
)
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_SUFFIX = {power: suffix for suffix, power in _DECIMAL.items()}
_BINARY_SUFFIX = {power: suffix for suffix, power in _BINARY.items()}


class QuantityError(ValueError):
    """The text is not a Kubernetes quantity; the message quotes it."""

    def __init__(self, text: str) -> None:
        shown = text if len(text) <= 64 else f"{text[:61]}..."
        super().__init__(
            f"{shown!r} is not a quantity: expected a number with an optional suffix such as m, k, Mi or e3"
        )


class Quantity(msgspec.Struct, frozen=True, gc=False, eq=False):
    """An exact amount in nano-units, with the family of suffixes it is written in.

    Two quantities are equal when their amounts are, whatever their format: 1024Mi == 1Gi, 1000m == 1.
    """

    nano: int
    format: QuantityFormat = "DecimalSI"

    def value(self) -> int:
        """Whole units, rounded away from zero (100m becomes 1, -100m becomes -1)."""
        return _round_away(self.nano, _NANO)

    def milli_value(self) -> int:
        """Thousandths, rounded away from zero."""
        return _round_away(self.nano, _MILLI)

    def is_negative(self) -> bool:
        return self.nano < 0

    def __eq__(self, other: object) -> bool:
        return self.nano == other.nano if isinstance(other, Quantity) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.nano)

    def __lt__(self, other: "Quantity") -> bool:
        return self.nano < other.nano

    def __le__(self, other: "Quantity") -> bool:
        return self.nano <= other.nano

    def __gt__(self, other: "Quantity") -> bool:
        return self.nano > other.nano

    def __ge__(self, other: "Quantity") -> bool:
        return self.nano >= other.nano

    def __add__(self, other: "Quantity") -> "Quantity":
        return Quantity(self.nano + other.nano, self.format if self.nano else other.format)

    def __sub__(self, other: "Quantity") -> "Quantity":
        return Quantity(self.nano - other.nano, self.format if self.nano else other.format)

    def __mul__(self, factor: int) -> "Quantity":
        return Quantity(self.nano * factor, self.format)

    def __neg__(self) -> "Quantity":
        return Quantity(-self.nano, self.format)

    def __str__(self) -> str:
        """Canonical text: no fraction, the largest suffix that loses nothing."""
        if self.format == "BinarySI" and abs(self.nano) >= 1024 * _NANO and self.nano % _NANO == 0:
            return _binary_text(self.nano // _NANO)
        return _decimal_text(self.nano, exponents=self.format == "DecimalExponent")


ZERO = Quantity(0)


def parse(raw: "str | int | float | Quantity") -> Quantity:
    """The quantity written as `raw`: text in any Kubernetes format, or a JSON/YAML number.

    A JSON float is read by its shortest decimal text, so 0.1 is exactly 100m. What is finer than 1n is rounded away
    from zero. Raises QuantityError.
    """
    if isinstance(raw, Quantity):
        return raw
    # Equal keys of different types (1, "1", True) must not share an entry, hence the text is the key.
    return _parse_text(raw if isinstance(raw, str) else repr(raw))


def is_quantity(raw: "str | int | float") -> bool:
    try:
        parse(raw)
    except QuantityError:
        return False
    return True


def to_base_units(resource: str, raw: "str | int | float | Quantity") -> int:
    """The amount in the unit the resource is counted in (milli for cpu, else whole), rounded away from zero.

    The result is exact and may exceed an int64; quota_units and request_units bound it. Raises QuantityError.
    """
    quantity = parse(raw)
    return quantity.milli_value() if resource == CPU else quantity.value()


def quota_units(resource: str, raw: "str | int | float | Quantity") -> int:
    """A quota (nominal, borrowing or lending limit) in base units; UNLIMITED when it does not fit an int64."""
    quantity = parse(raw)
    limit = _MAX_CPU_CORES if resource == CPU else INT64_MAX
    if quantity.nano >= limit * _NANO:
        return UNLIMITED
    return max(to_base_units(resource, quantity), INT64_MIN)


def request_units(resource: str, raw: "str | int | float | Quantity") -> int:
    """A request in base units, clamped to the int64 range: a request is never Unlimited."""
    return min(max(to_base_units(resource, raw), INT64_MIN), INT64_MAX)


def format_amount(resource: str, units: int, byte_resources: Collection[str] = ()) -> str:
    """Base units back to the text that goes into the API: cpu as milli, bytes in binary SI, others decimal SI.

    `byte_resources` names further resources that are counted in bytes (device capacities).
    """
    if resource == CPU:
        return str(Quantity(units * _MILLI))
    if is_byte_resource(resource) or resource in byte_resources:
        # Read back once, as the API does: what binary suffixes cannot express ends in decimal ones (2000 -> 2k).
        return str(parse(str(Quantity(units * _NANO, "BinarySI"))))
    return str(Quantity(units * _NANO))


def is_byte_resource(resource: str) -> bool:
    return resource in ("memory", "ephemeral-storage") or resource.startswith("hugepages-")


@lru_cache(maxsize=65536)
def _parse_text(text: str) -> Quantity:
    match = _TEXT.fullmatch(text) if len(text) <= _MAX_TEXT else None
    if match is None:
        raise QuantityError(text)
    whole, fraction = match["whole"], match["fraction"] or ""
    if not whole and not fraction:
        raise QuantityError(text)
    digits = int(whole + fraction)
    suffix = match["suffix"] or ""
    quantity_format: QuantityFormat = "DecimalSI"
    numerator, power = digits, 9 - len(fraction)
    if suffix in _BINARY:
        quantity_format = "BinarySI"
        numerator <<= _BINARY[suffix]
    elif match["exponent"] is not None:
        quantity_format = "DecimalExponent"
        power += min(max(int(match["exponent"]), -_MAX_EXPONENT), _MAX_EXPONENT)
    else:
        power += _DECIMAL[suffix]
    nano = numerator * 10**power if power >= 0 else _round_away(numerator, 10**-power)
    if match["sign"] == "-":
        nano = -nano
    if quantity_format == "BinarySI" and 0 < abs(nano) < _NANO:
        quantity_format = "DecimalSI"
    return Quantity(nano, quantity_format)


def _round_away(amount: int, step: int) -> int:
    steps = -(-abs(amount) // step)
    return steps if amount >= 0 else -steps


def _decimal_text(nano: int, exponents: bool) -> str:
    if nano == 0:
        return "0"
    number, power = nano, -9
    while number % 1000 == 0:
        number //= 1000
        power += 3
    if exponents or power not in _DECIMAL_SUFFIX:
        return f"{number}e{power}" if power else str(number)
    return f"{number}{_DECIMAL_SUFFIX[power]}"


def _binary_text(units: int) -> str:
    power = 0
    while power < 60 and units % 1024 == 0:
        units //= 1024
        power += 10
    return f"{units}{_BINARY_SUFFIX.get(power, '')}"
