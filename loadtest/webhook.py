"""The shape `webhook`: 200 reviews a second to a webhook of its own, over HTTPS as the API server sends them, and how long each answer takes.

1. An API server, NATS, the gateway and one webhook start; a queue is made, and the webhook knows it.
2. Reviews (`reviews`) are sent at fixed times, whether earlier ones are answered or not, over connections that are kept.
3. An answer's time counts from the moment the review was due: what waits behind a slow one is slow too.

The report is the common one. Percentiles hold what the client and TLS cost as well.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import ssl
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping

import aiohttp
import msgspec
from rich.console import Console

from devcluster.options import ClusterOptions
from devcluster.stack import NAMESPACE, WITH_KUBERNETES, Stack
from loadtest import report as reports
from loadtest.percentiles import Distribution, distribution
from loadtest.processes import ProcessUsage, busy_s
from loadtest.reviews import NAMESPACE as REVIEWED
from loadtest.reviews import QUEUE, Review, cluster_queue, reviews
from loadtest.shape import Threshold
from loadtest.thresholds import check
from shared.kube.client import connect
from shared.kube.resources import CLUSTER_QUEUES, LOCAL_QUEUES, NAMESPACES, RESOURCE_FLAVORS, Resource

NAME = "webhook"
RATE = 200
"""Reviews a second."""
SECONDS = 60
WARM_UP = 200
"""The first reviews, which make the connections; they are not counted."""
ANSWER_S = 10.0
THRESHOLDS = (
    Threshold(figure="wrong", max=0),
    Threshold(figure="answered_per_s", min=RATE * 0.99),
    *(Threshold(figure=f"{what}_ms.p99", max=20) for what in ("answer", "mutate", "validate", "convert")),
)


class Timings:
    """What came of the reviews: seconds by group, and problems in words."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = defaultdict(list)
        self.late_s = 0.0
        self.problems: list[str] = []

    def answered(self, review: Review, body: bytes, seconds: float) -> None:
        """Note one answer."""
        self.seconds[review.what].append(seconds)
        if not review.is_answered(body):
            self.problems.append(f"{review.path}: {body[:300].decode(errors='replace')}")

    def durations(self) -> dict[str, Distribution]:
        """Milliseconds: of all admission reviews and conversions of one object together, and of each group."""
        groups = {
            f"{what}_ms": distribution(s * 1000 for s in found) for what, found in sorted(self.seconds.items()) if found
        }
        single = [s * 1000 for what, found in self.seconds.items() if what != "convert_list" for s in found]
        return {"answer_ms": distribution(single), **groups}


async def send(url: str, count: int, rate: float) -> Timings:
    """Send `count` reviews. `url`: of the webhook, without a path."""
    timings = Timings()
    # The authority is the gateway's own; what the checking of it costs is a client's business.
    trusting = ssl.create_default_context()
    trusting.check_hostname = False
    trusting.verify_mode = ssl.CERT_NONE
    connector = aiohttp.TCPConnector(limit=0, ssl=trusting, keepalive_timeout=60)
    timeout = aiohttp.ClientTimeout(total=ANSWER_S)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        made = [review for review, _ in zip(reviews(), range(WARM_UP + count), strict=False)]
        # A burst, so that there are connections enough for any moment of the run.
        await asyncio.gather(*(_one(session, url, review, time.perf_counter(), None) for review in made[:WARM_UP]))
        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for number, review in enumerate(made[WARM_UP:]):
                due = began + number / rate
                await asyncio.sleep(due - time.perf_counter())
                timings.late_s = max(timings.late_s, time.perf_counter() - due)
                group.create_task(_one(session, url, review, due, timings))
    return timings


async def _one(session: aiohttp.ClientSession, url: str, review: Review, due: float, timings: Timings | None) -> None:
    headers = {"Content-Type": "application/json"}
    try:
        async with session.post(url + review.path, data=review.body, headers=headers) as answer:
            answer.raise_for_status()
            body = await answer.read()
    except (aiohttp.ClientError, TimeoutError) as error:
        if timings is not None:
            timings.problems.append(f"{review.path}: {error or type(error).__name__}")
        return
    if timings is not None:
        timings.answered(review, body, time.perf_counter() - due)


