"""One trace per job, over all services, without any state.

The trace id is the UID of the job (a UUID has the 128 bits that a trace id needs), so that a service that restarts goes on in the same
trace. Between services the context travels as a W3C `traceparent`, in message headers and in the `trace` field of decisions and commands.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Sequence
from pathlib import Path

import msgspec
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

_propagator = TraceContextTextMapPropagator()


def setup(service: str, span_file: str) -> TracerProvider:
    """A provider for one process; spans are only recorded and kept when there is a file for them."""
    provider = TracerProvider(resource=Resource.create({"service.name": f"sluice-{service}"}))
    if span_file:
        provider.add_span_processor(BatchSpanProcessor(JsonLinesExporter(Path(span_file)), schedule_delay_millis=500))
    return provider


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
