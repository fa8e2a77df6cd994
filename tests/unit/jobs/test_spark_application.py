from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.config.feature_gates import DEFAULT_GATES
from shared.jobs.manifest import JsonObject
from shared.jobs.merge_patch import apply
from shared.jobs.podset_info import MergeConflict, PermanentError, PodSetInfo
from shared.jobs.protocol import Circumstances, Finished
from shared.jobs.spark_application import SparkApplication
from tests.unit.jobs.round_trip import INFO_LISTS, assert_round_trip, shape, stopped

KIND = SparkApplication()
AROUND = Circumstances(gates=DEFAULT_GATES, manage_all=True)


def spark(
    driver: JsonObject | None = None,
    executor: JsonObject | None = None,
    *,
    status: JsonObject | None = None,
    **spec: Any,
) -> JsonObject:
    roles = {"driver": driver or {}, "executor": executor or {}}
    return {
        "metadata": {"name": "s"},
        "spec": {"suspend": True, "mode": "cluster", **roles, **spec},
        "status": status or {},
    }


def test_a_driver_and_executors() -> None:
    assert shape(KIND, spark()) == [("driver", 1), ("executor", 0)]
    assert shape(KIND, spark(executor={"instances": 3})) == [("driver", 1), ("executor", 3)]
    driver, executor = KIND.pod_sets(spark())
    assert driver.template == {"spec": {"containers": [{"name": "spark-kubernetes-driver", "resources": {}}]}}
    assert executor.template == {"spec": {"containers": [{"name": "spark-kubernetes-executor", "resources": {}}]}}


def container(driver: JsonObject, **spec: Any) -> dict[str, Any]:
    template: Any = KIND.pod_sets(spark(driver, **spec))[0].template
    found: dict[str, Any] = template["spec"]["containers"][0]
    return found


def test_resources() -> None:
    driver: JsonObject = {
        "cores": 4,
        "coreRequest": "500m",
        "coreLimit": "2",
        "memory": "1g",
        "memoryLimit": "2048m",
        "memoryOverhead": "1g",
        "gpu": {"name": "nvidia.com/gpu", "quantity": 2},
    }
    assert container(driver)["resources"] == {
        "requests": {"cpu": "500m", "memory": "1Gi"},
        "limits": {"cpu": "2", "memory": "2048Mi", "nvidia.com/gpu": "2"},
    }
    assert container({"gpu": {"name": "g", "quantity": 0}})["resources"] == {}
    assert container({"cores": 4, "memoryOverhead": "1g"})["resources"] == {}


@pytest.mark.parametrize(
    ("java", "quantity"),
    [
        ("1k", "1Ki"),
        ("2kb", "2Ki"),
        ("3m", "3Mi"),
        ("4mb", "4Mi"),
        ("5g", "5Gi"),
        ("6gb", "6Gi"),
        ("7t", "7Ti"),
        ("8tb", "8Ti"),
        ("9p", "9Pi"),
        ("10pb", "10Pi"),
        ("1024", "1024"),
        ("1Gi", "1Gi"),
    ],
)
def test_amounts_of_memory(java: str, quantity: str) -> None:
    assert container({"memory": java})["resources"] == {"requests": {"memory": quantity}}


@pytest.mark.parametrize("java", ["1G", "1GB", "1gB", "512M", "g", "much", "1x"])
def test_what_is_no_amount_of_memory(java: str) -> None:
    with pytest.raises(PermanentError, match="no amount of memory"):
        KIND.pod_sets(spark({"memory": java}))


