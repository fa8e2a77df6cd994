"""The example as a stranger would test it: its rules alone, found by its entry point, and managed by the gateway."""

from __future__ import annotations

import importlib
import sys
import tomllib
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from services.watcher import managed_jobs
from services.watcher.managed_jobs import JobSettings
from shared.api.names import JOB_KIND_PLUGINS
from shared.config.configuration import Configuration, Integrations
from shared.config.configuration_rules import broken_rules
from shared.config.feature_gates import DEFAULT_GATES
from shared.jobs import registry
from shared.jobs.merge_patch import apply
from shared.jobs.naming import workload_name
from shared.jobs.plugins import PluginError, found
from shared.jobs.podset_info import PodSetInfo
from shared.jobs.protocol import JobKind
from tests.unit.watcher import world as worlds
from tests.unit.watcher.manifests import metadata

HERE = Path(__file__).parent
FRAMEWORK = "render.example.com/renderfarm"


@pytest.fixture
def kind(monkeypatch: pytest.MonkeyPatch) -> JobKind:
    monkeypatch.syspath_prepend(str(HERE))
    made: JobKind = importlib.import_module("render_farm.kind").RenderFarm()
    return made


def farm(name: str = "f", **status: Any) -> dict[str, Any]:
    made: dict[str, Any] = yaml.safe_load((HERE / "sample.yaml").read_text())
    labels = {"kueue.x-k8s.io/queue-name": "lq"}
    return {**made, "metadata": metadata(name, namespace="team", labels=labels, generation=1), "status": status}


def test_its_pods(kind: JobKind) -> None:
    assert [(p.name, p.count) for p in kind.pod_sets(farm())] == [("artist", 3), ("painter", 1)]


def test_it_starts_and_is_restored_exactly(kind: JobKind) -> None:
    held = apply(farm(), kind.suspend(farm()))
    assert kind.suspended(held)
    infos = tuple(PodSetInfo(name=name, node_selector={"pool": name}) for name in ("artist", "painter"))
    started = apply(held, kind.start(held, infos))
    assert not kind.suspended(started)
    assert [p.template["spec"]["nodeSelector"] for p in kind.pod_sets(started)] == [  # type: ignore[index]
        {"pool": "artist"},
        {"pool": "painter"},
    ]
    step = kind.stop(started, kind.pod_sets(held))
    assert step is not None
    assert apply(started, step.patch) == held
    assert kind.stop(held, ()) is None


@pytest.mark.parametrize(
    ("status", "over", "active", "ready", "reclaimable"),
    [
        ({}, None, False, False, {}),
        ({"pods": 4, "ready": 4}, None, True, True, {}),
        ({"pods": 2, "ready": 2, "artistsDone": 2}, None, True, False, {"artist": 2}),
        ({"phase": "Done"}, True, False, False, {}),
        ({"phase": "Broken", "message": "no ink"}, False, False, False, {}),
    ],
)
def test_its_status(
    kind: JobKind, status: dict[str, Any], over: bool | None, active: bool, ready: bool, reclaimable: dict[str, int]
) -> None:
    job = farm(**status)
    ended = kind.finished(job)
    assert (None if ended is None else ended.success) is over
    assert (kind.active(job), kind.pods_ready(job), kind.reclaimable(job)) == (active, ready, reclaimable)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As pip leaves it: the package, and what its pyproject.toml says about entry points."""
    project = tomllib.loads((HERE / "pyproject.toml").read_text())["project"]
    points = project["entry-points"][JOB_KIND_PLUGINS]
    info = tmp_path / "sluice_render_farm-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: sluice-render-farm\nVersion: 0.1.0\n")
    lines = "\n".join(f"{name} = {value}" for name, value in points.items())
    (info / "entry_points.txt").write_text(f"[{JOB_KIND_PLUGINS}]\n{lines}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.syspath_prepend(str(HERE))


def test_it_is_found_when_its_package_is_installed(installed: None) -> None:
    (one,) = found(registry.BUILT_IN)
    assert (one.framework, one.kind) == (FRAMEWORK, "RenderFarm")
    configuration = Configuration(integrations=Integrations(frameworks=(FRAMEWORK, "batch/job")))
    assert not [path for path, _ in broken_rules(configuration, DEFAULT_GATES) if path == "integrations.frameworks"]


def test_without_the_package_its_name_is_refused() -> None:
    assert FRAMEWORK not in entry_points(group=JOB_KIND_PLUGINS).names
    configuration = Configuration(integrations=Integrations(frameworks=(FRAMEWORK,)))
    assert [path for path, _ in broken_rules(configuration, DEFAULT_GATES)] == ["integrations.frameworks"]


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        (FRAMEWORK, "render_farm.gone:RenderFarm", "No module named"),
        (FRAMEWORK, "render_farm.kind:text", "it lacks version, kind, plural, framework"),
        ("other.example.com/name", "render_farm.kind:RenderFarm", "both must be the same"),
        ("batch/job", "shared.jobs.batch_job:BatchJob", "no API group of a custom resource"),
    ],
)
def test_what_cannot_be_used_is_refused_by_name(installed: None, name: str, value: str, why: str) -> None:
    with pytest.raises(PluginError, match=why) as refused:
        found(registry.BUILT_IN, [EntryPoint(name, value, JOB_KIND_PLUGINS)])
    assert name in str(refused.value)


def test_two_of_one_name_are_refused(installed: None) -> None:
    point = EntryPoint(FRAMEWORK, "render_farm.kind:RenderFarm", JOB_KIND_PLUGINS)
    with pytest.raises(PluginError, match="already"):
        found(registry.BUILT_IN, [point, point])


async def test_the_gateway_manages_it(kind: JobKind, monkeypatch: pytest.MonkeyPatch) -> None:
    everything = (*registry.BUILT_IN, kind)
    monkeypatch.setattr(registry, "INTEGRATED", everything)
    monkeypatch.setattr(managed_jobs, "INTEGRATED", everything)
    token = registry.token_of(kind.group, kind.kind)
    monkeypatch.setitem(worlds.RESOURCES, token, kind.plural)
    async with worlds.running(JobSettings(frameworks=(FRAMEWORK,))) as world:
        world.load(token, {**farm(), "spec": {**farm()["spec"], "paused": True}})
        await world.settled()
        name = workload_name(kind=kind.kind, group=kind.group, name="f", uid="uid-f")
        assert [(p["name"], p["count"]) for p in world.workload(name)["spec"]["podSets"]] == [
            ("artist", 3),
            ("painter", 1),
        ]
        decision = world.admit(name)
        (one,) = decision.pod_sets
        sets = tuple(
            msgspec.structs.replace(one, name=n, count=c, usage={"cpu": 1000 * c})
            for n, c in (("artist", 3), ("painter", 1))
        )
        await world.decide(msgspec.structs.replace(decision, pod_sets=sets))
        started = world.api.one(kind.plural, "f")
        assert started["spec"]["paused"] is False
        assert started["spec"]["artist"]["spec"]["nodeSelector"] == {"pool": "a"}
        world.edit(token, "f", lambda job: job.update(status={"phase": "Done"}))
        await world.settled()
        assert world.condition("Finished", name) == ("True", "Succeeded")
    assert "render_farm.kind" in sys.modules
