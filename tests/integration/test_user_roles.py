"""What people may do with the shipped roles: asked of a real API server, who after what, one review per cell of the table.

The table is Kueue's (roles for people), written as who may edit and who may view which kind; what is not in it must be refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio

from devcluster.cluster import DevCluster
from devcluster.options import ClusterOptions
from shared.kube.client import KubeClient, connect
from shared.kube.resources import Resource
from tests.eventually import eventually

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module")]

ROOT = Path(__file__).resolve().parents[2]
REVIEWS = Resource("authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", namespaced=False)
QUEUEING = "kueue.x-k8s.io"
VISIBILITY = "visibility.kueue.x-k8s.io"
EDIT = frozenset({"create", "delete", "patch", "update"})
VIEW = frozenset({"get", "list", "watch"})
ALL = EDIT | VIEW
EVERYBODY = frozenset({"batch-admin", "batch-user", "view", "edit", "admin"})
"""Users, named after the one role that each has. batch-user has it in `team` only, the others everywhere."""
TEAM = "team"

JOBS = (
    ("batch", "jobs"),
    ("jobset.x-k8s.io", "jobsets"),
    *(("kubeflow.org", k) for k in ("mpijobs", "tfjobs", "pytorchjobs", "xgboostjobs", "paddlejobs", "jaxjobs")),
    ("trainer.kubeflow.org", "trainjobs"),
    *(("ray.io", k) for k in ("rayclusters", "rayjobs", "rayservices")),
    ("leaderworkerset.x-k8s.io", "leaderworkersets"),
    ("sparkoperator.k8s.io", "sparkapplications"),
)
OF_THE_CLUSTER = ("clusterqueues", "cohorts", "resourceflavors", "topologies")
OF_A_NAMESPACE = ("localqueues", "workloads")
NOBODYS = ("admissionchecks", "multikueueclusters", "provisioningrequestconfigs", "workloadpriorityclasses")


class Cell(msgspec.Struct, frozen=True, order=True):
    """May this user do that? Namespace empty: everywhere."""

    user: str
    group: str
    resource: str
    subresource: str
    verb: str
    namespace: str
    allowed: bool


def kind(group: str, plural: str, editors: frozenset[str], viewers: frozenset[str]) -> Iterator[Cell]:
    """Every verb on one kind and its status, for everybody."""
    for user in sorted(EVERYBODY):
        namespace = TEAM if user == "batch-user" else ""
        for verb in sorted(ALL):
            allowed = user in editors or (verb in VIEW and user in viewers)
            yield Cell(user, group, plural, "", verb, namespace, allowed)
        yield Cell(user, group, plural, "status", "get", namespace, user in editors | viewers)
        # The status is the controllers', but for batch/v1, of which the built-in roles let nobody write it either.
        yield Cell(user, group, plural, "status", "patch", namespace, False)


def table() -> Iterator[Cell]:
    for group, plural in JOBS:
        # What Kubernetes brings itself.
        built_in = {"edit", "admin"} if group == "batch" else set()
        yield from kind(group, plural, frozenset({"batch-admin", "batch-user", *built_in}), EVERYBODY)
    admin = frozenset({"batch-admin"})
    for plural in OF_THE_CLUSTER:
        yield from kind(QUEUEING, plural, admin, frozenset({"batch-admin", "admin"}))
    for plural in OF_A_NAMESPACE:
        yield from kind(QUEUEING, plural, admin, EVERYBODY)
    for plural in NOBODYS:
        yield from kind(QUEUEING, plural, frozenset(), frozenset())
    for user in sorted(EVERYBODY):
        namespace = TEAM if user == "batch-user" else ""
        for verb in sorted(VIEW):
            of_cluster = user != "batch-user"
            yield Cell(user, VISIBILITY, "clusterqueues", "pendingworkloads", verb, namespace, of_cluster)
            yield Cell(user, VISIBILITY, "localqueues", "pendingworkloads", verb, namespace, True)
    # A role in one namespace says nothing about another, and none of these roles gives what is not about jobs and queues.
    yield Cell("batch-user", "batch", "jobs", "", "create", "other", False)
    yield Cell("batch-user", QUEUEING, "workloads", "", "get", "other", False)
    for user in ("batch-admin", "batch-user"):
        for resource in ("secrets", "pods"):
            yield Cell(user, "", resource, "", "get", TEAM, False)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client() -> AsyncIterator[KubeClient]:
    options = ClusterOptions(with_scheduler=False, with_kwok=False)
    async with DevCluster(options) as cluster:
        await cluster.kubectl("apply", "--server-side", "-k", str(ROOT / "k8s" / "rbac"))
        # Again, after the API server's controller wrote the rules of the sums: nobody fights over them.
        async with await connect(str(cluster.kubeconfig), timeout_s=20.0) as client:
            for role in sorted(EVERYBODY - {"batch-user"}):
                name = f"kueue-{role}-role" if role.startswith("batch") else role
                await cluster.kubectl("create", "clusterrolebinding", role, f"--clusterrole={name}", f"--user={role}")
            for namespace in (TEAM, "other"):
                await cluster.kubectl("create", "namespace", namespace)
            await cluster.kubectl(
                "create", "rolebinding", "users", "-n", TEAM, "--clusterrole=kueue-batch-user-role", "--user=batch-user"
            )
            last = Cell("batch-user", QUEUEING, "workloads", "", "get", TEAM, True)

            async def summed() -> bool:
                return await may(client, last)

            assert await eventually(summed, 30)
            await cluster.kubectl("apply", "--server-side", "-k", str(ROOT / "k8s" / "rbac"))
            yield client


async def may(client: KubeClient, cell: Cell) -> bool:
    """The API server's answer."""
    attributes = {
        "group": cell.group,
        "resource": cell.resource,
        "subresource": cell.subresource,
        "verb": cell.verb,
        "namespace": cell.namespace,
    }
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": cell.user, "resourceAttributes": attributes},
    }
    answer = msgspec.json.decode(await client.create(REVIEWS, "", msgspec.json.encode(body)))
    return bool(answer["status"]["allowed"])


async def test_who_may_do_what(client: KubeClient) -> None:
    cells = list(table())
    assert len(set(cells)) == len(cells) > 1000

    async def wrong() -> list[Cell]:
        gate = asyncio.Semaphore(16)

        async def answer(cell: Cell) -> bool:
            async with gate:
                return await may(client, cell)

        answers = await asyncio.gather(*map(answer, cells))
        return [cell for cell, allowed in zip(cells, answers, strict=True) if allowed != cell.allowed]

    async def right() -> bool:
        return not await wrong()

    # The sums are made one after the other.
    await eventually(right, 20)
    assert await wrong() == []
