"""The Stage objects as KWOK will read them. What they do to pods is shown on a real control plane."""

from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from devcluster.stages import render_stages


def stages(default_pod_seconds: float = 3.0) -> Mapping[str, Mapping[str, Any]]:
    return {stage["metadata"]["name"]: stage for stage in yaml.safe_load_all(render_stages(default_pod_seconds))}


def selector(stage: Mapping[str, Any]) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Operator and values by key."""
    expressions = stage["spec"]["selector"]["matchExpressions"]
    return {entry["key"]: (entry["operator"], tuple(entry.get("values", ()))) for entry in expressions}


def test_all_stages_are_there_for_nodes_and_pods() -> None:
    kinds = {name: stage["spec"]["resourceRef"]["kind"] for name, stage in stages().items()}
    assert kinds == {
        "node-initialize": "Node",
        "node-heartbeat": "Node",
        "pod-ready": "Pod",
        "pod-complete": "Pod",
        "pod-fail": "Pod",
        "pod-terminate": "Pod",
        "pod-delete": "Pod",
    }


@pytest.mark.parametrize(("seconds", "milliseconds"), [(0, 0), (0.25, 250), (3.0, 3000), (90, 90000)])
def test_default_duration_is_filled_in_wherever_pods_end(seconds: float, milliseconds: int) -> None:
    for name in ("pod-complete", "pod-fail"):
        assert stages(seconds)[name]["spec"]["delay"]["durationMilliseconds"] == milliseconds
    assert "${" not in render_stages(seconds)


def test_negative_default_duration_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot be negative"):
        render_stages(-0.5)


def test_a_running_pod_either_completes_or_fails() -> None:
    key = '.metadata.annotations["sluice.dev/fail"]'
    complete, fail = selector(stages()["pod-complete"]), selector(stages()["pod-fail"])
    assert complete[key] == ("NotIn", ("true",))
    assert fail[key] == ("In", ("true",))


def test_values_are_strings_as_kwok_compares_them() -> None:
    values = [value for stage in stages().values() for _, given in selector(stage).values() for value in given]
    assert values
    assert all(isinstance(value, str) for value in values)


@pytest.mark.parametrize("name", ["pod-ready", "pod-complete", "pod-fail"])
def test_a_deleted_pod_does_nothing_but_end(name: str) -> None:
    assert selector(stages()[name])[".metadata.deletionTimestamp"] == ("DoesNotExist", ())


def test_a_pod_with_finalizers_is_terminated_but_not_removed() -> None:
    assert ".metadata.finalizers" not in selector(stages()["pod-terminate"])
    assert selector(stages()["pod-delete"])[".metadata.finalizers"] == ("DoesNotExist", ())
