"""What an observer saw of workloads over time: their conditions state by state, and the Events about them."""

from __future__ import annotations

import json
from collections import defaultdict

from cli.observe import Observer
from cli.verifier import Verifier
from devcluster.stack import Stack
from shared.api.workload import Workload

Conditions = dict[str, str]
"""Type -> `status reason`."""


class Histories(Verifier):
    """A verifier that also remembers. Keys are UIDs of Jobs."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[str, list[Conditions]] = defaultdict(list)
        """Conditions of the workload of a Job, each different state once."""
        self.evictions: dict[str, list[str]] = defaultdict(list)
        """Message of each eviction."""

    @classmethod
    def of(cls, observer: Observer) -> Histories:
        """From now on this observer remembers."""
        found = cls()
        for queue in observer.cluster_queues.values():
            found.cluster_queue(queue)
        for workload in observer.workloads.values():
            found.workload(workload)
        for job in observer.jobs.values():
            found.job(job)
        observer.verifier = found
        return found

    def workload(self, workload: Workload, *, deleted: bool = False) -> None:
        """A workload exists, changed or is gone."""
        super().workload(workload, deleted=deleted)
        owner = workload.metadata.controller_owner()
        if owner is None or deleted:
            return
        # PodsReady follows the pods, at times of its own.
        now = {c.type: f"{c.status} {c.reason}" for c in workload.status.conditions if c.type != "PodsReady"}
        states = self.seen[owner.uid]
        evicted = next((c for c in workload.status.conditions if c.type == "Evicted"), None)
        was = states[-1].get("Evicted", "") if states else ""
        if evicted is not None and evicted.status == "True" and not was.startswith("True"):
            self.evictions[owner.uid].append(evicted.message)
        if not states or states[-1] != now:
            states.append(now)

    def problems_of(self, part: str) -> list[str]:
        """Problems that name this job, workload or queue, or one whose name has this in it: what other tests leave behind is not meant."""
        return [problem for problem in self.problems if part in problem]

    def now(self, uid: str, type_: str) -> str:
        """`status reason` of a condition of the workload of a Job; empty if it is not there."""
        return self.seen[uid][-1].get(type_, "") if self.seen[uid] else ""


def workload_of(seen: Observer, uid: str) -> Workload:
    """The workload of a Job."""
    owners = ((w, w.metadata.controller_owner()) for w in seen.workloads.values())
    return next(w for w, owner in owners if owner is not None and owner.uid == uid)


async def events_about(stack: Stack, name: str) -> list[tuple[str, str]]:
    """(reason, note) of the Events about the object of that name in `default`, oldest first."""
    listed = await stack.cluster.kubectl("get", "events.events.k8s.io", "-n", "default", "-o", "json")
    found = [e for e in json.loads(listed)["items"] if e["regarding"]["name"] == name]
    found.sort(key=lambda e: (e["eventTime"] or "", int(e["metadata"]["resourceVersion"])))
    return [(e["reason"], e["note"]) for e in found]
