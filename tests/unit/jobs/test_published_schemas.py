"""What a start and a stop write, held against the schemas that the kinds' projects publish: the API server drops a field that they do not know, silently.

Needs `../shared`, which a lone clone has not.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from shared.api.pods import Toleration
from shared.config.feature_gates import DEFAULT_GATES
from shared.jobs.manifest import JsonObject
from shared.jobs.merge_patch import apply
from shared.jobs.places import put
from shared.jobs.podset_info import PodSetInfo
from shared.jobs.protocol import JobKind
from shared.jobs.registry import PARENTS, job_kind
from tests.unit.jobs.round_trip import started, template
from tests.unit.jobs.test_samples import read, samples
from tests.unit.jobs.test_train_job import train_job

_DEFINITIONS = Path(__file__).parents[4] / "shared" / "crds"
_BUILT_IN = ("sample-cronjob", "sample-job", "sample-job-partial-admission")
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""Definitions are large: the parser in C, where there is one."""
ELASTIC = {"kueue.x-k8s.io/elastic-job": "true"}
_LACKING = {"RayService": {".managedBy"}}
"""KubeRay 1.5 has no such field there yet: until it has, no other cluster's controller can be named for a RayService."""
INFO = PodSetInfo(
    name="x",
    labels={"l": "1"},
    annotations={"a": "1"},
    node_selector={"n": "1"},
    tolerations=(Toleration(key="t", operator="Equal", value="v", effect="NoExecute", toleration_seconds=3),),
    scheduling_gates=("kueue.x-k8s.io/topology",),
)
WRAPPED: JsonObject = {
    "apiVersion": "workload.codeflare.dev/v1beta2",
    "kind": "AppWrapper",
    "metadata": {"name": "aw"},
    "spec": {
        "components": [{"template": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, **template()}}]
    },
}


def schema(api_version: str, plural: str) -> Any:
    """The published schema of a kind."""
    group, _, version = api_version.partition("/")
    definition = yaml.load((_DEFINITIONS / f"{group}_{plural}.yaml").read_text(), _Loader)
    (found,) = [one for one in definition["spec"]["versions"] if one["name"] == version]
    return found["schema"]["openAPIV3Schema"]


def dropped(value: Any, of: Any, path: str = "") -> Iterator[str]:
    """Paths of what the API server would drop."""
    if of.get("x-kubernetes-preserve-unknown-fields"):
        return
    if isinstance(value, dict):
        for key, inner in value.items():
            known = of.get("properties", {}).get(key, of.get("additionalProperties"))
            if known is None:
                yield f"{path}.{key}"
            elif isinstance(known, dict):
                yield from dropped(inner, known, f"{path}.{key}")
    elif isinstance(value, list):
        for i, item in enumerate(value):
            yield from dropped(item, of.get("items", {}), f"{path}[{i}]")


def manifests() -> list[JsonObject]:
    """A job of each kind that has a definition of its own."""
    if not _DEFINITIONS.exists():
        return []
    found = [read("jobs", name) for name in samples("jobs") if name not in _BUILT_IN]
    service = apply(read("jobs", "ray-job-sample"), {"kind": "RayService"})
    spec: Any = service["spec"]
    service["spec"] = {"rayClusterConfig": spec["rayClusterSpec"]}
    train: JsonObject = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", **train_job(patches=[])}
    return [*found, service, train, WRAPPED]


@pytest.mark.parametrize("job", manifests(), ids=lambda job: job["kind"])
def test_nothing_that_is_written_is_dropped(job: JsonObject) -> None:
    kind: JobKind | None = job_kind(str(job["apiVersion"]), str(job["kind"]))
    assert kind is not None
    known = schema(str(job["apiVersion"]), kind.plural)
    lacking = set(dropped(job["spec"], known["properties"]["spec"])) | _LACKING.get(kind.kind, set())
    job = put(job, ("metadata", "annotations"), ELASTIC) if kind.may_be_elastic else job
    if kind.managed_by is not None:
        job = put(job, kind.managed_by.path, "kueue.x-k8s.io/multikueue")
    held = kind.prepared(apply(job, kind.suspend(job)), DEFAULT_GATES)
    running = started(kind, held, [INFO])
    step = kind.stop(running, ())
    assert step is not None
    for written in (held, running, apply(running, step.patch)):
        assert set(dropped(written["spec"], known["properties"]["spec"])) == lacking


def test_nor_what_marks_the_pods_of_a_leader_worker_set() -> None:
    if not _DEFINITIONS.exists():
        # A lone clone has no definitions; the marks themselves are tested elsewhere.
        return
    parent = read("serving-workloads", "sample-leaderworkerset")
    (kind,) = [one for one in PARENTS if one.kind == "LeaderWorkerSet"]
    known = schema(str(parent["apiVersion"]), kind.plural)["properties"]["spec"]
    assert not list(dropped(kind.marked(parent, DEFAULT_GATES)["spec"], known))


def test_what_is_dropped_is_noticed() -> None:
    known = {
        "properties": {"a": {"items": {"properties": {"b": {}}}}, "m": {"additionalProperties": {"type": "string"}}}
    }
    assert list(dropped({"a": [{"b": 1}, {"c": 1}], "m": {"x": "1"}, "d": 1}, known)) == [".a[1].c", ".d"]
    assert not list(dropped({"x": 1}, {"x-kubernetes-preserve-unknown-fields": True}))
