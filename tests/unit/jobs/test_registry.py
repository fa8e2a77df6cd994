import pytest

from shared.config.configuration_file import USED_FRAMEWORKS
from shared.jobs.registry import (
    BUILT_IN,
    INTEGRATED,
    KNOWN,
    OwnerKind,
    external,
    integrated,
    job_kind,
    owner_kind,
    review_path,
    token_of,
)


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


def test_the_configuration_knows_what_is_integrated() -> None:
    assert {kind.framework for kind in BUILT_IN} == USED_FRAMEWORKS


def test_each_kind_has_a_token_and_paths_of_its_own() -> None:
    tokens = [token_of(kind.group, kind.kind) for kind in INTEGRATED]
    paths = [review_path(kind, "mutate") for kind in INTEGRATED]
    assert len(set(tokens)) == len(set(paths)) == len(INTEGRATED)
    assert token_of("batch", "Job") == "job"
    assert token_of("", "Pod") == "pod"
    assert token_of("volcano.sh", "Job") == "job.volcano.sh"
    assert "/mutate--v1-pod" in paths
    assert "/mutate-jobset-x-k8s-io-v1alpha2-jobset" in paths


def test_external_kinds() -> None:
    assert external(["Foo.v1.example.com", "Bar.v2beta1.a.b.c"]) == {
        OwnerKind("example.com/v1", "Foo"),
        OwnerKind("a.b.c/v2beta1", "Bar"),
    }
