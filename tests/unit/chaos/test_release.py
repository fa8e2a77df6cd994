"""The releases that exist for the rolling upgrade: what they write and what they can read."""

from __future__ import annotations

from typing import Any

import pytest

from shared.events import decisions, objects, outcomes
from shared.events.codec import Codec, UnknownVersion
from tests.chaos import release
from tests.unit.events.samples import sample


@pytest.fixture
def codec(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a release installs goes away with the test."""
    monkeypatch.setattr(Codec, "encode", Codec.encode)
    monkeypatch.setattr(Codec, "decode", Codec.decode)


MESSAGES: list[tuple[Codec[Any], type]] = [
    (objects.codec, objects.Workload),
    (decisions.codec, decisions.Batch),
    (outcomes.codec, outcomes.DecisionOutcome),
]


@pytest.mark.parametrize(("family", "type_"), MESSAGES)
def test_the_second_version_is_another_one_and_means_the_same(family: Codec[Any], type_: type) -> None:
    message = sample(type_)
    data = family.encode(message)
    second = release.rewritten(data, 1, 2)
    assert second != data
    with pytest.raises(UnknownVersion):
        family.decode(second)
    assert family.decode(release.rewritten(second, 2, 1)) == message
    assert release.rewritten(data, 2, 1) == data


@pytest.mark.usefixtures("codec")
@pytest.mark.parametrize("which", release.RELEASES)
@pytest.mark.parametrize(("family", "type_"), MESSAGES)
def test_both_releases_read_both_versions(family: Codec[Any], type_: type, which: str) -> None:
    message = sample(type_)
    first = family.encode(message)
    second = release.rewritten(first, 1, 2)
    release.install(which)
    assert family.encode(message) == (second if which == "writes" else first)
    assert family.decode(first) == family.decode(second) == message


@pytest.mark.usefixtures("codec")
def test_what_has_no_second_version_stays_as_it_is() -> None:
    message = sample(objects.ClusterQueue)
    before = objects.codec.encode(message)
    release.install("writes")
    assert objects.codec.encode(message) == before


def test_second_versions_are_told_from_first_ones() -> None:
    first = {type_: family.encode(sample(type_)) for family, type_ in MESSAGES}
    assert release.second_versions(list(first.values())) == set()
    second = [release.rewritten(first[type_], 1, 2) for type_ in (objects.Workload, outcomes.DecisionOutcome)]
    assert release.second_versions([*second, first[decisions.Batch]]) == {"objects.Workload", "outcomes.Decision"}
