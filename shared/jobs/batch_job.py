"""batch/v1 Job.

A stop takes three idempotent writes (job specification 13.1): the annotation `stopping` makes a Job that is suspended already look as if it ran until
its template is restored. The API server lets scheduling directives of a Job change only while it is suspended and its start time is cleared.

A Job whose end its controller has seen (SuccessCriteriaMet, FailureTarget) ends by itself and is not stopped any more. It may have been stopped just
before: then it has no start time, without which the API server takes no Complete or Failed, and its controller would try for ever. So it gets one again.
"""

from shared.api import names
from shared.api.schema_hints import ApiStruct
from shared.jobs import merge_patch
from shared.jobs.elastic import gated, is_elastic
from shared.jobs.manifest import JsonObject, replaced, section, text, texts, view
from shared.jobs.podset_info import PermanentError, PodSetInfo, merged_template, restored_template
from shared.jobs.protocol import Finished, Gates, JobPodSet, KindDefaults, ManagedBy, StopStep
from shared.jobs.stopping import first_write, is_stopping, unmarked
from shared.jobs.topology_request import topology_request

INDEX_LABEL = "batch.kubernetes.io/job-completion-index"
_NAME_LABEL = "batch.kubernetes.io/job-name"
_NOT_IN_WORKLOAD = ("job-name", "controller-uid", "batch.kubernetes.io/controller-uid")
_SURVIVING_LABELS = (*_NOT_IN_WORKLOAD, _NAME_LABEL)


class _Spec(ApiStruct, frozen=True, kw_only=True):
    suspend: bool = False
    parallelism: int | None = None
    completions: int | None = None
    completion_mode: str = "NonIndexed"


class _Condition(ApiStruct, frozen=True, kw_only=True):
    """A Job's conditions need not have a reason."""

    type: str
    status: str
    message: str = ""


class _Uncounted(ApiStruct, frozen=True, kw_only=True):
    succeeded: tuple[str, ...] = ()


class _Status(ApiStruct, frozen=True, kw_only=True):
    conditions: tuple[_Condition, ...] = ()
    active: int = 0
    ready: int = 0
    succeeded: int = 0
    completed_indexes: str = ""
    failed_indexes: str = ""
    uncounted_terminated_pods: _Uncounted = _Uncounted()


