"""Whose a job is: owners are read from the store, or, for kinds that are not watched, from the API server."""

from typing import Any

import pytest

from services.watcher.managed_jobs import JobSettings, ManagedJobs, job_settings
from services.watcher.store import Store
from shared.api.meta import ObjectMeta, OwnerReference
from shared.api.selectors import matches
from shared.config.configuration import Configuration, Configured, Integrations, Selector
from shared.jobs.queue_membership import OwnershipError
from shared.jobs.registry import integrated
from shared.kube.errors import Forbidden, Unavailable, Unreachable
from tests.unit.watcher.fake_api import FakeApi
from tests.unit.watcher.manifests import metadata

QUEUE = {"kueue.x-k8s.io/queue-name": "lq"}


def owner(api_version: str, kind: str, name: str) -> OwnerReference:
    return OwnerReference(api_version=api_version, kind=kind, name=name, uid=f"uid-{name}", controller=True)


def child(*owners: OwnerReference, **labels: str) -> ObjectMeta:
    return ObjectMeta(name="c", namespace="team", uid="uid-c", labels=labels, owner_references=owners)


class World:
    def __init__(self, settings: JobSettings | None = None) -> None:
        self.api = FakeApi()
        self.store = Store()
        self.api.load(self.store, "namespace", "namespaces", {"metadata": metadata("team", labels={"a": "b"})})
        self.managed = ManagedJobs(self.store, self.api.client, settings or JobSettings(), integrated(["batch/job"]))

    def job(self, name: str, **more: Any) -> None:
        self.api.load(self.store, "job", "jobs", {"metadata": metadata(name, namespace="team", **more), "spec": {}})


async def test_a_job_under_a_managed_job_is_its_child() -> None:
    world = World()
    world.job("parent", labels=QUEUE)
    found = await world.managed.standing(child(owner("batch/v1", "Job", "parent"), **QUEUE))
    assert found.ancestor is not None
    assert (found.managed, found.top_level, found.ancestor.name) == (True, False, "parent")


async def test_owners_that_are_not_watched_are_read() -> None:
    """A framework that is not integrated manages nothing, but the search looks past it."""
    world = World()
    world.job("top", labels=QUEUE)
    reference = {"apiVersion": "batch/v1", "kind": "Job", "name": "top", "uid": "uid-top", "controller": True}
    world.api.put("jobsets", {"metadata": metadata("set", namespace="team", ownerReferences=[reference])})
    found = await world.managed.standing(child(owner("jobset.x-k8s.io/v1alpha2", "JobSet", "set")))
    assert found.ancestor is not None
    assert found.ancestor.name == "top"


async def test_an_unknown_kind_ends_the_search() -> None:
    found = await World().managed.standing(child(owner("batch/v1", "CronJob", "cron"), **QUEUE))
    assert (found.managed, found.top_level) == (True, True)


@pytest.mark.parametrize("kind", [("batch/v1", "Job"), ("jobset.x-k8s.io/v1alpha2", "JobSet")])
async def test_an_owner_that_is_gone_is_an_error(kind: tuple[str, str]) -> None:
    with pytest.raises(OwnershipError):
        await World().managed.standing(child(owner(*kind, "absent"), **QUEUE))


async def test_an_owner_that_we_may_not_read_is_an_error_and_no_answer_is_none() -> None:
    world = World()
    reference = owner("jobset.x-k8s.io/v1alpha2", "JobSet", "set")
    world.api.fail("get", Forbidden(403, "Forbidden", "no"))
    with pytest.raises(OwnershipError):
        await world.managed.standing(child(reference, **QUEUE))
    world.api.fail("get", Unreachable(0, "Unreachable", "no answer"))
    with pytest.raises(Unavailable):
        await world.managed.standing(child(reference, **QUEUE))


async def test_a_namespace_that_is_unknown_or_not_selected() -> None:
    world = World(job_settings(Configured(), "kueue-system"))
    assert (await world.managed.standing(child(**QUEUE))).managed
    elsewhere = ObjectMeta(name="c", namespace="absent", uid="u", labels=QUEUE)
    assert not (await world.managed.standing(elsewhere)).managed


def test_namespaces_are_excluded_by_name() -> None:
    selector = job_settings(Configured(), "x").namespace_selector
    assert matches(selector, {"kubernetes.io/metadata.name": "team"})
    assert not matches(selector, {"kubernetes.io/metadata.name": "x"})
    assert not matches(selector, {"kubernetes.io/metadata.name": "kube-system"})


def test_what_the_configuration_says_about_jobs() -> None:
    configuration = Configuration(
        namespace="own",
        manage_jobs_without_queue_name=True,
        managed_jobs_namespace_selector=Selector(match_labels={"team": "a"}),
        integrations=Integrations(frameworks=("pod", "batch/job"), label_keys_to_copy=("x",)),
        wait_for_pods_ready=None,
    )
    settings = job_settings(Configured(configuration=configuration), "elsewhere")
    assert settings.manage_without_queue_name
    assert matches(settings.namespace_selector, {"team": "a"})
    assert not matches(settings.namespace_selector, {"kubernetes.io/metadata.name": "own"})
    assert settings.label_keys_to_copy == ("x",)
    assert settings.frameworks == ("pod", "batch/job")
    assert not settings.wait_for_pods_ready
    assert job_settings(Configured(), "kueue-system").wait_for_pods_ready


@pytest.mark.parametrize(
    ("labels", "owners", "manage_all", "expected"),
    [
        ({}, (), False, False),
        (QUEUE, (), False, True),
        ({}, (), True, True),
        ({}, (owner("batch/v1", "Job", "x"),), False, True),
    ],
)
def test_one_look(labels: dict[str, str], owners: tuple[OwnerReference, ...], manage_all: bool, expected: bool) -> None:
    world = World(JobSettings(manage_without_queue_name=manage_all))
    assert world.managed.may_be_managed(child(*owners, **labels)) is expected


FARM = "render.example.com/v1"


async def test_a_kind_that_another_manager_integrates_stands_for_its_children() -> None:
    world = World(JobSettings(external_frameworks=("Farm.v1.render.example.com",)))
    world.api.served["/apis/render.example.com/v1"] = [
        {"name": "farms/status", "kind": "Farm"},
        {"name": "farms", "kind": "Farm"},
    ]
    world.api.put("farms", {"metadata": metadata("f", namespace="team", labels=QUEUE)})
    found = await world.managed.standing(child(owner(FARM, "Farm", "f")))
    assert found.ancestor is not None
    assert (found.managed, found.top_level, found.ancestor.name) == (True, False, "f")
    # Not configured, it is any unknown kind; not served, it cannot be read.
    assert (await World().managed.standing(child(owner(FARM, "Farm", "f"), **QUEUE))).top_level
    world = World(JobSettings(external_frameworks=("Farm.v1.render.example.com",)))
    with pytest.raises(OwnershipError):
        await world.managed.standing(child(owner(FARM, "Farm", "f"), **QUEUE))


def test_deployments_bring_pods_along() -> None:
    configuration = Configuration(integrations=Integrations(frameworks=("deployment",)))
    settings = job_settings(Configured(configuration=configuration), "elsewhere")
    assert (settings.frameworks, settings.serving, settings.only_pods_of_parents) == (("pod",), ("deployment",), True)
    configuration = Configuration(integrations=Integrations(frameworks=("deployment", "pod")))
    settings = job_settings(Configured(configuration=configuration), "elsewhere")
    assert (settings.frameworks, settings.only_pods_of_parents) == (("pod",), False)
