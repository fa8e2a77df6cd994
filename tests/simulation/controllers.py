"""What else runs in a cluster: the Job controller, whoever looks after Workloads that no job stands behind, a controller of admission checks, an autoscaler.

Each looks at an object some time after it changed and writes what a real one would, late as a real one is. None of them has faults of its own: what
they do is the truth that promises are measured against. `running` says whose pods exist.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable
from contextvars import copy_context
from datetime import UTC, datetime
from random import Random
from typing import Any

import msgspec

from services.watcher.patches import workload_patch
from shared.api import names
from shared.api.decoding import decode
from shared.api.workload import Workload
from shared.decide import transitions
from shared.kube.errors import ApiError, Conflict, NotFound
from shared.kube.resources import ADMISSION_CHECKS, JOBS, PROVISIONING_REQUESTS, WORKLOADS, Resource
from shared.testing.simulated_api import Commit, SimulatedApi
from tests.simulation.scenario import CHECK, Manifest, find
from tests.simulation.users import Users, Wanted

JOB_CONTROLLER = "job-controller"
CHECKER = "approval-controller"
AUTOSCALER = "autoscaler"
_TICK_S = 0.2


def conditions(manifest: Manifest) -> dict[str, str]:
    """Type -> status."""
    return {c["type"]: c["status"] for c in manifest.get("status", {}).get("conditions", ())}


class Controllers:
    """Subscribe `committed` to the API server."""

    def __init__(
        self, api: SimulatedApi, users: Users, draw: Random, wall: Callable[[], float], *, slow_checks: bool
    ) -> None:
        self._api = api
        self._wall = wall
        self._context = copy_context()
        self._users = users
        self._draw = draw
        self._slow_checks = slow_checks
        self._due: set[tuple[str, str, str]] = set()
        self.calm = False
        """Set at the end: nobody changes their mind any more."""
        self.running: dict[str, int] = {}
        """uid of a Job -> pods that exist."""
        self._run: dict[str, int] = {}
        self._looks: dict[str, Callable[[Manifest], None]] = {
            "jobs": self._job,
            "workloads": self._workload,
            "provisioningrequests": self._provisioning,
            "admissionchecks": self._check,
        }

    def committed(self, commit: Commit) -> None:
        """Look at what changed, a little later."""
        plural = commit.resource.plural
        look = self._looks.get(plural)
        if look is None:
            return
        subject: Any = commit.new or commit.old
        metadata = subject["metadata"]
        if commit.new is None:
            self.running.pop(metadata["uid"], None)
            return
        key = (plural, metadata.get("namespace", ""), metadata["name"])
        if key not in self._due and self._concerns(plural, commit.new):
            self._due.add(key)
            self._later(self._draw.choice((0.01, 0.05, 0.15)), self._look, commit, key, look)

    def _concerns(self, plural: str, new: Manifest) -> bool:
        status = new.get("status", {})
        if plural != "workloads":
            return True
        return bool(status.get("admissionChecks")) or not new["metadata"].get("ownerReferences")

    def _look(self, commit: Commit, key: tuple[str, str, str], look: Callable[[Manifest], None]) -> None:
        self._due.discard(key)
        found = find(self._api, commit.resource, key[1], key[2])
        if found is not None:
            look(found)

    def _later(self, seconds: float, do: Callable[..., None], *args: Any) -> None:
        asyncio.get_running_loop().call_later(seconds, do, *args, context=self._context)

    def _at_a_tick(self, seconds: float, do: Callable[..., None], *args: Any) -> None:
        """Not before `seconds`, and together with what else is due about then: so it goes where many end, and one message tells of several."""
        loop = asyncio.get_running_loop()
        loop.call_at(math.ceil((loop.time() + seconds) / _TICK_S) * _TICK_S, do, *args, context=self._context)

    # --- Jobs ------------------------------------------------------------------------------------------------------

    def _job(self, job: Manifest) -> None:
        uid = job["metadata"]["uid"]
        said = conditions(job)
        if "Complete" in said or "Failed" in said or "deletionTimestamp" in job["metadata"]:
            self.running.pop(uid, None)
            return
        if job["spec"].get("suspend"):
            self.running.pop(uid, None)
            if said.get("Suspended") != "True":
                self._status(job, {"active": 0, "ready": 0, "startTime": None}, "Suspended", "True")
        elif uid not in self.running:
            pods = job["spec"].get("parallelism", 1)
            self.running[uid] = pods
            self._run[uid] = self._run.get(uid, 0) + 1
            started = {"active": pods, "ready": pods, "startTime": self._api.timestamp()}
            self._status(job, started, "Suspended" if "Suspended" in said else "", "False")
            wanted = self._users.jobs.get(uid)
            runs_s = wanted.runs_s if wanted is not None else 1.0
            metadata = job["metadata"]
            self._at_a_tick(runs_s, self._complete, metadata["namespace"], metadata["name"], uid, self._run[uid])

    def _complete(self, namespace: str, name: str, uid: str, run: int) -> None:
        job = find(self._api, JOBS, namespace, name)
        if job is None or job["metadata"]["uid"] != uid or self._run[uid] != run or uid not in self.running:
            return
        pods = self.running.pop(uid)
        done = {"active": 0, "ready": 0, "succeeded": pods, "completionTime": self._api.timestamp()}
        self._status(job, done, "Complete", "True")
        wanted = self._users.jobs.get(uid)
        if wanted is not None:
            wanted.done = True
            self._at_a_tick(self._draw.choice((0.0, 2.0)), self._tidy, JOBS, wanted)

    def _status(self, job: Manifest, status: Manifest, condition: str, value: str) -> None:
        kept = [c for c in job.get("status", {}).get("conditions", ()) if c["type"] != condition]
        now = self._api.timestamp()
        new = {"type": condition, "status": value, "lastTransitionTime": now, "lastProbeTime": now}
        metadata = job["metadata"]
        patch: Manifest = {"status": {**status, **({"conditions": [*kept, new]} if condition else {})}}
        self._api.write(JOBS, metadata["namespace"], metadata["name"], patch, subresource="status", user=JOB_CONTROLLER)

    # --- Workloads -------------------------------------------------------------------------------------------------

    def _workload(self, workload: Manifest) -> None:
        said = conditions(workload)
        if said.get(names.FINISHED) == "True":
            return
        if any(check["name"] == CHECK for check in workload.get("status", {}).get("admissionChecks", ())):
            self._approve(workload)
        if workload["metadata"].get("ownerReferences"):
            return
        wanted = self._users.workloads.get(workload["metadata"]["uid"])
        if wanted is None:
            return
        if said.get(names.EVICTED) == "True" and said.get(names.QUOTA_RESERVED) == "True":
            self._release(workload)
        elif said.get(names.ADMITTED) == "True" and said.get(names.EVICTED) != "True":
            self._at_a_tick(wanted.runs_s, self._finish, wanted.key, wanted.uid, workload["status"]["admission"])

    def _release(self, workload: Manifest) -> None:
        """Its pods are gone: the quota may be had by others."""
        found = decode(Workload, msgspec.json.encode(workload))
        now = datetime.fromtimestamp(self._wall(), UTC)
        patch = workload_patch(found, transitions.release(found.status, now, found.metadata.generation))
        self._write_workload(workload, dict(patch))

    def _finish(self, key: str, uid: str, admission: Manifest) -> None:
        workload = find(self._api, WORKLOADS, *key.split("/"))
        if workload is None or workload["metadata"]["uid"] != uid:
            return
        said = conditions(workload)
        if said.get(names.ADMITTED) != "True" or said.get(names.EVICTED) == "True" or names.FINISHED in said:
            return
        now = self._api.timestamp()
        done = {
            "type": names.FINISHED,
            "status": "True",
            "reason": "Succeeded",
            "message": "",
            "lastTransitionTime": now,
        }
        self._write_workload(workload, {"status": {"conditions": [*workload["status"]["conditions"], done]}})
        wanted = self._users.workloads[uid]
        wanted.done = True
        self._at_a_tick(self._draw.choice((0.0, 2.0)), self._tidy, WORKLOADS, wanted)

    def _tidy(self, resource: Resource, wanted: Wanted) -> None:
        """What is over is deleted after a while, as a time to live does it."""
        with contextlib.suppress(NotFound, Conflict):
            self._api.delete(resource, *wanted.key.split("/"), uid=wanted.uid, user=JOB_CONTROLLER)

    def _approve(self, workload: Manifest) -> None:
        """The check outside: mostly Ready, sometimes Retry or Rejected; seldom it changes its mind."""
        state = next(c for c in workload["status"]["admissionChecks"] if c["name"] == CHECK)
        said = conditions(workload)
        if said.get(names.QUOTA_RESERVED) != "True" or said.get(names.EVICTED) == "True":
            return
        if state["state"] == "Pending":
            draw = self._draw.random() if self._slow_checks and not self.calm else 0.0
            self._say(workload, "Ready" if draw < 0.8 else "Retry" if draw < 0.95 else "Rejected")
        elif state["state"] == "Ready" and self._slow_checks and not self.calm and self._draw.random() < 0.03:
            self._say(workload, self._draw.choice(("Retry", "Pending")))

    def _say(self, workload: Manifest, state: str) -> None:
        now = self._api.timestamp()
        checks = [
            {**check, "state": state, "message": "", "lastTransitionTime": now} if check["name"] == CHECK else check
            for check in workload["status"]["admissionChecks"]
        ]
        self._write_workload(workload, {"status": {"admissionChecks": checks}}, user=CHECKER)

    def _write_workload(self, workload: Manifest, patch: Manifest, user: str = JOB_CONTROLLER) -> None:
        metadata = workload["metadata"]
        self._api.write(WORKLOADS, metadata["namespace"], metadata["name"], patch, subresource="status", user=user)

    # --- checks and the autoscaler ---------------------------------------------------------------------------------

    def _check(self, check: Manifest) -> None:
        if check["metadata"]["name"] == CHECK and conditions(check).get("Active") != "True":
            now = self._api.timestamp()
            active = {"type": "Active", "status": "True", "reason": "Active", "message": "", "lastTransitionTime": now}
            patch: Manifest = {"status": {"conditions": [active]}}
            self._api.write(ADMISSION_CHECKS, "", CHECK, patch, subresource="status", user=CHECKER)

    def _provisioning(self, request: Manifest) -> None:
        said = conditions(request)
        if said.get("Provisioned") == "True" or said.get("Failed") == "True":
            return
        lucky = self.calm or self._draw.random() < 0.85
        now = self._api.timestamp()
        answer = {
            "type": "Provisioned" if lucky else "Failed",
            "status": "True",
            "reason": "CapacityIsFound" if lucky else "CapacityIsNotFound",
            "message": "",
            "lastTransitionTime": now,
        }
        metadata = request["metadata"]
        try:
            self._api.write(
                PROVISIONING_REQUESTS,
                metadata["namespace"],
                metadata["name"],
                {"status": {"conditions": [*request.get("status", {}).get("conditions", ()), answer]}},
                subresource="status",
                user=AUTOSCALER,
            )
        except ApiError:
            # It went away in between.
            return
