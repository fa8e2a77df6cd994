"""Every Event that any test here makes the gateway emit is held to Kueue's table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from services.watcher.kubernetes_events import EventRecorder, EventType, Regarding
from tests.unit.watcher.event_table import fault


@pytest.fixture(autouse=True)
def _events_are_kueues(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    if request.module.__name__.endswith("test_kubernetes_events"):
        # These try the writer with Events of their own.
        yield
        return
    faults: list[str] = []
    emit = EventRecorder.emit

    def watched(
        recorder: EventRecorder, about: Regarding, type_: EventType, reason: str, note: str, **rest: Any
    ) -> None:
        if wrong := fault(about.kind, reason, type_):
            faults.append(wrong)
        emit(recorder, about, type_, reason, note, **rest)

    monkeypatch.setattr(EventRecorder, "emit", watched)
    yield
    assert faults == []
