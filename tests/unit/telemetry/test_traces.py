"""The trace of a job is its UID, in whatever process; and a collector gets it, or holds up nothing."""

from __future__ import annotations

import json
import time
import uuid
from pathlib import Path

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from shared.telemetry import traces
from tests.collector import Collector

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


def spend(provider: TracerProvider, count: int) -> None:
    tracer = provider.get_tracer("test")
    for number in range(count):
        with tracer.start_as_current_span("watcher.start_job", context=traces.context_of_job(UID)) as span:
            span.set_attribute("number", number)


@pytest.mark.parametrize("path", ["", "/", "/v1/traces"])
def test_a_collector_gets_the_spans_of_the_job(path: str) -> None:
    with Collector() as collector:
        provider = traces.setup("watcher", "", collector.url + path)
        spend(provider, 3)
        traces.shutdown(provider, 10)
        spans = collector.spans()
    assert collector.paths == {"/v1/traces"}
    assert collector.headers["content-type"] == "application/x-protobuf"
    assert {service for service, _ in spans} == {"sluice-watcher"}
    assert [span.name for _, span in spans] == ["watcher.start_job"] * 3
    assert {span.trace_id.hex() for _, span in spans} == {uuid.UUID(UID).hex}
    assert [span.attributes[0].value.int_value for _, span in spans] == [0, 1, 2]


def test_headers_for_the_collector_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20abc")
    with Collector() as collector:
        provider = traces.setup("watcher", "", collector.url)
        spend(provider, 1)
        traces.shutdown(provider, 10)
    assert collector.headers["authorization"] == "Bearer abc"
    assert b"abc" not in collector.bodies[0]


def test_what_an_exception_says_stays_here() -> None:
    with Collector() as collector:
        provider = traces.setup("watcher", "", collector.url)
        with (
            pytest.raises(ValueError),
            provider.get_tracer("test").start_as_current_span("s", context=traces.context_of_job(UID)),
        ):
            raise ValueError("token=hunter2")
        traces.shutdown(provider, 10)
        ((_, span),) = collector.spans()
    assert b"hunter2" not in collector.bodies[0]
    assert (span.status.code, span.status.message) == (2, "")
    (event,) = span.events
    assert [(a.key, a.value.string_value) for a in event.attributes] == [("exception.type", "ValueError")]


def test_a_collector_that_never_answers_holds_up_nothing() -> None:
    with Collector() as collector:
        collector.answering.clear()
        provider = traces.setup("watcher", "", collector.url)
        started = time.monotonic()
        # Far more than are kept.
        spend(provider, 5000)
        assert collector.wait_for(1, 10)
        spend(provider, 5000)
        used = time.monotonic() - started
        before = time.monotonic()
        traces.shutdown(provider, 0.3)
        assert time.monotonic() - before < 1
    assert used < 5


def test_down_and_up_again_are_told_once_each(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="sluice.traces")
    with Collector() as collector:
        exporter = traces.CollectorExporter(collector.url)
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        for status, count in ((400, 2), (200, 2), (400, 1)):
            collector.status = status
            spend(provider, count)
        exporter.shutdown()
    assert [r.message for r in caplog.records] == [
        "the collector takes no spans: those of this time are lost",
        "the collector takes spans again",
        "the collector takes no spans: those of this time are lost",
    ]


def test_nobody_listens() -> None:
    with Collector() as gone:
        url = gone.url
    provider = traces.setup("watcher", "", url)
    spend(provider, 10)
    before = time.monotonic()
    traces.shutdown(provider, 0.3)
    assert time.monotonic() - before < 1
