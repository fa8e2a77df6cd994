"""What the configuration changes for Jobs: which namespaces, whether a queue is needed, whether Jobs are of interest at all."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from services.webhook.admission_review import Request, Verdict, decode
from services.webhook.handlers import Handlers
from services.webhook.known_objects import KnownObjects
from services.webhook.settings import WebhookSettings
from shared.bus.interface import ObjectChanged
from shared.config.configuration import Configuration, Configured, Integrations, Requirement, Selector
from shared.config.feature_gates import DEFAULT_GATES, FeatureGates, resolve
from shared.events.objects import Namespace, WorkloadPriorityClass
from shared.events.subjects import ObjectName
from shared.kube.errors import Forbidden, NotFound
from shared.kube.resources import Resource


class NothingThere:
    """An API server without objects."""

    async def get(self, resource: Resource, namespace: str, name: str) -> bytes:
        raise NotFound(404, "NotFound", f"{resource.plural} {namespace}/{name}")


class Holds:
    """An API server with one object of some kinds, or that refuses."""

    def __init__(self, objects: dict[str, Any], *, refuses: bool = False) -> None:
        self.asked: list[tuple[str, str, str]] = []
        self._objects, self._refuses = objects, refuses

    async def get(self, resource: Resource, namespace: str, name: str) -> bytes:
        self.asked.append((resource.plural, namespace, name))
        if self._refuses:
            raise Forbidden(403, "Forbidden", "not for you")
        if resource.plural not in self._objects:
            raise NotFound(404, "NotFound", f"{resource.plural} {namespace}/{name}")
        return msgspec.json.encode(self._objects[resource.plural])


def handlers(gates: FeatureGates = DEFAULT_GATES, **fields: Any) -> Handlers:
    known = KnownObjects(NothingThere())
    for name, labels in (("team", {"kind": "team"}), ("kueue-system", {}), ("own", {})):
        namespace = Namespace(name=name, version=1, labels={"kubernetes.io/metadata.name": name, **labels})
        known.apply(ObjectChanged(ObjectName("namespace", "", name), namespace, 1))
    configured = Configured(configuration=Configuration(**fields), gates=gates)
    return Handlers(WebhookSettings(), known, NothingThere(), configured)  # type: ignore[arg-type]


def review(namespace: str = "team", **labels: str) -> Request:
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j", "namespace": namespace, "labels": labels},
        "spec": {"template": {"spec": {"containers": []}}},
    }
    request = {"uid": "u", "operation": "CREATE", "namespace": namespace, "name": "j", "object": job}
    return decode(msgspec.json.encode({"request": request}))


async def suspends(made: Handlers, request: Request) -> bool:
    verdict = await made.routes()["/mutate-batch-v1-job"](request)
    return [(o.op, o.path, o.value) for o in verdict.patch] == [("add", "/spec/suspend", True)]


QUEUE = {"kueue.x-k8s.io/queue-name": "q"}


async def test_a_job_with_a_queue_is_suspended() -> None:
    assert await suspends(handlers(), review(**QUEUE))
    assert not await suspends(handlers(), review())


async def test_jobs_without_a_queue_are_managed_when_told_so() -> None:
    assert await suspends(handlers(manage_jobs_without_queue_name=True), review())


@pytest.mark.parametrize("name", ["kube-system", "kueue-system"])
async def test_namespaces_that_are_never_managed(name: str) -> None:
    everywhere = handlers(manage_jobs_without_queue_name=True)
    assert not await suspends(everywhere, review(name))
    # One with a queue is suspended wherever the API server asks about it: which namespaces that are, the webhook configuration says.
    assert await suspends(everywhere, review(name, **QUEUE))


async def test_where_sluice_runs_is_as_the_file_says() -> None:
    moved = handlers(namespace="own", manage_jobs_without_queue_name=True)
    assert not await suspends(moved, review("own"))
    assert await suspends(moved, review("kueue-system"))


async def test_namespaces_are_selected_by_label() -> None:
    made = handlers(
        managed_jobs_namespace_selector=Selector(match_expressions=(Requirement(key="kind", operator="Exists"),)),
        manage_jobs_without_queue_name=True,
    )
    assert await suspends(made, review("team"))
    assert not await suspends(made, review("own"))
    # One that is not known yet has no label but its name.
    assert not await suspends(made, review("new"))


async def test_an_integration_that_is_not_enabled_lets_everything_pass() -> None:
    made = handlers(integrations=Integrations(frameworks=("pod",)), manage_jobs_without_queue_name=True)
    wrong = review(**{"kueue.x-k8s.io/queue-name": "not a name!"})
    assert await made.routes()["/mutate-batch-v1-job"](wrong) == Verdict()
    assert await made.routes()["/validate-batch-v1-job"](wrong) == Verdict()
    assert (await handlers().routes()["/validate-batch-v1-job"](wrong)).errors


async def test_pod_sets_keep_their_size_without_partial_admission() -> None:
    pod_sets = [{"name": "a", "minCount": 1}, {"name": "b"}, {"name": "c", "minCount": 2}]
    request = {"uid": "u", "operation": "CREATE", "object": {"spec": {"podSets": pod_sets}}}
    asked = decode(msgspec.json.encode({"request": request}))
    default = "/mutate-kueue-x-k8s-io-v1beta2-workload"
    assert await handlers().routes()[default](asked) == Verdict()
    rigid = await handlers(resolve({"PartialAdmission": False})).routes()[default](asked)
    assert [(o.op, o.path) for o in rigid.patch] == [("remove", f"/spec/podSets/{i}/minCount") for i in (0, 2)]


async def test_gates_of_defaults() -> None:
    def with_class(gates: FeatureGates) -> Handlers:
        known = KnownObjects(NothingThere())
        default = WorkloadPriorityClass(name="default", version=1)
        known.apply(ObjectChanged(ObjectName("workloadpriorityclass", "", "default"), default, 1))
        return Handlers(WebhookSettings(), known, NothingThere(), Configured(gates=gates))  # type: ignore[arg-type]

    for gates, expected in ((DEFAULT_GATES, 2), (resolve({"WorkloadPriorityClassDefaulting": False}), 1)):
        verdict = await with_class(gates).routes()["/mutate-batch-v1-job"](review(**QUEUE))
        assert len(verdict.patch) == expected


TRAIN_JOBS = "trainer.kubeflow.org/trainjob"
ASKS_TWICE = {f"kueue.x-k8s.io/podset-{how}-topology": "rack" for how in ("required", "preferred")}
"""Of which a pod template may have one."""
RUNTIME = {
    "spec": {
        "template": {
            "spec": {
                "replicatedJobs": [
                    {"name": "node", "template": {"spec": {"template": {"metadata": {"annotations": ASKS_TWICE}}}}}
                ]
            }
        }
    }
}


def train_job(kind: str = "", old: bool = False) -> Request:
    reference = {"name": "torch", **({"kind": kind} if kind else {})}
    job = {"metadata": {"name": "t", "namespace": "team", "labels": QUEUE}, "spec": {"runtimeRef": reference}}
    request = {"uid": "u", "operation": "UPDATE" if old else "CREATE", "namespace": "team", "name": "t", "object": job}
    return decode(msgspec.json.encode({"request": {**request, **({"oldObject": job} if old else {})}}))


async def validated(api: Holds, request: Request) -> list[str]:
    configured = Configured(configuration=Configuration(integrations=Integrations(frameworks=(TRAIN_JOBS,))))
    made = Handlers(WebhookSettings(), KnownObjects(api), api, configured)  # type: ignore[arg-type]
    verdict = await made.routes()["/validate-trainer-kubeflow-org-v1alpha1-trainjob"](request)
    return [f"{error.path} {error.kind}" for error in verdict.errors]


@pytest.mark.parametrize(
    ("kind", "asked"),
    [("", ("clustertrainingruntimes", "", "torch")), ("TrainingRuntime", ("trainingruntimes", "team", "torch"))],
)
@pytest.mark.parametrize("old", [False, True])
async def test_the_pods_of_a_train_job_are_those_of_its_runtime(
    kind: str, asked: tuple[str, str, str], old: bool
) -> None:
    api = Holds({asked[0]: RUNTIME})
    assert await validated(api, train_job(kind, old)) == ["job[node].annotations Invalid value"]
    assert api.asked == [asked]


async def test_a_train_job_without_its_runtime_is_refused_when_it_is_created() -> None:
    assert await validated(Holds({}), train_job()) == ["spec.runtimeRef Invalid value"]
    assert await validated(Holds({}), train_job(old=True)) == []


async def test_a_runtime_that_cannot_be_read_lets_no_train_job_pass_unseen() -> None:
    assert await validated(Holds({}, refuses=True), train_job()) == ["spec Internal error"]
