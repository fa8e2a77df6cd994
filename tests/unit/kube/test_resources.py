"""URL paths, and errors made of bodies that are no Status."""

from shared.kube import errors, resources


def test_paths_of_scopes_groups_and_subresources() -> None:
    assert resources.NAMESPACES.path() == "/api/v1/namespaces"
    assert resources.NAMESPACES.path("", "team") == "/api/v1/namespaces/team"
    assert resources.WORKLOADS.path() == "/apis/kueue.x-k8s.io/v1beta2/workloads"
    assert (
        resources.WORKLOADS.path("team", "a", "status")
        == "/apis/kueue.x-k8s.io/v1beta2/namespaces/team/workloads/a/status"
    )
    assert resources.CLUSTER_QUEUES.path("ignored", "q") == "/apis/kueue.x-k8s.io/v1beta2/clusterqueues/q"


def test_a_name_cannot_leave_its_place_in_the_path() -> None:
    assert resources.JOBS.path("team", "../x") == "/apis/batch/v1/namespaces/team/jobs/..%2Fx"


def test_api_versions() -> None:
    assert resources.NAMESPACES.api_version == "v1"
    assert resources.JOBS.api_version == "batch/v1"


def test_a_body_that_is_no_status_is_quoted_shortly() -> None:
    error = errors.error_of(502, b"<html>" + b"x" * 10_000)
    assert isinstance(error, errors.ServerTimeout)
    assert error.message.startswith("<html>xxx")
    assert len(error.message) <= 500


def test_an_empty_body_still_makes_a_message() -> None:
    assert str(errors.error_of(404, b"")) == "404 HTTP404: no message"
