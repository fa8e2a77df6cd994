"""One trace per job, over all services, without any state.

The trace id is the UID of the job (a UUID has the 128 bits that a trace id needs), so that a service that restarts goes on in the same
trace. Between services the context travels as a W3C `traceparent`, in message headers and in the `trace` field of decisions and commands.

Spans go to a file, to a collector (OTLP over HTTP), to both or nowhere. Whatever becomes of them, the service does not notice: they are handed over by
threads of their own, dropped when there are too many, and waited for at the end no longer than told.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import uuid
from collections.abc import Sequence
from pathlib import Path

import msgspec
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

log = logging.getLogger("sluice.traces")

OTLP_PATH = "/v1/traces"
OTLP_TIMEOUT_S = 2.0
"""For one batch, tries again included."""

_propagator = TraceContextTextMapPropagator()


def setup(service: str, span_file: str, otlp_endpoint: str = "") -> TracerProvider:
    """A provider for one process. `otlp_endpoint`: base URL of a collector, `http://collector:4318`; OTEL_EXPORTER_OTLP_HEADERS and the like apply."""
    provider = TracerProvider(resource=Resource.create({"service.name": f"sluice-{service}"}), shutdown_on_exit=False)
    if span_file:
        provider.add_span_processor(BatchSpanProcessor(JsonLinesExporter(Path(span_file)), schedule_delay_millis=500))
    if otlp_endpoint:
        provider.add_span_processor(BatchSpanProcessor(CollectorExporter(otlp_endpoint), schedule_delay_millis=1000))
    return provider


def shutdown(provider: TracerProvider, timeout_s: float) -> None:
    """Hand over what is left, for `timeout_s` at the most."""
    closing = threading.Thread(target=provider.shutdown, name="traces-shutdown", daemon=True)
    closing.start()
    closing.join(timeout_s)


def context_of_job(uid: str) -> Context:
    """The root context of the trace that belongs to this job (or workload) UID."""
    try:
        trace_id = uuid.UUID(uid).int
    except ValueError:
        trace_id = int.from_bytes(hashlib.blake2s(uid.encode(), digest_size=16).digest())
    parent = trace.SpanContext(
        trace_id=trace_id or 1,
        span_id=(trace_id & 0xFFFF_FFFF_FFFF_FFFF) or 1,
        is_remote=True,
        trace_flags=trace.TraceFlags(trace.TraceFlags.SAMPLED),
    )
    return trace.set_span_in_context(trace.NonRecordingSpan(parent), Context())


def context_of(traceparent: str, uid: str = "") -> Context:
    """The context that a `traceparent` carries; without one, that of the job `uid`."""
    if traceparent:
        return _propagator.extract({"traceparent": traceparent}, context=Context())
    return context_of_job(uid) if uid else Context()


def traceparent_of(span: trace.Span) -> str:
    """The `traceparent` that makes `span` the parent of what follows; empty if it has no valid context."""
    carrier: dict[str, str] = {}
    _propagator.inject(carrier, context=trace.set_span_in_context(span, Context()))
    return carrier.get("traceparent", "")


class JsonLinesExporter(SpanExporter):
    """Appends finished spans to a file, one JSON object a line: name, traceId, spanId, parentSpanId, service, startNs, endNs, attributes."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        lines = [
            msgspec.json.encode(
                {
                    "name": span.name,
                    "traceId": f"{span.context.trace_id:032x}",
                    "spanId": f"{span.context.span_id:016x}",
                    "parentSpanId": f"{span.parent.span_id:016x}" if span.parent else "",
                    "service": span.resource.attributes.get("service.name", ""),
                    "startNs": span.start_time,
                    "endNs": span.end_time,
                    "attributes": dict(span.attributes or {}),
                },
                enc_hook=str,
            )
            for span in spans
            if span.context is not None
        ]
        with self._path.open("ab") as out:
            out.write(b"\n".join(lines) + b"\n")
        return SpanExportResult.SUCCESS


class CollectorExporter(SpanExporter):
    """Sends spans to a collector: OTLP over HTTP, protobuf. Tells the log once when that stops working and once when it works again."""

    def __init__(self, endpoint: str) -> None:
        # Takes a tenth of a second, and most processes never need it.
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        # It would tell of every batch.
        logging.getLogger("opentelemetry.exporter").setLevel(logging.CRITICAL)
        base = endpoint.rstrip("/").removesuffix(OTLP_PATH)
        self._inner = OTLPSpanExporter(endpoint=base + OTLP_PATH, timeout=OTLP_TIMEOUT_S)
        self._works = True

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = self._inner.export([_without_texts(span) for span in spans])
        works = result is SpanExportResult.SUCCESS
        if works != self._works:
            self._works = works
            if works:
                log.info("the collector takes spans again")
            else:
                log.warning("the collector takes no spans: those of this time are lost")
        return result

    def shutdown(self) -> None:
        self._inner.shutdown()  # type: ignore[no-untyped-call]


def _without_texts(span: ReadableSpan) -> ReadableSpan:
    """The span with the types of its exceptions only: what an API server says about an object may quote that object, and belongs into the log."""
    events = [
        Event(e.name, {k: v for k, v in (e.attributes or {}).items() if k == "exception.type"}, e.timestamp)
        for e in span.events
    ]
    return ReadableSpan(
        name=span.name,
        context=span.context,
        parent=span.parent,
        resource=span.resource,
        attributes=span.attributes,
        events=events,
        links=span.links,
        kind=span.kind,
        status=trace.Status(span.status.status_code),
        start_time=span.start_time,
        end_time=span.end_time,
        instrumentation_scope=span.instrumentation_scope,
    )