async def _prepare(stack: Stack) -> None:
    meta: dict[Resource, dict[str, object]] = {
        NAMESPACES: {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": REVIEWED}},
        RESOURCE_FLAVORS: {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "ResourceFlavor",
            "metadata": {"name": "default"},
        },
        CLUSTER_QUEUES: cluster_queue(),
        LOCAL_QUEUES: {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "LocalQueue",
            "metadata": {"name": QUEUE},
            "spec": {"clusterQueue": "queue"},
        },
    }
    async with await connect(str(stack.cluster.kubeconfig), user_agent="sluice-loadtest", timeout_s=10.0) as client:
        for resource, document in meta.items():
            await client.create(resource, REVIEWED if resource.namespaced else "", msgspec.json.encode(document))


@contextlib.asynccontextmanager
async def _stack(console: Console) -> AsyncIterator[Stack]:
    options = ClusterOptions(with_controllers=False, with_scheduler=False, with_kwok=False)
    async with Stack(options, console=console, services=("watcher", "webhook")) as stack:
        await _prepare(stack)
        yield stack


async def measure(console: Console, *, seconds: float = SECONDS, rate: float = RATE) -> reports.Report:
    """Start everything, send, end everything."""
    async with _stack(console) as stack:

        def pids() -> Mapping[str, int]:
            own = {name: s.process.pid for name, s in stack.services.items() if s.process.running}
            return {**stack.cluster.pids, **own, "load runner": os.getpid()}

        usage = ProcessUsage(pids)
        load_before, busy_before = os.getloadavg()[0], busy_s()
        usage.look()
        began = time.time()
        sampling = asyncio.create_task(usage.run())
        try:
            timings = await send(f"https://127.0.0.1:{stack.webhook_port}", int(rate * seconds), rate)
        finally:
            sampling.cancel()
        usage.look()
        wall_s = time.time() - began
        used = usage.usage()
    durations = timings.durations()
    answered = sum(len(found) for found in timings.seconds.values())
    figures = {
        "wall_s": wall_s,
        "answered": float(answered),
        "answered_per_s": answered / seconds,
        "wrong": float(len(timings.problems)),
        "lateness_ms.max": timings.late_s * 1000,
        **{f"{name}.{field}": getattr(d, field) for name, d in durations.items() for field in ("p50", "p99", "max")},
        **{f"cpu_s.{process.name}": process.cpu_s for process in used},
    }
    others = busy_s() - busy_before - sum(process.cpu_s for process in used)
    return reports.Report(
        shape=NAME,
        title=f"{rate:g} reviews a second for {seconds:g} s",
        target=f"sluice ({', '.join(WITH_KUBERNETES)} in {NAMESPACE})",
        kind="AdmissionReview, ConversionReview",
        items=int(rate * seconds),
        began=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(began)),
        machine=reports.machine(load_before, max(0.0, others / wall_s)),
        figures=figures,
        durations=durations,
        steps={},
        writes=(),
        writes_on_path={},
        processes=used,
        checks=check(figures, THRESHOLDS),
        problems=tuple(timings.problems),
    )


async def run(arguments: argparse.Namespace, console: Console) -> int:
    """Measure, write the report, show it. Exit code: 1 for a wrong answer, or with `--check` for a threshold that was missed."""
    seconds = SECONDS if arguments.count is None else arguments.count / RATE
    report = await measure(console, seconds=seconds)
    _, as_text = reports.write(report)
    for one in report.checks:
        value = "missing" if one.value is None else f"{one.value:.2f}"
        console.print(f"{'[green]✓[/]' if one.met else '[red]✗[/]'} {one.figure}: {value}, {one.limit}")
    for problem in report.problems[: reports.SHOWN_PROBLEMS]:
        console.print(problem, soft_wrap=True, markup=False)
    console.print(f"Report: {as_text}", soft_wrap=True)
    return 1 if report.problems or (arguments.check and not report.passed) else 0