def test_what_goes_into_the_pods() -> None:
    placed: JsonObject = {
        "priorityClassName": "p",
        "nodeSelector": {"a": "b"},
        "affinity": {"nodeAffinity": {}},
        "tolerations": [{"key": "t"}],
        "initContainers": [{"name": "i"}],
    }
    mounts = [{"name": "data", "mountPath": "/d"}, {"name": "spark-local-dir-1", "mountPath": "/l"}]
    driver = {**placed, "sidecars": [{"name": "s"}], "volumeMounts": mounts, "serviceAccount": "x"}
    volumes = [{"name": "data"}, {"name": "spark-local-dir-1"}, {"name": "other"}]
    driver_set, executor_set = KIND.pod_sets(spark(driver, volumes=volumes, nodeSelector={"all": "1"}))
    spec: Any = dict(driver_set.template["spec"])  # type: ignore[call-overload]
    main, sidecar = spec.pop("containers")
    assert main["volumeMounts"] == mounts[:1]
    assert sidecar == {"name": "s"}
    assert spec == {**placed, "volumes": volumes[:1]}
    other: Any = executor_set.template["spec"]
    assert other.keys() == {"containers"}


def test_labels_of_a_role_come_over_those_of_its_template() -> None:
    below = {"metadata": {"labels": {"a": "1", "b": "1"}, "name": "n"}, "spec": {"containers": [{"name": "x"}]}}
    driver = {
        "labels": {"b": "2"},
        "annotations": {"kueue.x-k8s.io/podset-required-topology": "rack"},
        "template": below,
    }
    driver_set, executor_set = KIND.pod_sets(spark(driver))
    assert driver_set.template["metadata"] == {
        "labels": {"a": "1", "b": "2"},
        "annotations": {"kueue.x-k8s.io/podset-required-topology": "rack"},
    }
    assert driver_set.topology_request == {"required": "rack"}
    assert executor_set.topology_request is None


FULL = PodSetInfo(
    name="driver",
    labels={"l": "1"},
    annotations={"a": "1"},
    node_selector={"n": "1"},
    scheduling_gates=("kueue.x-k8s.io/topology",),
)
BARE = PodSetInfo(name="executor")


def test_start() -> None:
    patch: Any = KIND.start(spark(executor={"instances": 2}), (FULL, BARE))
    assert patch == {
        "spec": {
            "suspend": False,
            "driver": {
                "labels": {"l": "1"},
                "annotations": {"a": "1"},
                "nodeSelector": {"n": "1"},
                "template": {
                    "spec": {
                        "containers": [{"name": "spark-kubernetes-driver"}],
                        "schedulingGates": [{"name": "kueue.x-k8s.io/topology"}],
                    }
                },
            },
        }
    }


def test_a_node_selector_for_all_moves_into_the_roles() -> None:
    job = spark({"nodeSelector": {"own": "1"}}, nodeSelector={"all": "1"})
    patch: Any = KIND.start(job, (FULL, BARE))
    assert patch["spec"]["nodeSelector"] is None
    running: Any = apply(job, patch)
    assert running["spec"]["driver"]["nodeSelector"] == {"all": "1", "n": "1"}
    assert running["spec"]["executor"]["nodeSelector"] == {"all": "1"}
    # It does not come back.
    held: Any = stopped(KIND, running, KIND.pod_sets(job))
    assert "nodeSelector" not in held["spec"]
    assert held["spec"]["driver"]["nodeSelector"] == {"own": "1"}
    assert "nodeSelector" not in held["spec"]["executor"]


def test_what_can_never_start() -> None:
    with pytest.raises(PermanentError, match="has 2 pod sets, the workload 1"):
        KIND.start(spark(), (FULL,))
    with pytest.raises(MergeConflict, match="labels"):
        KIND.start(spark({"labels": {"l": "2"}}), (FULL, BARE))
    with pytest.raises(MergeConflict, match="nodeSelector"):
        KIND.start(spark(nodeSelector={"n": "2"}), (FULL, BARE))


def test_a_stop_restores_the_number_of_executors() -> None:
    job = spark(executor={"instances": 5})
    running = apply(job, KIND.start(job, (FULL, BARE)))
    fewer = apply(running, {"spec": {"executor": {"instances": 2}}})
    assert stopped(KIND, fewer, KIND.pod_sets(job)) == job


