import pytest

from shared.config.configuration_file import USED_FRAMEWORKS
from shared.config.configuration_rules import FRAMEWORKS
from shared.jobs.registry import (
    BUILT_IN,
    INTEGRATED,
    KNOWN,
    PARENTS,
    OwnerKind,
    enabled_owners,
    external,
    integrated,
    job_kind,
    owner_kind,
    queueing_parent,
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
    assert {kind.framework for kind in BUILT_IN} | {kind.framework for kind in PARENTS} == USED_FRAMEWORKS


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


def test_every_parent_of_pods_is_known() -> None:
    for kind in PARENTS:
        assert KNOWN[owner_kind(kind)] == kind.plural
        assert queueing_parent(*owner_kind(kind)) is kind
        assert job_kind(*owner_kind(kind)) is None
    assert queueing_parent("batch/v1", "Job") is None


def test_frameworks_have_the_names_of_the_configuration() -> None:
    frameworks = [*(kind.framework for kind in INTEGRATED), *(kind.framework for kind in PARENTS)]
    assert len(set(frameworks)) == len(frameworks)
    assert set(FRAMEWORKS) - {"pod"} <= set(frameworks) <= set(FRAMEWORKS)


def test_who_may_manage_what_it_owns() -> None:
    assert enabled_owners(["batch/job", "statefulset", "pods"]) == {
        OwnerKind("batch/v1", "Job"),
        OwnerKind("apps/v1", "StatefulSet"),
    }


@pytest.mark.parametrize(
    "kind", ["Job", "JobSet", "TrainJob", "RayJob", "RayCluster", "RayService", "AppWrapper", "TFJob", "MPIJob"]
)
def test_kinds_that_run_on_other_clusters_say_who_manages_them(kind: str) -> None:
    (found,) = [one for one in INTEGRATED if one.kind == kind]
    assert found.managed_by is not None
    assert found.managed_by.path[-1] == "managedBy"


def test_what_kinds_may_do() -> None:
    """The columns "Prebuilt" and "Elastic" of the integration matrix, and whose changes are held to the rules of a creation."""
    of_jobs = [kind for kind in INTEGRATED if kind.kind != "Pod"]
    assert {kind.kind for kind in of_jobs if not kind.prebuilt} == {"JAXJob", "SparkApplication"}
    assert {kind.kind for kind in of_jobs if kind.may_be_elastic} == {"Job", "RayCluster", "RayJob", "RayService"}
    assert {kind.kind for kind in of_jobs if not kind.rechecked} == {
        "TFJob",
        "PyTorchJob",
        "XGBoostJob",
        "PaddleJob",
        "JAXJob",
        "AppWrapper",
    }
    assert {kind.kind for kind in of_jobs if kind.checked_if_queued} == {
        "RayCluster",
        "RayJob",
        "RayService",
        "SparkApplication",
    }
