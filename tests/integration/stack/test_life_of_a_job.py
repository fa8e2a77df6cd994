"""What a user sees of a Job from `kubectl create` to Complete: columns, conditions, Events, the public events, one trace."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest
import yaml

from cli.observe import Observer
from devcluster.stack import ROOT, Stack
from shared.api.conditions import is_true
from shared.kube.client import KubeClient
from tests.eventually import eventually
from tests.integration.stack.manifests import as_list, create_job, job, queue

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="session")]

SAMPLES = ROOT.parent / "shared" / "samples"
Watched = tuple[KubeClient, Observer]


async def events_of(stack: Stack, name: str) -> list[str]:
    """Reasons of the Events about the object of that name, oldest first."""
    listed = await stack.cluster.kubectl("get", "events.events.k8s.io", "-n", "default", "-o", "json")
    found = [e for e in json.loads(listed)["items"] if e["regarding"]["name"] == name]
    found.sort(key=lambda e: (e["eventTime"] or "", int(e["metadata"]["resourceVersion"])))
    return [e["reason"] for e in found]


async def test_a_job_from_creation_to_complete(stack: Stack, watched: Watched) -> None:
    client, seen = watched
    await stack.cluster.kubectl("apply", "-f", "-", stdin=as_list(*queue("life")))
    uid = await create_job(client, job("life-job", "life", pods=3))
    assert await seen.until(lambda: "default/life-job" in seen.jobs and seen.jobs["default/life-job"].complete, 30)
    workload = next(w for w in seen.workloads.values() if w.metadata.labels.get("kueue.x-k8s.io/job-uid") == uid)
    assert await seen.until(lambda: is_true(seen.workloads[workload.metadata.key].status.conditions, "Finished"), 10)
    assert uid in seen.verifier.waited

    wanted = {"CreatedWorkload", "Started", "FinishedWorkload"}
    found = await eventually(lambda: events_of(stack, "life-job"), 10, wanted.issubset)
    assert found.index("CreatedWorkload") < found.index("Started") < found.index("FinishedWorkload")
    reserved = await events_of(stack, workload.metadata.name)
    assert reserved.index("QuotaReserved") < reserved.index("Admitted")
    described = await stack.cluster.kubectl("describe", "workload", workload.metadata.name)
    assert "Admitted by ClusterQueue life" in described

    row = await stack.cluster.kubectl("get", "workloads", workload.metadata.name)
    header, values = (line.split() for line in row.splitlines())
    assert header == ["NAME", "QUEUE", "RESERVED", "IN", "ADMITTED", "FINISHED", "AGE"]
    assert values[1:5] == ["life", "life", "True", "True"]
    assert (await stack.cluster.kubectl("get", "cq")).split()[:4] == ["NAME", "COHORT", "PENDING", "WORKLOADS"]
    assert (await stack.cluster.kubectl("get", "lq")).split()[:6] == [
        "NAME", "CLUSTERQUEUE", "PENDING", "WORKLOADS", "ADMITTED", "WORKLOADS",
    ]  # fmt: skip


@pytest.mark.skipif(not SAMPLES.exists(), reason="the manifests of Kueue's documentation are not beside this checkout")
async def test_the_documented_samples_run_unmodified(stack: Stack, watched: Watched) -> None:
    _, seen = watched
    before = set(seen.jobs)
    await stack.cluster.kubectl("apply", "-f", str(SAMPLES / "admin/single-clusterqueue-setup.yaml"))
    created = await stack.cluster.kubectl("create", "-f", str(SAMPLES / "jobs/sample-job.yaml"), "-o", "json")
    document = json.loads(created)
    assert document["spec"]["suspend"] is True
    key = f"default/{document['metadata']['name']}"
    assert key not in before
    assert await seen.until(lambda: key in seen.jobs and seen.jobs[key].complete, 60)
    assert document["metadata"]["uid"] in seen.verifier.waited


async def test_the_example_subscriber_prints_one_jobs_life_in_order(stack: Stack, watched: Watched) -> None:
    client, _ = watched
    await stack.cluster.kubectl("apply", "-f", "-", stdin=as_list(*queue("printed")))
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(ROOT / "examples/print_events.py"), stack.reader_url,
        stdout=asyncio.subprocess.PIPE, env=dict(os.environ),
    )  # fmt: skip
    assert process.stdout is not None
    try:
        async with asyncio.timeout(30):
            # The subscription is live once an event of a first Job arrives.
            lines: list[str] = []
            number = 0
            while not lines:
                number += 1
                await create_job(client, job(f"warm-up-{number}", "printed", "10m"))
                try:
                    lines.append((await asyncio.wait_for(process.stdout.readline(), 2)).decode())
                except TimeoutError:
                    continue
            await create_job(client, job("printed-job", "printed", "10m"))
            events: list[str] = []
            while "finished" not in events:
                words = (await process.stdout.readline()).decode().split()
                if words[2].startswith("default/job-printed-job-"):
                    events.append(words[1])
    finally:
        process.kill()
        await process.wait()
    assert events == ["created", "queued", "admitted", "started", "finished"]


async def test_one_trace_follows_a_job_over_the_services(stack: Stack, watched: Watched) -> None:
    client, seen = watched
    await stack.cluster.kubectl("apply", "-f", "-", stdin=as_list(*queue("traced")))
    uid = await create_job(client, job("traced-job", "traced"))
    assert await seen.until(lambda: "default/traced-job" in seen.jobs and seen.jobs["default/traced-job"].complete, 30)
    trace = uid.replace("-", "")

    async def look() -> list[dict[str, str]]:
        return spans_of(stack.folder, trace)

    spans = await eventually(look, 15, lambda found: any("start" in s["name"] for s in found))
    services = {s["service"] for s in spans}
    assert services == {"sluice-watcher", "sluice-scheduler"}
    decided = next(s for s in spans if s["service"] == "sluice-scheduler")
    seen_first = next(s for s in spans if s["name"] == "watcher.job_seen")
    assert decided["parentSpanId"] == seen_first["parentSpanId"], "both hang on the root that the job's UID makes"
    applied = [s for s in spans if s["parentSpanId"] == decided["spanId"]]
    assert {s["service"] for s in applied} == {"sluice-watcher"}


def spans_of(folder: Path, trace: str) -> list[dict[str, str]]:
    """Finished spans of one trace, of all services."""
    spans = []
    for path in folder.glob("spans-*.jsonl"):
        spans += [json.loads(line) for line in path.read_text().splitlines() if line]
    return [s for s in spans if s["traceId"] == trace]


async def test_an_unused_queue_shows_zeros(stack: Stack, watched: Watched) -> None:
    _, seen = watched
    await stack.cluster.kubectl("apply", "-f", "-", stdin=as_list(*queue("unused")))
    assert await seen.until(lambda: bool(seen.cluster_queues["unused"].status.conditions), 15)
    assert (await stack.cluster.kubectl("get", "cq", "unused", "-o", "wide")).split()[-4:] == [
        "unused", "BestEffortFIFO", "0", "0",
    ]  # fmt: skip


async def test_status_of_queues_counts_and_usage(stack: Stack, watched: Watched) -> None:
    client, seen = watched
    await stack.cluster.kubectl("apply", "-f", "-", stdin=as_list(*queue("counted", "2")))
    for number in range(3):
        await create_job(client, job(f"counted-{number}", "counted", run_seconds="forever"))

    def status() -> tuple[int, int, str]:
        queue_status = seen.cluster_queues["counted"].status
        usage = [str(r.total) for f in queue_status.flavors_usage for r in f.resources]
        return queue_status.pending_workloads, queue_status.admitted_workloads, ",".join(usage)

    assert await seen.until(lambda: status() == (1, 2, "2"), 20), status()
    local = seen.local_queues["default/counted"].status
    assert await seen.until(lambda: seen.local_queues["default/counted"].status.admitted_workloads == 2, 10), local
    assert is_true(seen.cluster_queues["counted"].status.conditions, "Active")
    waiting = next(w for w in seen.workloads.values() if w.spec.queue_name == "counted" and w.status.admission is None)
    reserved = next(c for c in waiting.status.conditions if c.type == "QuotaReserved")
    assert reserved.reason == "WaitingForQuota"
    assert "cpu" in reserved.message
    await stack.cluster.kubectl("delete", "job", "-l", "kueue.x-k8s.io/queue-name=counted", "--wait=false")
    assert await seen.until(lambda: status() == (0, 0, "0"), 20), status()


@pytest.mark.filterwarnings("ignore::pytest.PytestWarning")
def test_examples_are_yaml() -> None:
    for path in (ROOT / "examples").glob("*.yaml"):
        assert list(yaml.safe_load_all(path.read_text())), path


async def test_each_of_many_different_waiting_jobs_says_why(stack: Stack, watched: Watched) -> None:
    client, seen = watched
    await stack.cluster.kubectl("apply", "-f", "-", stdin=as_list(*queue("crowded", "1")))
    await create_job(client, job("crowded-first", "crowded", run_seconds="forever"))
    assert await seen.until(
        lambda: "default/crowded-first" in seen.jobs and not seen.jobs["default/crowded-first"].suspended, 15
    )
    for number in range(12):
        await create_job(client, job(f"crowded-{number}", "crowded", f"{900 - number}m"))

    def reasons() -> list[str]:
        waiting = [w for w in seen.workloads.values() if w.spec.queue_name == "crowded" and w.status.admission is None]
        return [c.reason for w in waiting for c in w.status.conditions if c.type == "QuotaReserved"]

    assert await seen.until(lambda: reasons() == ["WaitingForQuota"] * 12, 20), reasons()
    await stack.cluster.kubectl("delete", "job", "-l", "kueue.x-k8s.io/queue-name=crowded", "--wait=false")
