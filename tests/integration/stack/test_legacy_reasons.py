"""With the gate UnadmittedWorkloadsObservability off, conditions say the words that Kueue had before it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from cli.observe import Observer, observing
from devcluster.stack import Stack
from shared.api.conditions import find
from shared.kube.client import KubeClient
from tests.integration.stack.configured import configured_stack
from tests.integration.stack.manifests import as_list, create_job, flavor, job, local_queue, queue
from tests.integration.stack.test_requests import pending_reason, workload_of

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(240)]

Watched = tuple[KubeClient, Observer]
CONFIGURATION = """
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
featureGates: {UnadmittedWorkloadsObservability: false}
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def old(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stack]:
    async with configured_stack(tmp_path_factory.mktemp("old-words"), CONFIGURATION) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def watched(old: Stack) -> AsyncIterator[Watched]:
    async with observing(old.cluster.kubeconfig) as pair:
        yield pair


def told(seen: Observer, uid: str, type_: str) -> tuple[str, str]:
    found = workload_of(seen, uid)
    condition = find(found.status.conditions, type_) if found is not None else None
    return (condition.status, condition.reason) if condition is not None else ("", "")


async def test_a_life_in_old_words(old: Stack, watched: Watched) -> None:
    client, seen = watched
    # Its queue is not there yet, then it has no room, then it runs, is deactivated, and runs again.
    uid = await create_job(client, job("words", "words", cpu="2", run_seconds="forever"))
    assert await seen.until(lambda: pending_reason(seen, uid)[0] == "Inadmissible", 30), pending_reason(seen, uid)
    assert told(seen, uid, "Admitted") == ("", "")
    await old.cluster.kubectl("apply", "-f", "-", stdin=as_list(local_queue("words"), flavor("words")))
    assert await seen.until(lambda: "ClusterQueue" in pending_reason(seen, uid)[1], 20), pending_reason(seen, uid)
    assert pending_reason(seen, uid)[0] == "Inadmissible"
    await old.cluster.kubectl("apply", "-f", "-", stdin=as_list(*queue("words", "1")))
    assert await seen.until(lambda: pending_reason(seen, uid)[0] == "Pending", 20), pending_reason(seen, uid)
    assert told(seen, uid, "Admitted") == ("", "")
    await old.cluster.kubectl("apply", "-f", "-", stdin=as_list(*queue("words", "2")))
    assert await seen.until(lambda: not seen.jobs["default/words"].suspended, 20)
    found = workload_of(seen, uid)
    assert found is not None
    for active in ("false", "true"):
        patch = f'{{"spec":{{"active":{active}}}}}'
        await old.cluster.kubectl("patch", "workload", found.metadata.name, "--type=merge", "-p", patch)
        if active == "false":
            assert await seen.until(lambda: told(seen, uid, "QuotaReserved") == ("False", "Pending"), 30)
            assert told(seen, uid, "Admitted") == ("False", "NoReservation")
    assert await seen.until(lambda: not seen.jobs["default/words"].suspended, 30), workload_of(seen, uid)
    assert told(seen, uid, "Admitted") == ("True", "Admitted")
    await old.cluster.kubectl("delete", "job", "words", "--wait=false")
    # The garbage collector learns of a new kind of object after half a minute.
    assert await seen.until(lambda: workload_of(seen, uid) is None, 60)
