"""The trace of a job is its UID, in whatever process."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

from opentelemetry import trace

from shared.telemetry import traces

UID = "6d7ab0a1-2f4e-4d0e-9a52-0f6e2d6b7c11"


def test_the_trace_id_is_the_uid_of_the_job(tmp_path: Path) -> None:
    provider = traces.setup("scheduler", str(tmp_path / "spans.jsonl"))
    tracer = provider.get_tracer("test")
    with tracer.start_as_current_span("outer", context=traces.context_of_job(UID), attributes={"a": 1}) as outer:
        carried = traces.traceparent_of(outer)
    with tracer.start_as_current_span("inner", context=traces.context_of(carried, "ignored")) as inner:
        assert f"{inner.get_span_context().trace_id:032x}" == uuid.UUID(UID).hex
    provider.shutdown()
    first, second = (json.loads(text) for text in (tmp_path / "spans.jsonl").read_text().splitlines())
    assert first["traceId"] == second["traceId"] == uuid.UUID(UID).hex
    assert second["parentSpanId"] == first["spanId"]
    assert (first["service"], first["attributes"]) == ("sluice-scheduler", {"a": 1})


def test_what_is_no_uuid_still_makes_one_trace() -> None:
    def trace_id(uid: str) -> int:
        return trace.get_current_span(traces.context_of_job(uid)).get_span_context().trace_id

    assert trace_id("odd") == trace_id("odd") != trace_id("other")


def test_without_a_traceparent_the_job_decides() -> None:
    context = traces.context_of("", UID)
    assert trace.get_current_span(context).get_span_context().trace_id == uuid.UUID(UID).int
    assert not trace.get_current_span(traces.context_of("")).get_span_context().is_valid
    assert not trace.get_current_span(traces.context_of("garbage")).get_span_context().is_valid
