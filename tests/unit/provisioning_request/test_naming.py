"""Names of requests and templates, and reading the attempt back."""

from __future__ import annotations

from hashlib import sha1

import pytest

from services.provisioning_request.naming import attempt_of, limited, request_name, template_name


def test_short_names_are_plain() -> None:
    assert request_name("wl", "prov", 1) == "wl-prov-1"
    assert template_name("wl-prov-1", "main") == "ppt-wl-prov-1-main"


@pytest.mark.parametrize("length", [246, 247])
def test_a_name_at_the_limit_stays(length: int) -> None:
    assert limited("a" * length) == "a" * length


def test_a_longer_name_is_cut_and_hashed() -> None:
    full = "a" * 240 + "b" * 8
    name = limited(full)
    assert len(name) == 253
    assert name == full[:247] + "-" + sha1(full.encode()).hexdigest()[:5]


@pytest.mark.parametrize(
    ("name", "attempt"),
    [
        ("wl-prov-1", 1),
        ("wl-prov-12", 12),
        ("wl-prov-", None),
        ("wl-prov-x1", None),
        ("wl-prov-1-1", None),
        ("wl-prov2-1", None),
        ("other-prov-1", None),
        ("wl-prov-²", None),
    ],
)
def test_the_attempt_is_read_back(name: str, attempt: int | None) -> None:
    assert attempt_of(name, "wl", "prov") == attempt


@pytest.mark.parametrize("attempt", [1, 2, 17])
@pytest.mark.parametrize("length", [230, 241, 242, 243, 250])
def test_the_attempt_is_read_back_from_cut_names_too(length: int, attempt: int) -> None:
    workload = "w" * length
    name = request_name(workload, "prov", attempt)
    assert len(name) <= 253
    assert attempt_of(name, workload, "prov") == attempt
    assert attempt_of(name, workload, "other") is None
