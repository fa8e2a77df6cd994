"""How the production code of the services is put into a world: with which settings, and where their ways out of the process lead."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Coroutine, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any
from unittest import mock

import services.preemptor.service as preemptor_service
import services.scheduler.__main__ as scheduler_main
import services.scheduler.metrics as scheduler_metrics
import services.watcher.service as watcher_service
from services.preemptor.service import serve as serve_preemptor
from services.preemptor.settings import PreemptorSettings
from services.provisioning_request.service import serve as serve_provisioning
from services.provisioning_request.settings import ProvisioningSettings
from services.queue_manager.service import serve as serve_queue_manager
from services.queue_manager.settings import QueueManagerSettings
from services.scheduler.service import Scheduler
from services.scheduler.settings import SchedulerSettings
from services.watcher import apply
from services.watcher.public_events import PublicEvents
from services.watcher.settings import WatcherSettings
from services.watcher.store import Change, Store
from services.webhook.settings import WebhookSettings
from shared.config.settings import BaseSettings
from shared.events import decisions, objects, outcomes
from shared.kube.client import KubeClient
from shared.runtime import collector
from shared.state import open_commands
from tests.simulation.invariants import SHARED_UNCHANGED
from tests.simulation.scenario import Scenario

if TYPE_CHECKING:
    from tests.simulation.world import World

_LOOKED_AT = 16
"""Of so many decoded messages one is compared with its bytes at the end of a run."""

Wiring = dict[str, tuple[BaseSettings, Callable[[Any], Coroutine[Any, Any, None]]]]


def wiring(scenario: Scenario, serve_webhook: Callable[[Any], Coroutine[Any, Any, None]]) -> Wiring:
    """Settings and entry point of each service, for this scenario."""
    fair = scenario.fair_sharing
    watcher = WatcherSettings(
        manage_certificates=False, events_per_s=0.2, events_burst=1, status_per_s=5.0, status_burst=5
    )
    scheduler = SchedulerSettings(
        # Wall clock time means nothing here: how much a batch holds is bounded by its size.
        cycle_budget_s=1e9,
        batch_decisions=16,
        max_unsettled=scenario.max_unsettled,
        fair_sharing=fair,
        retry_delay_s=0.25,
        reports_per_s=1.0,
        report_burst=5,
    )
    return {
        "watcher": (watcher, watcher_service.serve),
        "scheduler": (scheduler, scheduler_main.serve),
        "queue_manager": (QueueManagerSettings(fair_sharing=fair, status_interval_s=5.0), serve_queue_manager),
        "preemptor": (PreemptorSettings(victim_timeout_s=10.0), serve_preemptor),
        "provisioning_request": (ProvisioningSettings(), serve_provisioning),
        "webhook": (WebhookSettings(), serve_webhook),
    }


class _Uncounted:
    """In the place of a metric: nobody reads them here, and counting costs as much as the webhook."""

    def labels(self, *_: Any, **__: Any) -> _Uncounted:
        return self

    def inc(self, *_: Any) -> None: ...
    def set(self, *_: Any) -> None: ...
    def observe(self, *_: Any) -> None: ...
    def set_function(self, *_: Any) -> None: ...
    def clear(self) -> None: ...


_UNCOUNTED = _Uncounted()


def _metric(*_: Any, **__: Any) -> _Uncounted:
    return _UNCOUNTED


class Remembered:
    """Decodes each message once for all who read it. They may share it as long as nobody changes it, a map within it least of all: `changed` looks."""

    def __init__(self, decode: Callable[[bytes], Any]) -> None:
        self._decode = decode
        self._known: dict[bytes, Any] = {}

    def __call__(self, data: bytes) -> Any:
        found = self._known.get(data)
        if found is None:
            found = self._known[data] = self._decode(data)
        return found

    def changed(self, every: int = 1) -> Iterator[Any]:
        """Those messages that are not any more what their bytes say; of every so many only one is looked at."""
        for data, found in islice(self._known.items(), 0, None, every):
            if found != self._decode(data):
                yield found


def _untold(_: PublicEvents, __: Change) -> None:
    """The world is not told."""


@contextlib.contextmanager
def wired(world: World) -> Iterator[None]:
    """While it lasts, the services' ways out of the process lead into the world."""

    async def connect(*_: Any, timeout_s: float, **__: Any) -> KubeClient:
        return world.current().client(timeout_s)

    class SeenStore(Store):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            world.current().store = self

    class SeenScheduler(Scheduler):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, clock=world.loop.time, **kwargs)
            world.current().scheduler = self

    with contextlib.ExitStack() as patched:
        for module in (watcher_service, apply, open_commands, scheduler_metrics, preemptor_service):
            for name in ("Counter", "Gauge", "Histogram"):
                if hasattr(module, name):
                    patched.enter_context(mock.patch.object(module, name, _metric))
        remembered = [(codec, Remembered(codec.decode)) for codec in (objects.codec, outcomes.codec, decisions.codec)]
        for codec, decode in remembered:
            patched.enter_context(mock.patch.object(codec, "decode", decode))
        patched.enter_context(mock.patch.object(watcher_service, "connect", connect))
        patched.enter_context(mock.patch.object(watcher_service, "Store", SeenStore))
        patched.enter_context(mock.patch.object(scheduler_main, "Scheduler", SeenScheduler))
        patched.enter_context(mock.patch.object(collector, "expect_large_state"))
        patched.enter_context(mock.patch.object(collector, "state_is_loaded"))
        if not world.scenario.public_events:
            patched.enter_context(mock.patch.object(PublicEvents, "changed", _untold))
        yield
        for _, decode in remembered:
            for message in decode.changed(every=_LOOKED_AT):
                world.invariants.violated(SHARED_UNCHANGED, f"{message} is not what was sent")
