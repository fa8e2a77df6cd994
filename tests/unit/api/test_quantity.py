"""Quantities against the values Kubernetes itself gives for the same text."""

import pytest

from shared.api.quantity import (
    INT64_MAX,
    INT64_MIN,
    UNLIMITED,
    ZERO,
    Quantity,
    QuantityError,
    format_amount,
    is_byte_resource,
    is_quantity,
    parse,
    quota_units,
    request_units,
    to_base_units,
)


@pytest.mark.parametrize(
    ("text", "value", "milli", "canonical"),
    [
        ("0", 0, 0, "0"),
        ("0Ki", 0, 0, "0"),
        ("9", 9, 9000, "9"),
        ("+3", 3, 3000, "3"),
        ("100m", 1, 100, "100m"),
        ("1000m", 1, 1000, "1"),
        ("1500m", 2, 1500, "1500m"),
        ("0.1m", 1, 1, "100u"),
        ("1u", 1, 1, "1u"),
        ("1n", 1, 1, "1n"),
        ("0.1n", 1, 1, "1n"),
        ("0.5", 1, 500, "500m"),
        (".5", 1, 500, "500m"),
        ("5.", 5, 5000, "5"),
        ("1k", 1000, 10**6, "1k"),
        ("2000", 2000, 2 * 10**6, "2k"),
        ("1M", 10**6, 10**9, "1M"),
        ("1G", 10**9, 10**12, "1G"),
        ("1T", 10**12, 10**15, "1T"),
        ("1P", 10**15, 10**18, "1P"),
        ("1E", 10**18, 10**21, "1E"),
        ("1000E", 10**21, 10**24, "1e21"),
        ("1Ki", 1024, 1024 * 1000, "1Ki"),
        ("1Mi", 2**20, 2**20 * 1000, "1Mi"),
        ("1024Mi", 2**30, 2**30 * 1000, "1Gi"),
        ("1.5Gi", 3 * 2**29, 3 * 2**29 * 1000, "1536Mi"),
        ("1Ti", 2**40, 2**40 * 1000, "1Ti"),
        ("1Pi", 2**50, 2**50 * 1000, "1Pi"),
        ("1Ei", 2**60, 2**60 * 1000, "1Ei"),
        ("0.5Ki", 512, 512000, "512"),
        ("0.1Ki", 103, 102400, "102400m"),
        ("1e3", 1000, 10**6, "1e3"),
        ("12E6", 12 * 10**6, 12 * 10**9, "12e6"),
        ("1e+2", 100, 10**5, "100"),
        ("1e-3", 1, 1, "1e-3"),
        ("-1", -1, -1000, "-1"),
        ("-0.5", -1, -500, "-500m"),
        ("-1500m", -2, -1500, "-1500m"),
        ("-1Gi", -(2**30), -(2**30) * 1000, "-1Gi"),
    ],
)
def test_text(text: str, value: int, milli: int, canonical: str) -> None:
    quantity = parse(text)
    assert (quantity.value(), quantity.milli_value(), str(quantity)) == (value, milli, canonical)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "1 ",
        " 1",
        "abc",
        "1K",
        "1ki",
        "1KI",
        "e3",
        "E",
        "Ki",
        ".",
        "+",
        "-",
        "--1",
        "1.2.3",
        "1e",
        "1e1.5",
        "1mm",
        "0x10",
        "1_000",
        "١",
        "1Ki1",
        "nan",
        "inf",
        "1\n",
        "9" * 600,
    ],
)
def test_refused_text(text: str) -> None:
    with pytest.raises(QuantityError) as refused:
        parse(text)
    assert repr(text)[1:20] in str(refused.value)
    assert isinstance(refused.value, ValueError)
    assert not is_quantity(text)


def test_error_does_not_repeat_a_hostile_text() -> None:
    with pytest.raises(QuantityError) as refused:
        parse("x" * 100_000)
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize(
    ("number", "nano"), [(9, 9 * 10**9), (-2, -2 * 10**9), (0.1, 10**8), (1e16, 10**25), (2.5, 25 * 10**8)]
)
def test_json_numbers(number: int | float, nano: int) -> None:
    assert parse(number).nano == nano


