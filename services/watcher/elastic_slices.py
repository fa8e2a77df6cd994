"""The Workloads of an elastic job as slices, and the pods of it that may run (job specification 10.7, 16.2).

What is chosen is `shared.jobs.slices`; here it is written. Pods are read only for elastic jobs, and only when their job or its Workloads change: the
job's controller tells in its status that it has made some.
"""

from collections.abc import Sequence

import msgspec

from services.watcher.job_control import Job
from services.watcher.lanes import TryAgain
from services.watcher.patches import Refusal
from services.watcher.store import Stored
from services.watcher.workload_state import is_admitted, is_evicted, is_finished, is_reserved, workload_of
from shared.api import names
from shared.api.workload import Workload
from shared.jobs.elastic import is_elastic
from shared.jobs.manifest import JsonObject, items
from shared.jobs.pod_view import Pod, is_terminated
from shared.jobs.protocol import Gates, JobPodSet
from shared.jobs.slices import PodOfSlice, Slice, to_ungate
from shared.kube.client import KubeClient
from shared.kube.errors import Conflict, Gone, NotFound
from shared.kube.resources import PODS


def elastic(job: Job, gates: Gates) -> bool:
    """The job may change its number of pods while it runs."""
    return job.kind.may_be_elastic and is_elastic(job.manifest, gates)


def counts_of(pod_sets: Sequence[JobPodSet]) -> dict[str, int]:
    """Pods by pod set."""
    return {pod_set.name: pod_set.count for pod_set in pod_sets}


def slice_of(stored: Stored) -> Slice:
    """A workload as the choice looks at it."""
    workload = workload_of(stored)
    return Slice(
        key=stored.key,
        counts={pod_set.name: pod_set.count for pod_set in workload.spec.pod_sets},
        reserved=is_reserved(workload),
        evicted=is_evicted(workload),
        replaces=workload.metadata.annotations.get(names.WORKLOAD_SLICE_REPLACEMENT_FOR, ""),
    )


def slice_annotations(name: str, unfinished: Sequence[Stored]) -> dict[str, str]:
    """Of a new slice of that name. Raises TryAgain while more than one other is unfinished."""
    annotations = {names.ELASTIC_JOB: "true", names.WORKLOAD_SLICE_NAME: name}
    if len(unfinished) > 1:
        raise TryAgain(f"workload {name} would be the third slice of its job")
    for older in unfinished:
        first = older.object.metadata.annotations.get(names.WORKLOAD_SLICE_NAME, older.name)
        annotations |= {names.WORKLOAD_SLICE_NAME: first, names.WORKLOAD_SLICE_REPLACEMENT_FOR: older.key}
    return annotations


def resized(current: Stored, counts: dict[str, int]) -> JsonObject | Refusal:
    """The patch that gives a slice these counts."""
    if not current.raw:
        return Refusal("it has finished meanwhile")
    spec = msgspec.json.decode(current.raw, type=dict[str, object])
    pod_sets = [
        {**pod_set, "count": counts.get(str(pod_set.get("name")), pod_set.get("count"))}
        for pod_set in items(spec, "spec", "podSets")
    ]
    return {} if pod_sets == items(spec, "spec", "podSets") else {"spec": {"podSets": pod_sets}}


class _Page(msgspec.Struct):
    items: list[Pod] | None = None


_pages = msgspec.json.Decoder(_Page)


class ElasticPods:
    """Lets pods of elastic jobs run, as many as were granted."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client

    async def ungate(self, namespace: str, owned: Sequence[Stored]) -> None:
        """`owned`: the workloads of the job, oldest first. Raises TryAgain when a pod changed meanwhile."""
        newest = next((s for s in reversed(owned) if _holds(workload_of(s))), None)
        if newest is None or not is_admitted(workload_of(newest)):
            return
        workload = workload_of(newest)
        first = workload.metadata.annotations.get(names.WORKLOAD_SLICE_NAME, newest.name)
        found = await self._list(namespace, [pod_set.name for pod_set in workload.spec.pod_sets])
        pods = {
            pod.metadata.name: pod
            for pod in found
            if pod.metadata.annotations.get(names.WORKLOAD_SLICE_NAME) == first and not is_terminated(pod)
        }
        counts = {pod_set.name: pod_set.count for pod_set in workload.spec.pod_sets}
        seen = [
            PodOfSlice(name, pod.metadata.labels.get(names.PODSET_LABEL, ""), _gated(pod)) for name, pod in pods.items()
        ]
        for name in to_ungate(seen, counts):
            await self._ungate(pods[name])

    async def _list(self, namespace: str, pod_sets: Sequence[str]) -> list[Pod]:
        """Pods of pod sets of these names, page by page. Raises TryAgain when they change too fast for that."""
        # Of which slice a pod is stands in an annotation, which no selector can ask for.
        query = {"labelSelector": f"{names.PODSET_LABEL} in ({','.join(pod_sets)})"}
        found: list[Pod] = []
        try:
            async for body in self._client.pages(PODS, namespace, query=query):
                found += _pages.decode(body).items or ()
        except Gone as error:
            raise TryAgain("the list of pods expired between two pages") from error
        return found

    async def _ungate(self, pod: Pod) -> None:
        left = [msgspec.to_builtins(gate) for gate in pod.spec.scheduling_gates if gate.name != names.ELASTIC_JOB]
        guard = {"uid": pod.metadata.uid, "resourceVersion": pod.metadata.resource_version}
        body = msgspec.json.encode({"metadata": guard, "spec": {"schedulingGates": left or None}})
        try:
            await self._client.patch(PODS, pod.metadata.namespace, pod.metadata.name, body)
        except NotFound:
            return
        except Conflict as error:
            raise TryAgain(f"pod {pod.metadata.key} has changed") from error


def _holds(workload: Workload) -> bool:
    return is_reserved(workload) and not is_evicted(workload) and not is_finished(workload)


def _gated(pod: Pod) -> bool:
    return any(gate.name == names.ELASTIC_JOB for gate in pod.spec.scheduling_gates)
