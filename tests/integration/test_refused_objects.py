"""Objects that must be refused, written from the API's rules: each with the field to blame, the kind of error, and who refuses it.

422 is the API server's answer (schema and rules of the definitions), 403 the webhook's. What a rule allows stands in the unit tests.
"""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator

import msgspec
import pytest
import pytest_asyncio

from shared.kube.errors import Refused
from tests.conformance.api_admission import RESOURCES
from tests.integration.admission_server import Admission, serving
from tests.integration.refused.jobs import JOBS
from tests.integration.refused.objects import Refusal
from tests.integration.refused.other_kinds import OTHER_KINDS
from tests.integration.refused.queues import CLUSTER_QUEUES
from tests.integration.refused.workload_changes import STATUSES
from tests.integration.refused.workloads import WORKLOADS

ALL = (*CLUSTER_QUEUES, *OTHER_KINDS, *WORKLOADS, *STATUSES, *JOBS)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def admission() -> AsyncIterator[Admission]:
    async with serving() as it:
        yield it


def _id(refusal: Refusal) -> str:
    return f"{refusal.document['kind']}-{refusal.path}-{refusal.kind}"


@pytest.mark.integration
@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(("number", "refusal"), list(enumerate(ALL)), ids=[_id(one) for one in ALL])
async def test_refused(admission: Admission, number: int, refusal: Refusal) -> None:
    error = await _refused(admission, f"refused-{number}", refusal)
    said = f"{refusal.path}: {refusal.kind}" + (f": {refusal.value}" if refusal.value else "")
    assert said in error.message
    assert error.status == refusal.code


async def _refused(admission: Admission, name: str, refusal: Refusal) -> Refused:
    """The refusal of the object, or of the change after those that have to be accepted."""
    document = copy.deepcopy(refusal.document)
    document["metadata"]["name"] = name
    resource = RESOURCES[document["kind"]]
    namespace = "default" if resource.namespaced else ""
    if refusal.change is None:
        with pytest.raises(Refused) as refused:
            await admission.create(resource, document, namespace=namespace)
        return refused.value
    await admission.create(resource, document, namespace=namespace)
    for change in refusal.before:
        at = "status" if "status" in change else ""
        await admission.admin.patch(resource, namespace, name, msgspec.json.encode(change), subresource=at)
    body, at = msgspec.json.encode(refusal.change), "status" if refusal.status else ""
    with pytest.raises(Refused) as refused:
        await admission.admin.patch(resource, namespace, name, body, subresource=at)
    return refused.value


def test_there_are_enough() -> None:
    assert len(ALL) >= 80
    assert {one.code for one in ALL} == {403, 422}
