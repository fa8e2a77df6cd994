"""The loop of provisioning_request.

1. Fold workloads, admission checks, ProvisioningRequestConfigs and ProvisioningRequests; nothing is done before the view is complete.
2. A change puts the workloads and checks that it concerns on the agenda (handlers.py). The instance that holds the lease looks at them at once, the
   others a stagger later.
3. For a check of our controller: say whether it can work (activity.py). That the cluster has no ProvisioningRequests, only the gateway knows: it refuses
   to call the check active then, and the check says so instead.
4. For a workload: bring its requests and its checks' states nearer to what they should be (provisioning.py).
5. Send what is not asked for already, and wait for its outcome and for the view to show it. Why a request could not be made stands on the check.

Any number of instances may run: what they want of the same state is the same, each later one finds it done, and a command given twice is a command
whose content the object already carries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from services.provisioning_request.activity import active_condition, config_of
from services.provisioning_request.handlers import Index, check_key, workload_key
from services.provisioning_request.provisioning import reconcile, with_errors
from services.provisioning_request.settings import ProvisioningSettings
from shared.api import names
from shared.bus.interface import FeedItem, ObjectChanged, Reset, Settled
from shared.config.configuration import Configured
from shared.events.commands import CreateProvisioningRequest
from shared.events.objects import AdmissionCheck, ProvisioningRequest, ProvisioningRequestConfig, Workload
from shared.events.outcomes import CommandOutcome
from shared.events.subjects import parse_command
from shared.runtime.service import Context
from shared.state.objects import Objects
from shared.state.open_commands import CommandWriter, Verdict

KINDS = ("workload", "admissioncheck", "provisioningrequestconfig", "provisioningrequest")
LEASE = "provisioning_request"
CREATION_ERROR = "Error creating "
"""How the gateway's word begins on an object that could not be made."""
NOT_SERVED_S = 5.0
"""A cluster that has no ProvisioningRequests is asked again this much later."""


class ProvisioningJudge:
    """What the view should look like."""

    def __init__(
        self,
        settings: ProvisioningSettings,
        configured: Configured | None = None,
        *,
        goes_first: Callable[[], bool] = lambda: True,
    ) -> None:
        gates = (configured if configured is not None else Configured()).gates
        self._cleanup_on_eviction = settings.cleanup_on_eviction and gates["CleanupProvisioningRequestsOnEviction"]
        self._stagger_s = settings.stagger_s
        self._goes_first = goes_first
        self._start()

    def _start(self) -> None:
        self._objects = Objects()
        self._index = Index(self._objects)
        self._asked: dict[str, str] = {}
        """Keys of the agenda by the request that was asked for."""
        self._errors: dict[str, str] = {}
        """Why a request could not be made, by its key; until it is."""
        self._not_served: dict[str, float] = {}
        """Checks that cannot be active since the cluster has no ProvisioningRequests, and until when that is believed."""
        self._turn: dict[str, float] = {}
        """For those that do not go first: when it is this instance's turn to look at a key."""

    def fold(self, item: FeedItem, now: float) -> Iterable[str]:
        match item:
            case Reset():
                self._start()
            case ObjectChanged():
                change = self._objects.apply(item)
                if change is not None and isinstance(change.new, ProvisioningRequest):
                    self._forget(change.new.key)
                return self._index.changed(change) if change is not None else ()
            case Settled(outcome=CommandOutcome(status="rejected") as outcome):
                return self._rejected(outcome, now)
            case _:
                pass
        return ()

    def _rejected(self, outcome: CommandOutcome, now: float) -> Iterable[str]:
        try:
            target = parse_command(outcome.subject).target
        except ValueError:
            return ()
        if target.kind == "admissioncheck" and outcome.why == names.PROVISIONING_NOT_SERVED:
            self._not_served[target.name] = now + NOT_SERVED_S
            return (check_key(target.name),)
        if target.key in self._asked and outcome.why.startswith(CREATION_ERROR):
            self._errors[target.key] = outcome.why
            return (self._asked[target.key],)
        return ()

    def _forget(self, request: str) -> None:
        self._asked.pop(request, None)
        self._errors.pop(request, None)

    def version(self, kind: str, key: str) -> int:
        return self._objects.version(kind, key)

    def everything(self) -> Iterable[str]:
        for check in self._objects.all(AdmissionCheck).values():
            if check.controller == names.PROVISIONING_REQUEST_CONTROLLER:
                yield check_key(check.name)
        for key, workload in self._objects.all(Workload).items():
            if workload.checks or workload.finished:
                yield workload_key(key)

    def judge(self, key: str, now: float) -> Verdict:
        verdict = self._judge(key, now)
        if not verdict.commands or self._goes_first():
            self._turn.pop(key, None)
            return verdict
        turn = self._turn.setdefault(key, now + self._stagger_s)
        if now < turn:
            return Verdict((), turn)
        return verdict

    def _judge(self, key: str, now: float) -> Verdict:
        what, _, name = key.partition(" ")
        configs = self._objects.all(ProvisioningRequestConfig)
        if what == "check":
            check = self._objects.get(AdmissionCheck, name)
            if check is None or check.deleting:
                return Verdict()
            until = self._not_served.get(name, 0.0)
            active = active_condition(check, configs, now, served=now >= until)
            return Verdict((active,) if active is not None else (), until if now < until else None)
        workload = self._objects.get(Workload, name)
        if workload is None:
            for request in [request for request, asked in self._asked.items() if asked == key]:
                self._forget(request)
            return Verdict()
        ours: dict[str, ProvisioningRequestConfig | None] = {}
        for state in workload.checks:
            admission_check = self._objects.get(AdmissionCheck, state.name)
            if admission_check is not None and admission_check.controller == names.PROVISIONING_REQUEST_CONTROLLER:
                ours[state.name] = config_of(admission_check, configs)
        commands = reconcile(
            workload, ours, self._index.requests_of(workload), cleanup_on_eviction=self._cleanup_on_eviction
        )
        for command in commands:
            if isinstance(command, CreateProvisioningRequest):
                self._asked[command.key] = key
        return Verdict(tuple(with_errors(workload, commands, self._errors)))


async def serve(ctx: Context[ProvisioningSettings]) -> None:
    """Run until cancelled."""
    lease = ctx.bus.lease(LEASE)
    writer = CommandWriter(
        LEASE,
        ProvisioningJudge(ctx.settings, ctx.configured, goes_first=lambda: lease.held),
        ctx.metrics,
        leads=True,
    )
    await writer.run(ctx.bus, KINDS, ctx.now, ready=ctx.health.ready)
