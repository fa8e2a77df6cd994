"""What the engine is given of the objects of a file."""

from __future__ import annotations

import json

import pytest
import yaml

from cli.cluster_dump import read_dump
from shared.events.objects import ClusterQueue, Namespace, ResourceFlavor, Workload

JOB = """
apiVersion: batch/v1
kind: Job
metadata:
  name: j
  uid: job-uid
  labels: {kueue.x-k8s.io/queue-name: lq}
spec:
  parallelism: 3
  completions: 3
  suspend: true
  template:
    spec:
      restartPolicy: Never
      containers: [{name: c, image: i, resources: {requests: {cpu: 500m}}}]
"""


def workloads(text: str) -> list[Workload]:
    return [one for one in read_dump(text).objects if isinstance(one, Workload)]


def test_documents_lists_and_other_kinds() -> None:
    text = """
kind: Secret
metadata: {name: s}
---
- {kind: ResourceFlavor, metadata: {name: a}}
---
apiVersion: v1
kind: List
items:
- {apiVersion: kueue.x-k8s.io/v1beta2, kind: ResourceFlavor, metadata: {name: b}}
---
"""
    assert [one.name for one in read_dump(text).objects] == ["a", "b"]


def test_json_is_read_too() -> None:
    text = json.dumps({"kind": "List", "items": [{"kind": "ResourceFlavor", "metadata": {"name": "a"}}]})
    assert [one.name for one in read_dump(text).objects] == ["a"]


def test_kinds_of_other_groups_and_old_versions_are_not_taken_for_ours() -> None:
    text = """
{apiVersion: batch.volcano.sh/v1alpha1, kind: Job, metadata: {name: j}}
---
{apiVersion: kueue.x-k8s.io/v1beta1, kind: ResourceFlavor, metadata: {name: old}}
"""
    dump = read_dump(text)
    assert dump.objects == []
    (problem,) = dump.problems
    assert "ResourceFlavor old" in problem
    assert "v1beta2" in problem


def test_namespaces_that_are_only_named_exist() -> None:
    text = JOB + "---\n{kind: Namespace, apiVersion: v1, metadata: {name: known, labels: {a: b}}}\n"
    found = {one.name: one.labels for one in read_dump(text).objects if isinstance(one, Namespace)}
    assert found == {"known": {"a": "b"}, "default": {}}


def test_a_job_without_a_workload_gets_the_one_it_would_get() -> None:
    (found,) = workloads(JOB)
    assert (found.namespace, found.queue_name, found.job_uid) == ("default", "lq", "job-uid")
    assert [owner.uid for owner in found.owners] == ["job-uid"]
    assert [(one.name, one.count) for one in found.pod_sets] == [("main", 3)]


def test_a_job_that_has_its_workload_gets_no_other() -> None:
    own = """---
kind: Workload
metadata:
  name: mine
  namespace: default
  ownerReferences: [{apiVersion: batch/v1, kind: Job, name: j, uid: job-uid, controller: true}]
spec:
  queueName: lq
  podSets: [{name: main, count: 1, template: {spec: {containers: [{name: c, image: i}]}}}]
"""
    assert [one.name for one in workloads(JOB + own)] == ["mine"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("  labels: {kueue.x-k8s.io/queue-name: lq}\n", ""),
        ("spec:\n  parallelism", "status: {conditions: [{type: Complete, status: 'True'}]}\nspec:\n  parallelism"),
        (
            "  uid: job-uid\n",
            "  uid: job-uid\n  ownerReferences: [{apiVersion: x/v1, kind: X, name: x, uid: u, controller: true}]\n",
        ),
    ],
)
def test_jobs_that_are_not_to_be_queued(old: str, new: str) -> None:
    assert JOB.count(old) == 1
    assert workloads(JOB.replace(old, new)) == []


def test_the_priority_of_a_job_is_that_of_its_class() -> None:
    labelled = JOB.replace("queue-name: lq", "queue-name: lq, kueue.x-k8s.io/priority-class: high")
    class_ = "---\n{kind: WorkloadPriorityClass, metadata: {name: high}, value: 70}\n"
    assert [one.priority for one in workloads(labelled + class_)] == [70]
    dump = read_dump(labelled)
    assert not any(isinstance(one, Workload) for one in dump.objects)
    (problem,) = dump.problems
    assert "Job default/j" in problem
    assert "high" in problem


def test_names_are_generated_apart() -> None:
    nameless = JOB.replace("  name: j\n  uid: job-uid\n", "  generateName: j-\n")
    found = workloads(nameless + "---" + nameless)
    assert len({one.name for one in found}) == 2
    assert all(one.name.startswith("job-j-") for one in found)


def test_a_later_object_replaces_an_earlier_one_whatever_their_versions() -> None:
    queue = "kind: ClusterQueue\nmetadata: {{name: cq, resourceVersion: '{}'}}\nspec: {{stopPolicy: {}}}\n"
    dump = read_dump(queue.format(900, "Hold") + "---\n" + queue.format(1, "None"))
    assert [one.stop_policy for one in dump.objects if isinstance(one, ClusterQueue)] == ["None"]
    assert dump.problems == []


def test_what_cannot_be_used_is_told_and_the_rest_is_read() -> None:
    text = """
{kind: ClusterQueue, metadata: {name: bad}, spec: {stopPolicy: [1]}}
---
{kind: ResourceFlavor, metadata: {name: good}}
"""
    dump = read_dump(text)
    assert [type(one) for one in dump.objects] == [ResourceFlavor]
    (problem,) = dump.problems
    assert problem.startswith("ClusterQueue bad: ")


def test_text_that_is_no_yaml() -> None:
    with pytest.raises(yaml.YAMLError):
        read_dump("a: [")