@pytest.mark.parametrize("number", [float("nan"), float("inf"), True])
def test_numbers_that_are_none(number: int | float) -> None:
    assert not is_quantity(number)


def test_the_cache_keeps_types_apart() -> None:
    assert parse(1) == parse("1")
    with pytest.raises(QuantityError):
        parse(True)


def test_huge_exponents_cost_nothing_and_keep_their_sign() -> None:
    assert quota_units("memory", "1e999999999") == UNLIMITED
    assert request_units("memory", "-1e999999999") == INT64_MIN
    assert parse("1e-999999999").nano == 1


def test_equality_and_order_ignore_the_format() -> None:
    assert parse("1024Mi") == parse("1Gi")
    assert hash(parse("1000m")) == hash(parse("1"))
    assert parse("1023Mi") < parse("1Gi") <= parse("1024Mi") < parse("2G")
    assert parse("2G") > parse("1Gi") >= parse("1024Mi")
    assert parse("1") != 1


def test_arithmetic_takes_the_format_of_the_first_that_is_not_zero() -> None:
    assert str(parse("1Gi") + parse("1024Mi")) == "2Gi"
    assert str(ZERO + parse("1Gi")) == "1Gi"
    assert str(parse("1") - parse("300m")) == "700m"
    assert str(parse("300m") * 5) == "1500m"
    assert str(-parse("2k")) == "-2k"
    assert (parse("1") - parse("2")).is_negative()
    assert not ZERO.is_negative()
    assert parse(Quantity(5)).nano == 5


@pytest.mark.parametrize(
    ("resource", "text", "units"),
    [
        ("cpu", "1", 1000),
        ("cpu", "0.1m", 1),
        ("cpu", "1500m", 1500),
        ("memory", "100m", 1),
        ("memory", "36Gi", 36 * 2**30),
        ("nvidia.com/gpu", "8", 8),
        ("nvidia.com/gpu", "2500m", 3),
        ("cpu", "-1.5", -1500),
    ],
)
def test_units(resource: str, text: str, units: int) -> None:
    assert to_base_units(resource, text) == quota_units(resource, text) == request_units(resource, text) == units


@pytest.mark.parametrize(
    ("resource", "text", "quota", "request_"),
    [
        ("cpu", "9223372036854774", 9223372036854774000, 9223372036854774000),
        ("cpu", "9223372036854775", UNLIMITED, 9223372036854775000),
        ("cpu", "9223372036854776", UNLIMITED, INT64_MAX),
        ("memory", "9223372036854775806", INT64_MAX - 1, INT64_MAX - 1),
        ("memory", "9223372036854775807", UNLIMITED, INT64_MAX),
        ("memory", "20Ei", UNLIMITED, INT64_MAX),
        ("memory", "-20Ei", INT64_MIN, INT64_MIN),
    ],
)
def test_what_an_int64_cannot_hold(resource: str, text: str, quota: int, request_: int) -> None:
    assert quota_units(resource, text) == quota
    assert request_units(resource, text) == request_


@pytest.mark.parametrize(
    ("resource", "units", "text"),
    [
        ("cpu", 0, "0"),
        ("cpu", 6150, "6150m"),
        ("cpu", 9000, "9"),
        ("cpu", 2_000_000, "2k"),
        ("memory", 6643777536, "6336Mi"),
        ("memory", 0, "0"),
        ("memory", 1, "1"),
        ("memory", 1000, "1k"),
        ("memory", 1024, "1Ki"),
        ("memory", 1536, "1536"),
        ("memory", 2000, "2k"),
        ("ephemeral-storage", 2**30, "1Gi"),
        ("hugepages-2Mi", 2**21, "2Mi"),
        ("nvidia.com/gpu", 1024, "1024"),
        ("nvidia.com/gpu", 1000, "1k"),
        ("pods", 3, "3"),
    ],
)
def test_amounts_as_the_api_shows_them(resource: str, units: int, text: str) -> None:
    assert format_amount(resource, units) == text


def test_byte_resources() -> None:
    assert is_byte_resource("memory")
    assert is_byte_resource("hugepages-1Gi")
    assert not is_byte_resource("cpu")
    assert not is_byte_resource("example.com/memory")
