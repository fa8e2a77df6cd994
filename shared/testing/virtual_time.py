"""An event loop whose time jumps: a minute of waiting costs nothing, and the same seed gives the same run whatever the machine does.

1. When nothing is ready the time becomes that of the next timer. With no timer either, nothing can ever happen again: `Idle`.
2. Timers of one moment fire in the order in which they were set. What is ready at once runs first come, first served within one process; between
   processes, which in truth run side by side, the seed chooses whose turn it is.
3. A `Process` is all that runs in the context of its first task. It can be stopped (SIGSTOP: nothing of it runs, its timers are late) and killed
   (SIGKILL: nothing of it ever runs again, not even a `finally`).
4. `machine` gives code that asks the machine itself (clocks, random numbers, unique ids) answers that come from the loop and the seed.

Sets of tasks are ordered by the number of the task, not by its address, so that PYTHONHASHSEED and the memory allocator have no say either.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import heapq
import os
import random as random_module
import sys
import time
import warnings
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextvars import Context, ContextVar, copy_context
from functools import partial
from random import Random
from typing import Any, TypeVar

T = TypeVar("T")

EPOCH = 1_800_000_000.0
"""Seconds since the epoch at which every run begins."""
_TICK_S = 1e-6
COLLECT_EVERY = 5
"""Runs whose remains are thrown away together: looking for them costs as much as a tenth of a run."""
_runs = 0
_SHUFFLED = 0.25
"""How often it is not the first in line whose process goes first."""


class Idle(RuntimeError):
    """Nothing is ready and no timer is set: what is awaited can never happen."""


class _Handle:
    """A callback that is to run. The library's own asks the loop for its debug mode each time, which costs more than all else here."""

    __slots__ = ("args", "callback", "context", "is_cancelled", "moment")

    def __init__(
        self, callback: Callable[..., object], args: tuple[Any, ...], context: Context | None, moment: float
    ) -> None:
        self.callback = callback
        self.args = args
        self.context = copy_context() if context is None else context
        self.is_cancelled = False
        self.moment = moment

    def cancel(self) -> None:
        """It will not run."""
        self.is_cancelled = True
        self.callback, self.args = _nothing, ()

    def cancelled(self) -> bool:
        """Was it cancelled?"""
        return self.is_cancelled

    def when(self) -> float:
        """Of a timer: the loop's time at which it is due."""
        return self.moment


def _nothing() -> None:
    """What is left of a callback that was cancelled."""


class Process:
    """What runs as one operating system process; see `VirtualTimeLoop.spawn`."""

    __slots__ = ("dead", "held", "name", "stopped", "tasks")

    def __init__(self, name: str) -> None:
        self.name = name
        self.stopped = False
        self.dead = False
        self.held: deque[_Handle] = deque()
        """What became ready while it was stopped."""
        self.tasks: list[asyncio.Task[Any]] = []
        """All of them: what is killed must not be told by the end of its frames either."""

    def __repr__(self) -> str:
        return f"<process {self.name}>"


CURRENT: ContextVar[Process | None] = ContextVar("process", default=None)


class _Task(asyncio.Task[Any]):
    """A task that hashes to its number."""

    __slots__ = ("number",)
    number: int

    def __hash__(self) -> int:
        return self.number


