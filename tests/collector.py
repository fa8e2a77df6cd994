"""An OpenTelemetry collector for tests: takes spans over HTTP as a real one does, keeps them, and can be told to be slow or to refuse."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span


class Collector:
    """Listens on a free port of the loopback. `status`: what it answers; `answering`: it answers only while this is set."""

    def __init__(self) -> None:
        self.status = 200
        self.answering = threading.Event()
        self.answering.set()
        self.bodies: list[bytes] = []
        self.paths: set[str] = set()
        self.headers: dict[str, str] = {}
        self._arrived = threading.Condition()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def spans(self) -> list[tuple[str, Span]]:
        """(service, span) of all that it took."""
        found = []
        with self._arrived:
            bodies = list(self.bodies)
        for body in bodies:
            for group in ExportTraceServiceRequest.FromString(body).resource_spans:
                (service,) = [a.value.string_value for a in group.resource.attributes if a.key == "service.name"]
                found += [(service, span) for scope in group.scope_spans for span in scope.spans]
        return found

    def wait_for(self, count: int, seconds: float) -> bool:
        """Whether so many requests have come within that time."""
        with self._arrived:
            return self._arrived.wait_for(lambda: len(self.bodies) >= count, seconds)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.answering.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                with collector._arrived:
                    collector.bodies.append(body)
                    collector.paths.add(self.path)
                    collector.headers = {k.lower(): v for k, v in self.headers.items()}
                    collector._arrived.notify_all()
                collector.answering.wait()
                self.send_response(collector.status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                """Quiet."""

        return Handler
