"""The words of the Events about admission, preemption and eviction; `kubernetes_events` writes them.

Tools read the machine-readable parts of the notes (queue names, seconds, flavors, priorities), so their form is fixed.
"""

from services.watcher.kubernetes_events import (
    ADMISSION_CONTROLLER,
    PROVISIONING_CONTROLLER,
    WORKLOAD_CONTROLLER,
    EventRecorder,
    about_workload,
)
from services.watcher.public_events import PublicEvents
from services.watcher.store import Store
from services.watcher.workload_state import condition, get_workload, is_admitted, split_key
from shared.api import names
from shared.api.workload import Workload
from shared.events.decisions import Admit, Preempt

EVICTED_DUE_TO = "EvictedDueTo"


class AdmissionEvents:
    """One method per thing that happened; each is called after the write that made it so."""

    def __init__(self, recorder: EventRecorder, public: PublicEvents, store: Store) -> None:
        self._recorder = recorder
        self._public = public
        self._store = store

    def admitted(self, workload: Workload, decision: Admit, now: float) -> None:
        """Quota was reserved by a decision, and perhaps the workload admitted with it."""
        waited = max(int(now) - decision.queued_since, 0) if decision.queued_since else 0
        note = f"Quota reserved in ClusterQueue {decision.cluster_queue}, wait time since queued was {waited}s"
        if decision.considered:
            note += f"; Flavors considered: {decision.considered}"
        about = about_workload(workload.metadata)
        self._recorder.emit(about, "Normal", names.QUOTA_RESERVED, note, controller=ADMISSION_CONTROLLER)
        if is_admitted(workload):
            self._admitted(workload, decision.cluster_queue, ADMISSION_CONTROLLER)

    def checks_passed(self, workload: Workload) -> None:
        """A workload with a reservation was admitted."""
        if workload.status.admission is not None:
            self._admitted(workload, workload.status.admission.cluster_queue, WORKLOAD_CONTROLLER)

    def _admitted(self, workload: Workload, cluster_queue: str, controller: str) -> None:
        reserved, admitted = condition(workload, names.QUOTA_RESERVED), condition(workload, names.ADMITTED)
        waited = 0
        if reserved is not None and admitted is not None:
            waited = int((admitted.last_transition_time - reserved.last_transition_time).total_seconds())
        note = f"Admitted by ClusterQueue {cluster_queue}, wait time since reservation was {max(waited, 0)}s"
        self._recorder.emit(about_workload(workload.metadata), "Normal", names.ADMITTED, note, controller=controller)

    def preempting(self, decision: Preempt) -> None:
        """Remember for whom a workload is going to be evicted: the public event names it."""
        self._public.preemptor_of(decision.uid, decision.preemptor, decision.preemptor_uid)

    def replaced(self, workload: Workload, note: str) -> None:
        """A slice of an elastic job is over, for a newer one has its quota."""
        self._recorder.emit(
            about_workload(workload.metadata),
            "Normal",
            names.REASON_SLICE_REPLACED,
            note,
            controller=ADMISSION_CONTROLLER,
            action="Replaced",
        )

    def preempted(self, workload: Workload, decision: Preempt) -> None:
        """A workload was evicted for another one, or for its own better variant, which is told as an eviction alone."""
        if decision.eviction != names.REASON_PREEMPTED:
            self.evicted(workload)
            return
        preemptor = get_workload(self._store, *split_key(decision.preemptor))
        if preemptor is not None and preemptor.metadata.uid != decision.preemptor_uid:
            preemptor = None
        priorities = (
            f"preemptor effective priority: {_priority(decision.preemptor_priority, preemptor)}; "
            f"preemptee effective priority: {_priority(decision.priority, workload)}"
        )
        self._recorder.emit(
            about_workload(workload.metadata),
            "Normal",
            names.PREEMPTED,
            f"{decision.message}; {priorities}",
            controller=ADMISSION_CONTROLLER,
        )
        if preemptor is not None:
            self._recorder.emit(
                about_workload(preemptor.metadata),
                "Normal",
                "PreemptedWorkload",
                f"Preempted workload {workload.metadata.key} (UID: {workload.metadata.uid}) in ClusterQueue {decision.cluster_queue}; {priorities}",
                controller=ADMISSION_CONTROLLER,
            )
        self.evicted(workload)

    def evicted(self, workload: Workload) -> None:
        """A workload that held quota was evicted, for whatever reason."""
        evicted = condition(workload, names.EVICTED)
        if evicted is None or workload.status.admission is None:
            return
        self._recorder.emit(
            about_workload(workload.metadata),
            "Normal",
            f"{EVICTED_DUE_TO}{evicted.reason}",
            evicted.message,
            controller=WORKLOAD_CONTROLLER,
        )

    def pending(self, workload: Workload) -> None:
        """The scheduler could not reserve quota."""
        refused = condition(workload, names.QUOTA_RESERVED)
        if refused is not None and refused.status == "False":
            self._recorder.emit(
                about_workload(workload.metadata),
                "Warning",
                refused.reason,
                refused.message,
                controller=ADMISSION_CONTROLLER,
            )

    def check_updated(self, before: Workload, after: Workload, check: str) -> None:
        """Our own controller wrote the state of an admission check."""
        old = next((state for state in before.status.admission_checks if state.name == check), None)
        new = next((state for state in after.status.admission_checks if state.name == check), None)
        if old is None or new is None or old.state == new.state:
            return
        note = f"Admission check {check} updated state from {old.state} to {new.state}"
        if new.message:
            note += f" with message: {new.message}"
        self._recorder.emit(
            about_workload(after.metadata), "Normal", "AdmissionCheckUpdated", note, controller=PROVISIONING_CONTROLLER
        )

    def note(self, workload: Workload, reason: str, message: str) -> None:
        """Something that happened to it and is no trouble."""
        self._recorder.emit(
            about_workload(workload.metadata), "Normal", reason, message, controller=WORKLOAD_CONTROLLER
        )

    def warn(self, workload: Workload, reason: str, message: str) -> None:
        """Something that the workload's owner should look at."""
        self._recorder.emit(
            about_workload(workload.metadata), "Warning", reason, message, controller=WORKLOAD_CONTROLLER
        )


def _priority(effective: int, workload: Workload | None) -> str:
    """With what it is made of; all of it is the base if the workload is gone."""
    base = effective if workload is None else workload.spec.priority or 0
    return f"{effective} (base: {base}, boost: {effective - base})"
