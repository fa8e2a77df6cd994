"""Laws of quantities: text and amount agree both ways, rounding is away from zero, order is that of the amounts."""

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from shared.api.quantity import (
    INT64_MAX,
    INT64_MIN,
    UNLIMITED,
    Quantity,
    QuantityFormat,
    format_amount,
    parse,
    quota_units,
    request_units,
    to_base_units,
)

SUFFIXES = {
    "": Fraction(1),
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "P": Fraction(10**15),
    "E": Fraction(10**18),
    "Ki": Fraction(2**10),
    "Mi": Fraction(2**20),
    "Gi": Fraction(2**30),
    "Ti": Fraction(2**40),
    "Pi": Fraction(2**50),
    "Ei": Fraction(2**60),
    "e5": Fraction(10**5),
    "E-4": Fraction(1, 10**4),
    "e+2": Fraction(100),
}
RESOURCES = st.sampled_from(["cpu", "memory", "ephemeral-storage", "hugepages-2Mi", "nvidia.com/gpu", "pods"])
FORMATS: st.SearchStrategy[QuantityFormat] = st.sampled_from(["DecimalSI", "BinarySI", "DecimalExponent"])
INT64 = st.integers(INT64_MIN, INT64_MAX)


@st.composite
def written(draw: st.DrawFn) -> tuple[str, Fraction]:
    """A quantity as text, and its exact value computed another way."""
    whole = draw(st.integers(0, 10**18))
    fraction = draw(st.text("0123456789", max_size=12))
    suffix = draw(st.sampled_from(sorted(SUFFIXES)))
    sign = draw(st.sampled_from(["", "+", "-"]))
    value = Fraction(int(f"{whole}{fraction}"), 10 ** len(fraction)) * SUFFIXES[suffix]
    text = f"{sign}{whole}.{fraction}{suffix}" if fraction else f"{sign}{whole}{suffix}"
    return text, -value if sign == "-" else value


def away_from_zero(value: Fraction) -> int:
    return int(-((-value) // 1)) if value >= 0 else int(value // 1)


@given(written())
def test_parsing_is_exact_to_the_nano(case: tuple[str, Fraction]) -> None:
    text, value = case
    quantity = parse(text)
    assert quantity.nano == away_from_zero(value * 10**9)
    exact = Fraction(quantity.nano, 10**9)
    assert quantity.value() == away_from_zero(exact)
    assert quantity.milli_value() == away_from_zero(exact * 1000)


@given(st.integers(-(10**30), 10**30), FORMATS)
def test_canonical_text_gives_the_amount_back_and_is_stable(nano: int, quantity_format: QuantityFormat) -> None:
    text = str(Quantity(nano, quantity_format))
    assert parse(text).nano == nano
    assert str(parse(text)) == text or quantity_format == "BinarySI"
    assert "." not in text


@given(written(), written())
def test_order_is_the_order_of_the_amounts(first: tuple[str, Fraction], second: tuple[str, Fraction]) -> None:
    one, two = parse(first[0]), parse(second[0])
    assert (one < two) == (one.nano < two.nano)
    assert (one == two) == (one.nano == two.nano)
    if first[1] < second[1]:
        assert one <= two


@given(RESOURCES, written())
def test_units_never_lose_anything(resource: str, case: tuple[str, Fraction]) -> None:
    text, value = case
    scaled = value * 1000 if resource == "cpu" else value
    units = to_base_units(resource, text)
    assert abs(units) >= abs(scaled)
    assert abs(units) - abs(scaled) < 2


@given(RESOURCES, written())
def test_quota_and_request_stay_in_int64_and_agree_inside(resource: str, case: tuple[str, Fraction]) -> None:
    text, _ = case
    exact, quota, request = to_base_units(resource, text), quota_units(resource, text), request_units(resource, text)
    assert request == min(max(exact, INT64_MIN), INT64_MAX)
    assert INT64_MIN <= quota <= INT64_MAX
    assert quota in (UNLIMITED, max(exact, INT64_MIN))
    assert quota >= request


@given(RESOURCES, INT64)
def test_amounts_survive_the_api(resource: str, units: int) -> None:
    text = format_amount(resource, units)
    assert to_base_units(resource, text) == units
    assert format_amount(resource, to_base_units(resource, text)) == text
