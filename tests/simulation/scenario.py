"""What a seed means, as data: the cluster it begins with, who runs, what users do when, and what goes wrong when.

Everything that happens on purpose is a `Step`, so a scenario can be printed, replayed, and cut down to what a failure needs.
"""

from __future__ import annotations

from typing import Any

import msgspec

from shared.kube.resources import Resource
from shared.testing.simulated_api import SimulatedApi

Manifest = dict[str, Any]

NAMESPACES = ("team-a", "team-b")
SYSTEM = "kueue-system"
CHECK = "approval"
"""The admission check of a controller outside."""
PROVISIONING = "provisioning"
"""The admission check of ours."""

SERVICES = ("watcher", "scheduler", "queue_manager", "preemptor", "provisioning_request", "webhook")


class Step(msgspec.Struct, frozen=True):
    """At `at` seconds, `do` with `args`: a method of `users.Users` or a function of `faults`."""

    at: float
    do: str
    args: tuple[Any, ...] = ()

    def __str__(self) -> str:
        return f"{self.at:7.3f}  {self.do}({', '.join(map(str, self.args))})"


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """`slots`: processes as `<service>-<replica>`; `active_s`: when faults and users are over, and all has to come to rest."""

    seed: int
    name: str
    setup: tuple[Manifest, ...]
    load: tuple[Step, ...]
    faults: tuple[Step, ...] = ()
    slots: tuple[str, ...] = tuple(f"{service}-0" for service in SERVICES)
    active_s: float = 40.0
    max_unsettled: int = 512
    fair_sharing: bool = False
    pods_ready: bool = False
    """Whether anybody waits for pods to be ready."""
    public_events: bool = False
    """Whether the gateway tells the world: no promise hangs on it, and it costs as much as a service."""
    slow_checks: bool = False
    """The controller outside says Retry and Rejected now and then, and takes back what it said."""

    @property
    def workloads(self) -> int:
        """How many are asked for."""
        return sum(step.do in ("create_job", "create_workload") for step in self.load)


def find(api: SimulatedApi, resource: Resource, namespace: str, name: str) -> Manifest | None:
    """An object as it is now; not to be changed."""
    found: Any = api.get(resource, namespace, name)
    manifest: Manifest | None = found
    return manifest


def every(api: SimulatedApi, resource: Resource) -> list[Manifest]:
    """All objects of a resource; not to be changed."""
    found: Any = list(api.objects(resource))
    manifests: list[Manifest] = found
    return manifests
