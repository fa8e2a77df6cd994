"""Reviews of kinds whose pods queue: their marks, and what may not change while they are managed."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from services.webhook.admission_review import Request, Verdict, decode
from shared.config.configuration import Integrations
from shared.jobs.registry import PARENTS, review_path
from shared.jobs.stateful_set import StatefulSet
from shared.kube.errors import NotFound
from shared.kube.resources import WORKLOADS, Resource
from tests.unit.webhook.test_handlers import handlers

K = "kueue.x-k8s.io/"
KIND = StatefulSet()
NAME = "statefulset-sts-d8800"


def stateful_set(replicas: int = 3, queue: str = "q", marker: str = "") -> dict[str, Any]:
    labels = {f"{K}queue-name": queue} if queue else {}
    annotations = {f"{K}pod-suspending-parent": marker} if marker else {"other": "x"}
    template = {"metadata": {"annotations": annotations}, "spec": {"containers": [{"name": "c"}]}}
    metadata = {"name": "sts", "namespace": "team", "uid": "sts-uid", "labels": labels}
    return {"metadata": metadata, "spec": {"replicas": replicas, "template": template}}


def review(new: dict[str, Any], old: dict[str, Any] | None = None) -> Request:
    request: dict[str, Any] = {"uid": "u", "namespace": "team", "name": "sts", "object": new}
    if old is not None:
        request["oldObject"] = old
    return decode(msgspec.json.encode({"request": request}))


async def asked(verb: str, request: Request, workloads: dict[str, Any] | None = None) -> Verdict:
    made = handlers(integrations=Integrations(frameworks=("statefulset",)))

    class Client:
        async def get(self, resource: Resource, namespace: str, name: str) -> bytes:
            assert (resource, namespace) == (WORKLOADS, "team")
            if name not in (workloads or {}):
                raise NotFound(404, "NotFound", name)
            return msgspec.json.encode((workloads or {})[name])

    made._client = Client()  # type: ignore[assignment]
    return await made.routes()[review_path(KIND, verb)](request)


async def test_a_managed_set_is_marked_and_no_other() -> None:
    (step,) = (await asked("mutate", review(stateful_set()))).patch
    assert step.path == "/spec/template/metadata/annotations/kueue.x-k8s.io~1pod-suspending-parent"
    assert step.value == "statefulset"
    assert (await asked("mutate", review(stateful_set(queue="")))).patch == ()
    foreign = stateful_set(marker="somebody")
    assert (await asked("mutate", review(foreign))).patch == ()


@pytest.mark.parametrize("kind", PARENTS, ids=lambda kind: str(kind.kind))
async def test_one_that_is_not_enabled_passes(kind: Any) -> None:
    made = handlers(integrations=Integrations(frameworks=("batch/job",)))
    for verb in ("mutate", "validate"):
        assert await made.routes()[review_path(kind, verb)](review(stateful_set(queue="not valid"))) == Verdict()


def holding(status: str, *more: dict[str, str]) -> dict[str, Any]:
    at = {"reason": "R", "message": "", "lastTransitionTime": "2026-01-02T03:04:05Z"}
    conditions = [{"type": "QuotaReserved", "status": status, **at}, *({**one, **at} for one in more)]
    return {"metadata": {"name": NAME}, "spec": {"podSets": []}, "status": {"conditions": conditions}}


FINISHED = {"type": "Finished", "status": "True"}


@pytest.mark.parametrize(
    ("new", "old", "workloads", "refused"),
    [
        (stateful_set(2), stateful_set(3), {}, True),
        (stateful_set(2, queue=""), stateful_set(3, queue=""), {}, False),
        (stateful_set(0), stateful_set(3), {NAME: holding("True")}, False),
        (stateful_set(3), stateful_set(0), {}, False),
        (stateful_set(3), stateful_set(0), {NAME: holding("True")}, True),
        (stateful_set(3), stateful_set(0), {NAME: holding("False")}, False),
        (stateful_set(3), stateful_set(0), {NAME: holding("True", FINISHED)}, False),
    ],
)
async def test_its_replicas(new: dict[str, Any], old: dict[str, Any], workloads: dict[str, Any], refused: bool) -> None:
    verdict = await asked("validate", review(new, old), workloads)
    assert [e.path for e in verdict.errors] == (["spec.replicas"] if refused else [])
