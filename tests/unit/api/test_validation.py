from collections.abc import Callable

import pytest

from shared.api.validation import (
    dns_label_errors,
    dns_subdomain_errors,
    int32,
    label_key_errors,
    label_value_errors,
    labels_errors,
)

Check = Callable[[str], list[str]]


@pytest.mark.parametrize(
    ("check", "text"),
    [
        (dns_label_errors, "a"),
        (dns_label_errors, "a-1"),
        (dns_label_errors, "1" * 63),
        (dns_subdomain_errors, "a.b-c.d1"),
        (dns_subdomain_errors, ".".join(["a" * 63] * 3 + ["b" * 61])),
        (label_key_errors, "cpu"),
        (label_key_errors, "Team_A.b-c"),
        (label_key_errors, "nvidia.com/gpu"),
        (label_key_errors, "kueue.x-k8s.io/queue-name"),
        (label_key_errors, "a" * 253 + "/" + "B" * 63),
        (label_value_errors, ""),
        (label_value_errors, "a.B_c-1"),
    ],
)
def test_valid(check: Check, text: str) -> None:
    assert check(text) == []


@pytest.mark.parametrize(
    ("check", "text"),
    [
        (dns_label_errors, ""),
        (dns_label_errors, "A"),
        (dns_label_errors, "a.b"),
        (dns_label_errors, "-a"),
        (dns_label_errors, "a-"),
        (dns_label_errors, "a" * 64),
        (dns_label_errors, "a\n"),
        (dns_subdomain_errors, ""),
        (dns_subdomain_errors, "a..b"),
        (dns_subdomain_errors, "a.-b"),
        (dns_subdomain_errors, "a" * 254),
        (label_key_errors, ""),
        (label_key_errors, "/gpu"),
        (label_key_errors, "nvidia.com/"),
        (label_key_errors, "a/b/c"),
        (label_key_errors, "Nvidia.com/gpu"),
        (label_key_errors, "-gpu"),
        (label_key_errors, "b" * 64),
        (label_value_errors, "a b"),
        (label_value_errors, "-a"),
        (label_value_errors, "a" * 64),
        (label_value_errors, "é"),
    ],
)
def test_invalid(check: Check, text: str) -> None:
    assert check(text)


def test_each_fault_of_a_map_names_its_key() -> None:
    errors = labels_errors({"ok": "ok", "-bad": "ok", "key": "not ok"})
    assert len(errors) == 2
    assert errors[0].startswith("'-bad'")
    assert errors[1].startswith("'key'")


@pytest.mark.parametrize(("key", "faults"), [("a/b/-c", 1), ("", 2), ("/gpu", 1), ("A/-", 2), ("x/" + "-" * 64, 2)])
def test_as_many_faults_of_a_key_as_kubernetes_tells(key: str, faults: int) -> None:
    assert len(label_key_errors(key)) == faults


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("007", 7),
        ("+5", 5),
        ("-2147483648", -(2**31)),
        ("2147483647", 2**31 - 1),
        pytest.param("0" * 5000 + "12", 12, id="many zeros"),
        ("2147483648", None),
        pytest.param("1" * 5000, None, id="many digits"),
        ("", None),
        ("1.0", None),
        (" 1", None),
        ("1_0", None),
        ("\u0661", None),
    ],
)
def test_integers_of_labels_and_annotations(text: str, number: int | None) -> None:
    assert int32(text) == number
