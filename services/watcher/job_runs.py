"""Whether a stopped job really has no pods, or only looks so because its own controller has not written yet what it did (R2).

A job's status is written by its controller some time after it acts. A job that we start and stop at once may say "no active pods" while pods of
the short run exist; giving its quota away then would spend it twice. So we remember our last start and stop of each job, and believe its status only
when it has been written since: its controller must have seen the run, and then the stop. Where nothing was seen, a bounded wait decides.
"""

from collections.abc import Callable

from shared.jobs.manifest import JsonObject
from shared.jobs.protocol import JobKind

PATIENCE_S = 5.0
"""How long to wait for a controller that may never write: it need not notice a run that was too short."""


class _Run:
    __slots__ = ("seen_running", "started", "stopped_at")

    def __init__(self) -> None:
        self.started = False
        self.seen_running = False
        self.stopped_at: float | None = None


class JobRuns:
    """What we did to jobs since this process began, by their uid. `now` gives seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._runs: dict[str, _Run] = {}

    def started(self, uid: str) -> None:
        """We let the job run."""
        run = self._runs[uid] = _Run()
        run.started = True

    def stopped(self, uid: str) -> None:
        """We held the job back."""
        run = self._runs.setdefault(uid, _Run())
        if run.stopped_at is None:
            run.stopped_at = self._now()

    def follows(self, uid: str) -> bool:
        """Whether anything was done to the job, so that its views matter."""
        return uid in self._runs

    def observe(self, kind: JobKind, uid: str, job: JsonObject) -> None:
        """Take note of a view of a job; each one counts, a short run may show in a single one."""
        run = self._runs.get(uid)
        if run is not None and (kind.active(job) or kind.held(job) is False):
            run.seen_running = True

    def forget(self, uid: str) -> None:
        """The job is gone, or its quota was released."""
        self._runs.pop(uid, None)

    def wait_before_release(self, kind: JobKind, uid: str, job: JsonObject) -> float | None:
        """None: the job, which is suspended, has no pods and its quota may be released. Else seconds after which to ask again, unless it changes before."""
        if kind.active(job):
            return PATIENCE_S
        held = kind.held(job)
        run = self._runs.get(uid)
        if run is not None and held and (run.seen_running or not run.started):
            return None
        if run is None or run.stopped_at is None:
            # Not stopped by this process: the status is as old as we are, which is old enough unless it says otherwise.
            if held is not False:
                return None
            # Whoever stopped it has taken the clock along: ours begins now.
            self.stopped(uid)
            return PATIENCE_S
        left = run.stopped_at + PATIENCE_S - self._now()
        return left if left > 0 else None
