"""The faults' part: load, faults in an order that the seed draws, and the verdict."""

from __future__ import annotations

import asyncio
import contextlib
import random
import shutil
import time
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
from rich.console import Console

from cli.observe import Observer, observing
from shared.kube.client import KubeClient
from tests.chaos.faults import Fault, faults
from tests.chaos.judge import Judge
from tests.chaos.load import QUEUES, Load
from tests.chaos.release import RELEASES, missing_versions, upgrades
from tests.chaos.report import Report
from tests.chaos.wiring import WiredStack
from tests.integration.stack.manifests import as_list

ACTIVE_S = 30.0
STALLED_S = 60.0
"""Nothing admitted for so long, although somebody waits: it will not get better by itself."""
TELL_EVERY_S = 15.0
FINISH_S = 240.0
"""For what is left when the last fault is over."""
WARM = 5
"""Admissions before the first fault."""
SETTLE_S = 1.0
"""Load between one fault's recovery and the next."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """See `python -m tests.chaos --help`."""

    jobs: int = 1000
    storm_jobs: int = 200
    seed: int = 1
    parts: tuple[str, ...] = ("faults", "storm")
    only: str = ""
    keep: str = ""


class Stalled(Exception):
    """Nothing is admitted although it should be."""


@contextlib.asynccontextmanager
async def judged(
    options: Options, console: Console, part: str
) -> AsyncIterator[tuple[WiredStack, KubeClient, Observer, Judge]]:
    """A stack, and a judge of what happens in it. Logs are kept where the options say, or on an error in a folder that is named."""
    async with WiredStack(console) as stack:
        if stack.no_disk:
            console.print(f"no small disk on this machine: {stack.no_disk}")
        try:
            async with observing(stack.cluster.kubeconfig) as (client, seen):
                judge = Judge()
                seen.verifier = judge
                yield stack, client, seen, judge
        except BaseException:
            keep_logs(stack, Path(options.keep or f"chaos-logs-{options.seed}"), part, console)
            raise
        if options.keep:
            keep_logs(stack, Path(options.keep), part, console)


def keep_logs(stack: WiredStack, folder: Path, part: str, console: Console) -> None:
    """Of services, NATS and the control plane."""
    target = folder / part
    shutil.copytree(stack.folder / "logs", target, dirs_exist_ok=True)
    with contextlib.suppress(OSError):
        shutil.copy(stack.nats.data_dir / "nats.log", target)
        shutil.copytree(stack.folder / "cluster" / "logs", target / "cluster", dirs_exist_ok=True)
    console.print(f"logs: {target}", soft_wrap=True)


class Faults:
    """One run of them."""

    def __init__(self, stack: WiredStack, judge: Judge, load: Load, report: Report, console: Console) -> None:
        self._stack = stack
        self._judge = judge
        self._load = load
        self._report = report
        self._console = console
        self._began = time.monotonic()
        self._done = 0

    async def one(self, fault: Fault, draw: random.Random, total: int) -> None:
        """Do it, wait for the recovery, say so. Raises Stalled."""
        self._done += 1
        self._load.may_create = self._load.count * (self._done + 1) // (total + 1)
        begin, admissions = time.monotonic(), self._judge.pauses.admissions
        await fault.do(self._stack, draw)
        repaired = self._judge.pauses.admissions
        await self._recovered(fault, repaired)
        pause = self._judge.pauses.longest(begin)
        self._report.fault(fault.name, pause)
        load = self._load
        self._console.print(
            f"{self._clock()} [{self._done}/{total}] {fault.name}: admissions paused {pause:.1f} s, {self._judge.pauses.admissions - admissions} meanwhile; "
            f"{load.created} created, {len(self._judge.pauses.waiting)} waiting, {load.finished} of {load.count} finished",
            soft_wrap=True,
        )
        if pause > fault.lasts_s + fault.grace_s:
            self._report.problems.append(
                f"slow: {fault.name}: admissions paused {pause:.1f} s, expected at most {fault.lasts_s + fault.grace_s:.0f} s"
            )
        await asyncio.sleep(SETTLE_S)

    async def rest(self, loading: asyncio.Task[None]) -> None:
        """Until every Job has finished. Raises Stalled."""
        deadline = time.monotonic() + FINISH_S
        tell_at = 0.0
        while not self._load.has_finished():
            if loading.done():
                loading.result()
            if time.monotonic() > tell_at:
                tell_at = time.monotonic() + TELL_EVERY_S
                self._console.print(f"{self._clock()} the rest: {self._load.finished} of {self._load.count} finished")
            if self._judge.pauses.present() > STALLED_S or time.monotonic() > deadline:
                raise Stalled(f"after the last fault, unfinished: {self._judge.stories()}")
            await asyncio.sleep(0.1)

    async def _recovered(self, fault: Fault, repaired: int) -> None:
        """Everybody is ready, and something was admitted since the repair, unless nothing waits."""
        await self._stack.wait_ready(60)
        pauses = self._judge.pauses
        while pauses.admissions == repaired and pauses.waiting:
            if pauses.present() > STALLED_S + fault.lasts_s:
                raise Stalled(f"{fault.name}: nothing admitted for {pauses.present():.0f} s: {self._judge.stories()}")
            await asyncio.sleep(0.05)

    def _clock(self) -> str:
        passed = int(time.monotonic() - self._began)
        return f"{passed // 60}:{passed % 60:02}"


async def run_faults(options: Options, console: Console, report: Report) -> None:
    """The part with all kinds of faults."""
    try:
        async with judged(options, console, "faults") as (stack, client, seen, judge):
            await stack.cluster.kubectl("apply", "-f", "-", stdin=as_list(*QUEUES))
            if not await seen.until(lambda: len(seen.cluster_queues) == 2, ACTIVE_S):
                raise Stalled("the ClusterQueues were not seen")
            load = Load(client, judge, options.jobs, random.Random(options.seed + 1))
            await _break(options, stack, seen, judge, load, report, console)
            await stack.wait_ready()
            _verdict(load, seen, judge, report)
    except (Stalled, TimeoutError) as error:
        report.problems.append(str(error))


async def _break(
    options: Options, stack: WiredStack, seen: Observer, judge: Judge, load: Load, report: Report, console: Console
) -> None:
    """Every kind of fault, then a rolling upgrade; returns when all Jobs are created."""
    draw = random.Random(options.seed)
    planned = list(faults(stack))
    draw.shuffle(planned)
    planned = [fault for fault in (*planned, *upgrades(draw)) if options.only in fault.name]
    loading = asyncio.create_task(load.run())
    load.may_create = load.count // (len(planned) + 1)
    if not await seen.until(lambda: judge.pauses.admissions >= min(WARM, load.may_create), ACTIVE_S):
        raise Stalled("nothing was admitted before the first fault")
    breaking = Faults(stack, judge, load, report, console)
    try:
        for fault in planned:
            await breaking.one(fault, draw, len(planned))
            if loading.done():
                loading.result()
        load.may_create = load.count
        if stack.release == RELEASES[-1]:
            report.problems += [f"no upgrade: no {name} in version 2" for name in await missing_versions(stack)]
        await breaking.rest(loading)
    finally:
        loading.cancel()
        await asyncio.wait({loading})


def _verdict(load: Load, seen: Observer, judge: Judge, report: Report) -> None:
    wanted = {f"default/j{number:04}" for number in range(load.count)}
    found = {job.key for job in judge.jobs.values()}
    report.problems += [f"lost: {name} was never seen" for name in sorted(wanted - found)]
    judge.finish(expected=list(judge.jobs))
    report.problems += [*judge.problems, *(f"malformed: {what}" for what in seen.malformed)]
    evictions = sum(len(messages) for messages in judge.evictions.values())
    peak = max(judge.peak.values(), default=0)
    report.notes.append(
        f"{len(found)} Jobs, {judge.pauses.admissions} admissions, {evictions} evictions; a queue used up to {peak} milli-CPU"
    )
