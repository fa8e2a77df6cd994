"""The definitions against the published cases of what an API server with this API accepts, stores and refuses.

Only the definitions are installed here. A case whose verdict is Forbidden is a webhook's to refuse: it is followed up
to there. The cases lie beside the repository; without them there is nothing to run.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio

from devcluster.cluster import DevCluster
from devcluster.options import ClusterOptions
from shared.api import names
from shared.api.crd_kinds import KINDS
from shared.kube.client import KubeClient, connect
from shared.kube.errors import AlreadyExists, ApiError
from shared.kube.resources import NAMESPACES, PRIORITY_CLASSES, Resource

REPOSITORY = Path(__file__).parents[2]
CASES = REPOSITORY.parent / "shared" / "scenarios" / "api_admission.json"
RESOURCES = {
    crd.kind: Resource(names.GROUP, names.V1BETA2, crd.plural, crd.kind, namespaced=crd.namespaced) for crd in KINDS
}
GIVEN = {**RESOURCES, "Namespace": NAMESPACES, "PriorityClass": PRIORITY_CLASSES}
ACCEPTED = "accepted"
WEBHOOK = "Forbidden"

pytestmark = [
    pytest.mark.integration,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(not CASES.is_file(), reason="the published cases are not beside the repository"),
]


class Meta(msgspec.Struct):
    name: str = ""
    namespace: str = ""


class Identity(msgspec.Struct):
    kind: str
    metadata: Meta


class Step(msgspec.Struct):
    op: str
    object: msgspec.Raw = msgspec.Raw()
    patch: msgspec.Raw = msgspec.Raw()


class Expected(msgspec.Struct):
    verdict: str = ""
    verdicts: tuple[str, ...] = ()
    stored: dict[str, object] = msgspec.field(default_factory=dict)


class Case(msgspec.Struct):
    id: str
    request: Step
    expect: Expected
    objects: tuple[msgspec.Raw, ...] = ()
    steps: tuple[Step, ...] = ()

    def all_steps(self) -> tuple[Step, ...]:
        return self.steps or (self.request,)

    def verdicts(self) -> tuple[str, ...]:
        return self.expect.verdicts or (self.expect.verdict,)


class Cases(msgspec.Struct):
    cases: tuple[Case, ...]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client() -> AsyncIterator[KubeClient]:
    options = ClusterOptions(with_controllers=False, with_scheduler=False, with_kwok=False)
    async with DevCluster(options) as cluster:
        await cluster.kubectl("apply", "--server-side", "-k", str(REPOSITORY / "k8s" / "crds"))
        await cluster.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")
        async with await connect(str(cluster.kubeconfig), timeout_s=20.0) as client:
            yield client


async def test_published_cases(client: KubeClient) -> None:
    followed = 0
    wrong: list[str] = []
    for case in msgspec.json.decode(CASES.read_bytes(), type=Cases).cases:
        identity = msgspec.json.decode(case.all_steps()[0].object, type=Identity)
        if identity.kind in RESOURCES:
            followed += 1
            wrong += await follow(client, case, RESOURCES[identity.kind], identity.metadata)
    assert wrong == []
    assert followed > 100


async def follow(client: KubeClient, case: Case, resource: Resource, meta: Meta) -> list[str]:
    """What differs from the published verdicts."""
    for given in case.objects:
        identity = msgspec.json.decode(given, type=Identity)
        try:
            await client.create(GIVEN[identity.kind], identity.metadata.namespace, bytes(given))
        except AlreadyExists:
            continue
    wrong: list[str] = []
    created = False
    for step, verdict in zip(case.all_steps(), case.verdicts(), strict=True):
        if verdict == WEBHOOK:
            break
        said = await take(client, step, resource, meta)
        created = created or said == ACCEPTED
        if said.split(":")[0] != verdict:
            wrong.append(f"{case.id} {step.op}: {verdict} was published, the server said {said}")
    if case.expect.stored and created:
        wrong += await stored_otherwise(client, case, resource, meta)
    if created:
        await client.delete(resource, meta.namespace, meta.name)
    return wrong


async def take(client: KubeClient, step: Step, resource: Resource, meta: Meta) -> str:
    """`accepted`, or the API server's reason and message."""
    try:
        if step.op == "create":
            await client.create(resource, meta.namespace, bytes(step.object))
        else:
            subresource = "status" if step.op == "status_merge_patch" else ""
            await client.patch(resource, meta.namespace, meta.name, bytes(step.patch), subresource=subresource)
    except ApiError as error:
        return f"{error.reason}: {error.message}"
    return ACCEPTED


async def stored_otherwise(client: KubeClient, case: Case, resource: Resource, meta: Meta) -> list[str]:
    """Only the spec: metadata is the webhooks' business too."""
    stored = msgspec.json.decode(await client.get(resource, meta.namespace, meta.name))
    if stored.get("spec") == case.expect.stored.get("spec"):
        return []
    return [f"{case.id}: stored {stored.get('spec')}, published {case.expect.stored.get('spec')}"]
