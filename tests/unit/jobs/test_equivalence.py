from typing import Any

import pytest

from shared.jobs.equivalence import same_pod_sets, without_duplicate_env
from shared.jobs.manifest import JsonObject
from shared.jobs.protocol import JobPodSet


def pod_set(count: int = 1, min_count: int | None = None, name: str = "main", **spec: Any) -> JobPodSet:
    template: JsonObject = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}], **spec}}
    return JobPodSet(name=name, count=count, min_count=min_count, template=template)


def container(**fields: Any) -> list[JsonObject]:
    return [{"name": "c", "resources": {"requests": {"cpu": "1"}}, **fields}]


@pytest.mark.parametrize(
    "other",
    [
        pod_set(name="other"),
        pod_set(nodeSelector={"a": "b"}),
        pod_set(volumes=[{"name": "v"}]),
        pod_set(priorityClassName="high"),
        pod_set(containers=container(resources={"requests": {"cpu": "1000m"}, "limits": {}})),
        pod_set(containers=container(env=[], ports=None)),
        pod_set(initContainers=[], tolerations=[]),
    ],
)
def test_what_is_not_compared(other: JobPodSet) -> None:
    assert same_pod_sets((pod_set(),), (other,))


@pytest.mark.parametrize(
    "other",
    [
        pod_set(count=2),
        pod_set(min_count=1),
        pod_set(tolerations=[{"key": "a"}]),
        pod_set(containers=container(image="x")),
        pod_set(containers=container(resources={"requests": {"cpu": "2"}})),
        pod_set(containers=container(resources={"requests": {"cpu": "1"}, "limits": {"cpu": "1"}})),
        pod_set(initContainers=container()),
    ],
)
def test_what_is_compared(other: JobPodSet) -> None:
    assert not same_pod_sets((pod_set(),), (other,))


def test_the_number_of_pod_sets_matters() -> None:
    assert not same_pod_sets((pod_set(),), (pod_set(), pod_set()))


def test_tolerations_of_an_admitted_workload_do_not_matter() -> None:
    other = pod_set(tolerations=[{"key": "a"}])
    assert same_pod_sets((pod_set(),), (other,), ignore_tolerations=True)


def test_the_last_value_of_a_variable_wins_at_the_place_of_the_first() -> None:
    env = [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}, {"name": "A", "value": "3"}]
    found: Any = without_duplicate_env(pod_set(containers=container(env=env))).template
    assert found["spec"]["containers"][0]["env"] == [{"name": "A", "value": "3"}, {"name": "B", "value": "2"}]


def test_without_duplicates_nothing_is_copied() -> None:
    plain = pod_set(containers=container(env=[{"name": "A"}]))
    assert without_duplicate_env(plain) is plain