class BatchJob(KindDefaults):
    """See shared.jobs.protocol.JobKind."""

    group = "batch"
    version = "v1"
    kind = "Job"
    plural = "jobs"
    framework = "batch/job"
    managed_by = ManagedBy(("spec", "managedBy"), "kubernetes.io/job-controller")
    may_be_elastic = True

    def suspended(self, job: JsonObject) -> bool:
        return _spec(job).suspend and not is_stopping(job)

    def suspend(self, job: JsonObject) -> JsonObject:
        return {} if _spec(job).suspend else {"spec": {"suspend": True}}

    def pod_sets(self, job: JsonObject) -> tuple[JobPodSet, ...]:
        template = section(job, "spec", "template")
        labels = texts(template, "metadata", "labels")
        if any(key in labels for key in _NOT_IN_WORKLOAD):
            kept = {key: value for key, value in labels.items() if key not in _NOT_IN_WORKLOAD}
            template = replaced(template, ("metadata", "labels"), kept)
        return (
            JobPodSet(
                name=names.DEFAULT_PODSET,
                count=_pods(_spec(job)),
                min_count=_min_parallelism(job),
                template=template,
                topology_request=topology_request(template, index_label=INDEX_LABEL),
            ),
        )

    def start(self, job: JsonObject, infos: tuple[PodSetInfo, ...]) -> JsonObject:
        if len(infos) != 1:
            raise PermanentError(f"invalid pod set infos: a Job has 1 pod set, the workload {len(infos)}")
        (info,) = infos
        started = replaced(job, ("spec", "template"), merged_template(section(job, "spec", "template"), info))
        started = replaced(started, ("spec", "suspend"), False)
        if _min_parallelism(job) is not None:
            started = _with_count(started, info.count)
        return merge_patch.diff(job, started)

    def stop(self, job: JsonObject, restore: tuple[JobPodSet, ...]) -> StopStep | None:
        if _ending(job):
            if not _spec(job).suspend or text(job, "status", "startTime"):
                return None
            return StopStep(patch={"status": {"startTime": text(job, "metadata", "creationTimestamp")}}, status=True)
        if not _spec(job).suspend:
            return StopStep(patch=first_write(), stopped_now=True)
        if not is_stopping(job):
            return None
        if text(job, "status", "startTime"):
            return StopStep(patch={"status": {"startTime": None}}, status=True)
        restored = unmarked(job)
        if len(restore) == 1:
            template = restored_template(section(job, "spec", "template"), restore[0].template, _SURVIVING_LABELS)
            restored = replaced(restored, ("spec", "template"), template)
            if _min_parallelism(job) is not None:
                restored = _with_count(restored, restore[0].count)
        return StopStep(patch=merge_patch.diff(job, restored))

    def finished(self, job: JsonObject) -> Finished | None:
        for condition in _status(job).conditions:
            if condition.type in ("Complete", "Failed") and condition.status == "True":
                return Finished(success=condition.type != "Failed", message=condition.message)
        return None

    def active(self, job: JsonObject) -> bool:
        return _status(job).active != 0

    def held(self, job: JsonObject) -> bool | None:
        suspended = next((c for c in _status(job).conditions if c.type == "Suspended"), None)
        return None if suspended is None else suspended.status == "True"

    def pods_ready(self, job: JsonObject) -> bool:
        status = _status(job)
        return status.succeeded + status.ready + len(status.uncounted_terminated_pods.succeeded) >= _pods(_spec(job))

    def reclaimable(self, job: JsonObject) -> dict[str, int]:
        spec, status = _spec(job), _status(job)
        parallelism = _parallelism(spec)
        completions = parallelism if spec.completions is None else spec.completions
        if spec.completion_mode == "Indexed":
            terminal = len(
                _indexes(status.completed_indexes, completions) | _indexes(status.failed_indexes, completions)
            )
        else:
            terminal = status.succeeded
        remaining = max(completions - terminal, 0)
        if parallelism <= 1 or terminal <= 0 or remaining >= parallelism:
            return {}
        return {names.DEFAULT_PODSET: parallelism - remaining}

    def prepared(self, job: JsonObject, gates: Gates) -> JsonObject:
        if not is_elastic(job, gates):
            return job
        return replaced(job, ("spec", "template"), gated(section(job, "spec", "template")))


def _spec(job: JsonObject) -> _Spec:
    return view(job, _Spec, "spec")


def _status(job: JsonObject) -> _Status:
    return view(job, _Status, "status")


def _ending(job: JsonObject) -> bool:
    """Its controller has seen how it ends, and will say so."""
    return any(
        c.type in ("SuccessCriteriaMet", "FailureTarget") and c.status == "True" for c in _status(job).conditions
    )


def _parallelism(spec: _Spec) -> int:
    return 1 if spec.parallelism is None else spec.parallelism


def _pods(spec: _Spec) -> int:
    parallelism = _parallelism(spec)
    return parallelism if spec.completions is None else min(parallelism, spec.completions)


def _min_parallelism(job: JsonObject) -> int | None:
    try:
        count = int(text(job, "metadata", "annotations", names.JOB_MIN_PARALLELISM))
    except ValueError:
        return None
    return count if count > 0 else None


def _with_count(job: JsonObject, count: int) -> JsonObject:
    job = replaced(job, ("spec", "parallelism"), count)
    if text(job, "metadata", "annotations", names.JOB_COMPLETIONS_EQUAL_PARALLELISM) == "true":
        job = replaced(job, ("spec", "completions"), count)
    return job


def _indexes(ranges: str, below: int) -> set[int]:
    """The indexes in a list like `0,2-5` that are less than `below`; parts that are none are ignored."""
    result: set[int] = set()
    for part in ranges.split(","):
        first, dash, last = part.partition("-")
        try:
            start, end = int(first), int(last) if dash else int(first)
        except ValueError:
            continue
        result.update(range(start, min(end + 1, below)))
    return result
