"""One API server with our definitions and webhooks, shared by all cases that need one, on a thread of its own.

It starts with the first case that asks; whoever runs cases says `stop` in the end. Nothing is built for it.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from devcluster.binaries import existing_binary, module_of
from devcluster.build import built_directory
from tests.conformance.scenario import Unavailable
from tests.integration.admission_server import PROGRAMS, Admission, serving

T = TypeVar("T")
START_S = 120.0
CALL_S = 60.0


def missing() -> str:
    """Why there can be no API server here; empty if there can."""
    lacking = [
        name
        for name in PROGRAMS
        if existing_binary(name, os.environ) is None and not built_directory(module_of(name)).is_dir()
    ]
    return f"no {', '.join(lacking)} here; `python -m devcluster build` makes them" if lacking else ""


class Live:
    """States: made, started by the first call, stopped."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._server: Future[Admission] = Future()

    def server(self) -> Admission:
        """Raises Unavailable, or whatever kept it from starting (each time)."""
        if self._thread is None:
            if why := missing():
                raise Unavailable(why)
            # A daemon, lest a runner that forgot to stop it hangs.
            self._thread = threading.Thread(target=asyncio.run, args=(self._serve(),), name="api-server", daemon=True)
            self._thread.start()
        return self._server.result(START_S)

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        try:
            async with serving() as server:
                self._server.set_result(server)
                await self._stop.wait()
        except BaseException as error:
            if self._server.done():
                raise
            self._server.set_exception(error)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The outcome of some work with the server."""
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(CALL_S)

    def stop(self) -> None:
        """End it, if it runs. It may be started again."""
        thread, loop, stop = self._thread, self._loop, self._stop
        if thread is not None and loop is not None and stop is not None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(stop.set)
            thread.join(START_S)
        self._thread, self._server = None, Future()


LIVE = Live()