_MAPS = st.dictionaries(st.sampled_from(["a", "b"]), st.sampled_from(["1", "2"]), max_size=2)
_TEMPLATES = st.fixed_dictionaries(
    {
        "spec": st.fixed_dictionaries(
            {"containers": st.just([{"name": "own"}])}, optional={"schedulingGates": st.just([{"name": "g"}])}
        )
    },
    optional={"metadata": st.fixed_dictionaries({}, optional={"labels": st.just({"a": "3"})})},
)
_ROLES = st.fixed_dictionaries(
    {},
    optional={
        "labels": st.dictionaries(st.sampled_from(["a", "b"]), st.just("1"), min_size=1, max_size=2),
        "annotations": _MAPS,
        "nodeSelector": _MAPS,
        "tolerations": st.lists(st.just({"key": "t"}), max_size=1),
        "template": _TEMPLATES,
        "coreRequest": st.just("1"),
    },
)


@given(_ROLES, _ROLES, INFO_LISTS)
def test_a_stop_leaves_nothing_of_a_start(driver: JsonObject, executor: JsonObject, infos: list[PodSetInfo]) -> None:
    assert_round_trip(KIND, spark(driver, executor), infos)


def state(state: str, **executors: str) -> JsonObject:
    return {"applicationState": {"state": state, "errorMessage": "m"}, "executorState": executors}


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ("", None),
        ("RUNNING", None),
        ("SUCCEEDING", None),
        ("COMPLETED", Finished(True, "m")),
        ("FAILED", Finished(False, "m")),
        ("SUBMISSION_FAILED", Finished(False, "m")),
    ],
)
def test_finished(found: str, expected: Finished | None) -> None:
    assert KIND.finished(spark(status=state(found))) == expected


@pytest.mark.parametrize(
    ("instances", "status", "active", "ready"),
    [
        (0, {}, False, False),
        (0, state("RUNNING"), True, True),
        (2, state("RUNNING", a="RUNNING"), True, False),
        (2, state("RUNNING", a="RUNNING", b="PENDING"), True, False),
        (2, state("RUNNING", a="RUNNING", b="COMPLETED"), True, True),
        (2, state("SUBMITTED", a="RUNNING", b="RUNNING"), False, False),
    ],
)
def test_status(instances: int, status: JsonObject, active: bool, ready: bool) -> None:
    job = spark(executor={"instances": instances}, status=status)
    assert KIND.active(job) is active
    assert KIND.pods_ready(job) is ready


@pytest.mark.parametrize(("found", "held"), [("", None), ("SUSPENDED", True), ("RUNNING", False), ("NEW", None)])
def test_held(found: str, held: bool | None) -> None:
    assert KIND.held(spark(status=state(found))) is held


def test_suspend() -> None:
    assert KIND.suspended(spark())
    assert KIND.suspend(spark()) == {}
    assert KIND.suspend(spark(suspend=False)) == {"spec": {"suspend": True}}
    assert KIND.stop(spark(), ()) is None


def errors(job: JsonObject, around: Circumstances = AROUND) -> list[str]:
    return [f"{e.path} {e.kind}" for e in KIND.errors(job, None, around)]


def test_rules() -> None:
    assert errors(spark()) == []
    assert errors(spark(mode="client")) == ["spec.mode Invalid value"]
    assert errors(spark(dynamicAllocation={"enabled": True})) == ["spec.dynamicAllocation.enabled Invalid value"]
    assert errors(spark(dynamicAllocation={"enabled": False})) == []
    assert errors(spark(mode="client"), Circumstances(gates=DEFAULT_GATES)) == []


def test_topology_annotations_are_checked() -> None:
    twice = {f"kueue.x-k8s.io/podset-{which}-topology": "rack" for which in ("required", "preferred")}
    assert errors(spark({"annotations": twice}, {"annotations": twice})) == [
        "spec.driver.annotations Invalid value",
        "spec.executor.annotations Invalid value",
    ]