class VirtualTimeLoop(asyncio.BaseEventLoop):
    """See the module. `time()` is seconds since the loop was made."""

    def __init__(self, random: Random) -> None:
        super().__init__()
        self._random = random
        self._now = 0.0
        self._ready: deque[_Handle]
        self._timers: list[tuple[float, int, _Handle]] = []
        self._number = 0
        self._tasks_made = 0
        self._nobody = Process("")
        self.create_future = partial(asyncio.Future, loop=self)  # type: ignore[method-assign]
        self.set_task_factory(self._make_task)  # type: ignore[arg-type]

    # --- time and processes ----------------------------------------------------------------------------------------

    def time(self) -> float:
        return self._now

    get_debug = bool
    """False. Every future asks for it, and a type answers without a frame of its own."""

    def wall(self) -> float:
        """Seconds since the epoch."""
        return EPOCH + self._now

    def spawn(self, process: Process, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Begin a process (or go on in it) with this coroutine; all that it starts belongs to the process."""
        context = copy_context()
        context.run(CURRENT.set, process)
        return self.create_task(work, context=context)

    def stop_process(self, process: Process) -> None:
        """SIGSTOP."""
        process.stopped = True

    def continue_process(self, process: Process) -> None:
        """SIGCONT: what became due meanwhile happens now, in its order."""
        process.stopped = False
        self._ready.extend(process.held)
        process.held.clear()

    def kill_process(self, process: Process) -> None:
        """SIGKILL."""
        process.dead = True
        process.held.clear()

    # --- the loop --------------------------------------------------------------------------------------------------

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Any:
        handle = _Handle(callback, args, context, 0.0)
        self._ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Any:
        # A pause too short to move the time would be tried again for ever: whoever waits for the clock needs it to go on.
        when = self._now + ((delay if delay > _TICK_S else _TICK_S) if delay > 0 else 0.0)
        handle = _Handle(callback, args, context, when)
        self._number += 1
        heapq.heappush(self._timers, (when, self._number, handle))
        return handle

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Any:
        handle = _Handle(callback, args, context, when)
        self._number += 1
        heapq.heappush(self._timers, (when, self._number, handle))
        return handle

    def _write_to_self(self) -> None:
        """There is no other thread."""

    def _make_task(
        self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T], context: Context | None = None
    ) -> asyncio.Task[T]:
        self._tasks_made += 1
        task = _Task.__new__(_Task)
        task.number = self._tasks_made
        process = (CURRENT.get() if context is None else context.get(CURRENT)) or self._nobody
        process.tasks.append(task)
        task.__init__(work, loop=loop, context=context)  # type: ignore[misc]
        return task

    def _run_once(self) -> None:
        """Steps 1 and 2, again and again until the loop is told to stop: this is where all the time goes, so it asks little of its caller."""
        ready, timers, current, pop = self._ready, self._timers, CURRENT, heapq.heappop
        take, draw = ready.popleft, self._random.random
        while True:
            while timers and timers[0][2].is_cancelled:
                pop(timers)
            if not ready:
                if not timers:
                    raise Idle("nothing is ready and no timer is set")
                if timers[0][0] > self._now:
                    self._now = timers[0][0]
            now = self._now
            while timers and timers[0][0] <= now:
                handle = pop(timers)[2]
                if not handle.is_cancelled:
                    ready.append(handle)
            count = len(ready)
            if count > 1 and draw() < _SHUFFLED:
                self._let_another_go_first(ready)
            for _ in range(count):
                handle = take()
                if handle.is_cancelled:
                    continue
                context = handle.context
                process = context.get(current)
                if process is not None and (process.dead or process.stopped):
                    if not process.dead:
                        process.held.append(handle)
                    continue
                try:
                    context.run(handle.callback, *handle.args)
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:  # noqa: BLE001 - as every event loop: reported, and the rest goes on
                    self.call_exception_handler({"message": f"exception in {handle.callback}", "exception": error})
            if self._stopping:  # type: ignore[attr-defined]
                return

    def _let_another_go_first(self, ready: deque[_Handle]) -> None:
        """All that is ready of one process, drawn at random, moves to the front."""
        drawn = ready[self._random.randrange(len(ready))].context.get(CURRENT)
        chosen = [handle for handle in ready if handle.context.get(CURRENT) is drawn]
        others = [handle for handle in ready if handle.context.get(CURRENT) is not drawn]
        ready.clear()
        ready.extend(chosen)
        ready.extend(others)

    def close(self) -> None:
        """Forget all that was to happen. What still waits ends here and now, where nobody hears of it."""
        for task in sorted(asyncio.all_tasks(self), key=hash):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            with contextlib.suppress(BaseException):
                task.get_coro().close()
        self._timers.clear()
        super().close()


@contextlib.contextmanager
def unheard() -> Iterator[None]:
    """What is left of a run is thrown away inside: coroutines that end in the middle complain, and it means nothing."""
    told = sys.unraisablehook
    sys.unraisablehook = lambda _: None
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
            global _runs
            if not _runs:
                # What is there before the first run is there for good: not to be looked through after each.
                gc.collect()
                gc.freeze()
            yield
        _runs += 1
        if _runs % COLLECT_EVERY == 0:
            gc.collect()
    finally:
        sys.unraisablehook = told


@contextlib.contextmanager
def machine(loop: VirtualTimeLoop, seed: int) -> Iterator[None]:
    """While it lasts, the machine's clocks are the loop's and its randomness comes from the seed. The garbage collector rests: when it ran,
    and with it the end of what was forgotten in a cycle, would differ from run to run."""
    entropy = Random(seed)
    kept = (time.time, time.time_ns, time.monotonic, time.monotonic_ns, time.perf_counter, os.urandom)
    kept_random = random_module.getstate()
    kept_urandom = random_module._urandom  # type: ignore[attr-defined]
    collecting = gc.isenabled()
    gc.disable()
    try:
        time.time = loop.wall
        time.time_ns = lambda: int(loop.wall() * 1e9)
        time.monotonic = loop.time
        time.monotonic_ns = lambda: int(loop.time() * 1e9)
        time.perf_counter = loop.time
        os.urandom = entropy.randbytes
        random_module._urandom = entropy.randbytes  # type: ignore[attr-defined]
        random_module.seed(seed)
        yield
    finally:
        time.time, time.time_ns, time.monotonic, time.monotonic_ns, time.perf_counter, os.urandom = kept
        random_module._urandom = kept_urandom  # type: ignore[attr-defined]
        random_module.setstate(kept_random)
        if collecting:
            gc.enable()
