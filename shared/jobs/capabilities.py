"""What only some kinds of jobs can do, beside `protocol.JobKind`: each is one optional method that the gateway looks for (job specification 3.1).

The table says what Kueue's API promises of a kind by its name, whoever writes the integration.
"""

from typing import Protocol, runtime_checkable

from shared.jobs.manifest import JsonObject
from shared.jobs.protocol import JobKind


@runtime_checkable
class Skips(Protocol):
    """Some objects of the kind are left alone."""

    def skip(self, job: JsonObject) -> bool:
        """Leave this one alone, even when it is deleted."""
        ...


@runtime_checkable
class Holds(Protocol):
    """Some jobs of the kind want no quota for now."""

    def on_hold(self, job: JsonObject) -> bool:
        """It asks for nothing now: a reservation is given back, and none is wanted."""
        ...


_MANAGED_BY: dict[str, tuple[tuple[str, ...], str]] = {
    "batch/job": (("spec", "managedBy"), "kubernetes.io/job-controller"),
    "jobset.x-k8s.io/jobset": (("spec", "managedBy"), "jobset.sigs.k8s.io/jobset-controller"),
    "trainer.kubeflow.org/trainjob": (("spec", "managedBy"), "trainer.kubeflow.org/trainjob-controller"),
    "workload.codeflare.dev/appwrapper": (("spec", "managedBy"), "workload.codeflare.dev/appwrapper-controller"),
    "kubeflow.org/mpijob": (("spec", "runPolicy", "managedBy"), "kubeflow.org/mpi-operator"),
    **{
        f"kubeflow.org/{name}": (("spec", "runPolicy", "managedBy"), "kubeflow.org/training-operator")
        for name in ("tfjob", "pytorchjob", "xgboostjob", "paddlejob", "jaxjob")
    },
    **{
        f"ray.io/{name}": (("spec", "managedBy"), "ray.io/kuberay-operator")
        for name in ("rayjob", "raycluster", "rayservice")
    },
}
_ELASTIC = frozenset({"batch/job", "ray.io/rayjob", "ray.io/raycluster", "ray.io/rayservice"})
_PREBUILT = frozenset(_MANAGED_BY) - {"kubeflow.org/jaxjob"} | {"pod"}


def managed_by(kind: JobKind) -> tuple[tuple[str, ...], str] | None:
    """Where a job names its manager, and what the kind's own controller is called there; None where it names none."""
    return _MANAGED_BY.get(kind.framework)


def may_be_elastic(kind: JobKind) -> bool:
    """Jobs of the kind may grow and shrink by workload slices."""
    return kind.framework in _ELASTIC


def may_be_prebuilt(kind: JobKind) -> bool:
    """Jobs of the kind may name the Workload that stands for them."""
    return kind.framework in _PREBUILT


def skipped(kind: JobKind, job: JsonObject) -> bool:
    """The kind says to leave this job alone."""
    return isinstance(kind, Skips) and kind.skip(job)


def on_hold(kind: JobKind, job: JsonObject) -> bool:
    """The job asks for nothing now."""
    return isinstance(kind, Holds) and kind.on_hold(job)
