"""jobset.x-k8s.io/v1alpha2 JobSet: groups of Jobs that start and stop together. A pod set for each replicated job."""

from shared.jobs.batch_job import INDEX_LABEL
from shared.jobs.manifest import JsonObject, items, number, section, text
from shared.jobs.protocol import Finished, ManagedBy
from shared.jobs.status_conditions import ended, told
from shared.jobs.templated_kind import Role, TemplatedKind

JOB_INDEX_LABEL = "jobset.sigs.k8s.io/job-index"


class JobSet(TemplatedKind):
    """See shared.jobs.protocol.JobKind."""

    group = "jobset.x-k8s.io"
    version = "v1alpha2"
    kind = "JobSet"
    plural = "jobsets"
    framework = "jobset.x-k8s.io/jobset"
    managed_by = ManagedBy(("spec", "managedBy"), "jobset.sigs.k8s.io/jobset-controller")
    grouped = True

    def roles(self, job: JsonObject) -> tuple[Role, ...]:
        return replicated_roles(section(job, "spec"), at="spec")

    def finished(self, job: JsonObject) -> Finished | None:
        return ended(job, success="Completed", failure="Failed")

    def active(self, job: JsonObject) -> bool:
        return jobs_active(job, "replicatedJobsStatus")

    def held(self, job: JsonObject) -> bool | None:
        return told(job, "Suspended")

    def pods_ready(self, job: JsonObject) -> bool:
        return jobs_ready(section(job, "spec"), job, "replicatedJobsStatus")

    def reclaimable(self, job: JsonObject) -> dict[str, int]:
        return jobs_reclaimable(section(job, "spec"), job, "replicatedJobsStatus")


def replicas(replicated_job: JsonObject) -> int:
    """How many Jobs are made of it."""
    return number(replicated_job, "replicas", default=1)


def pods_of_each(replicated_job: JsonObject) -> int:
    """How many pods one of its Jobs runs at a time."""
    parallelism = number(replicated_job, "template", "spec", "parallelism", default=1)
    return min(parallelism, number(replicated_job, "template", "spec", "completions", default=parallelism))


def replicated_roles(spec: JsonObject, *, at: str) -> tuple[Role, ...]:
    """The roles of the `spec` of a JobSet, which stands at that key."""
    return tuple(
        Role(
            name=text(one, "name"),
            count=replicas(one) * pods_of_each(one),
            place=(at, "replicatedJobs", i, "template", "spec", "template"),
            field=f"{at}.replicatedJobs[{i}].template.spec.template",
            index_label=INDEX_LABEL,
            subgroup_label=JOB_INDEX_LABEL,
            subgroup_count=replicas(one),
        )
        for i, one in enumerate(items(spec, "replicatedJobs"))
    )


def jobs_active(job: JsonObject, key: str) -> bool:
    """Some of the Jobs that `status.<key>` counts has pods."""
    return any(number(found, "active", default=0) > 0 for found in items(job, "status", key))


def jobs_ready(spec: JsonObject, job: JsonObject, key: str) -> bool:
    """All Jobs of the JobSet (not: all pods) are ready or have succeeded."""
    wanted = sum(replicas(one) for one in items(spec, "replicatedJobs"))
    found = items(job, "status", key)
    return wanted == sum(number(one, "ready", default=0) + number(one, "succeeded", default=0) for one in found)


def jobs_reclaimable(spec: JsonObject, job: JsonObject, key: str) -> dict[str, int]:
    """The pods of Jobs that have succeeded, by pod set."""
    succeeded = {text(one, "name"): number(one, "succeeded", default=0) for one in items(job, "status", key)}
    return {
        text(one, "name").lower(): done * pods_of_each(one)
        for one in items(spec, "replicatedJobs")
        if 0 < (done := succeeded.get(text(one, "name"), 0)) <= replicas(one)
    }
