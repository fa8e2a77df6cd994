import pytest

from shared.jobs.registry import INTEGRATED, KNOWN, OwnerKind, integrated, job_kind, owner_kind


def test_every_integrated_kind_is_known() -> None:
    for kind in INTEGRATED:
        assert KNOWN[owner_kind(kind)] == kind.plural
        assert job_kind(*owner_kind(kind)) is kind


def test_frameworks_are_chosen_by_name() -> None:
    assert list(integrated(["batch/job"])) == [OwnerKind("batch/v1", "Job")]
    with pytest.raises(KeyError):
        integrated(["batch/unknown"])


def test_the_version_matters() -> None:
    assert job_kind("batch/v2", "Job") is None
