"""The generated components of integrations, and that the files are current."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli import integrations
from cli.installation import Wanted, _enabled, rights
from shared.jobs.registry import BUILT_IN, PARENTS

ROOT = Path(__file__).resolve().parents[3]


def test_the_files_are_current() -> None:
    assert integrations.differing(ROOT / integrations.FOLDER) == []


def test_each_integration_has_a_component_of_its_own() -> None:
    names = [integrations.component(kind.framework) for kind in BUILT_IN]
    assert len(set(names)) == len(names)
    assert {path.partition("/")[0] for path in integrations.rendered()} == set(names) - {"job"} | {
        "deployment",
        "statefulset",
        "leaderworkerset",
    }


def test_writing_makes_a_folder_current_and_checking_says_what_is_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert integrations.main(["--out", str(tmp_path)]) == 0
    assert integrations.main(["--out", str(tmp_path), "--check"]) == 0
    (tmp_path / "pod" / "role.yaml").write_text("stale")
    (tmp_path / "gone").mkdir()
    (tmp_path / "gone" / "role.yaml").write_text("stale")
    capsys.readouterr()
    assert integrations.main(["--out", str(tmp_path), "--check"]) == 1
    assert "pod/role.yaml differs" in (said := capsys.readouterr().err)
    assert "gone/role.yaml differs" in said
    assert integrations.write(tmp_path) == ["gone/role.yaml", "pod/role.yaml"]
    assert integrations.differing(tmp_path) == []


def test_only_what_is_enabled_is_installed() -> None:
    wanted = Wanted(kubeconfig="", namespace="own", frameworks=("batch/job", "pod", "nothing/known"))
    assert [kind.framework for kind in _enabled(wanted)] == ["pod"]
    deployments = Wanted(kubeconfig="", namespace="own", frameworks=("deployment",))
    assert [kind.framework for kind in _enabled(deployments)] == ["pod"]


def test_kinds_whose_pods_queue_are_only_looked_at() -> None:
    found = {
        kind.framework: [
            (role["metadata"]["name"], rule["resources"], rule["verbs"])
            for role in integrations.roles(kind)
            for rule in role.get("rules", ())
        ]
        for kind in PARENTS
    }
    looks = ["list", "watch"]
    assert found == {
        "deployment": [],
        "statefulset": [
            ("sluice-watcher-statefulset", ["statefulsets"], looks),
            ("sluice-webhook-statefulset", ["workloads"], ["get"]),
        ],
        "leaderworkerset.x-k8s.io/leaderworkerset": [
            ("sluice-watcher-leaderworkerset", ["leaderworkersets"], looks),
            ("sluice-watcher-leaderworkerset", ["statefulsets"], looks),
        ],
    }
    wanted = Wanted(kubeconfig="", namespace="own", frameworks=("statefulset",))
    assert [kind.framework for kind in _enabled(wanted)] == ["pod"]


@pytest.mark.parametrize("on", [False, True])
def test_who_ends_pods_by_force_may_do_so_and_nobody_else(on: bool) -> None:
    wanted = Wanted(kubeconfig="", namespace="own", frameworks=("batch/job",), failure_recovery=on)
    granted = [m for m in rights(wanted) if m["metadata"]["name"] == "sluice-watcher-failure-recovery"]
    assert [m["kind"] for m in granted] == (["ClusterRole", "ClusterRoleBinding"] if on else [])
    may_end = [
        m["metadata"]["name"]
        for m in rights(wanted)
        for rule in m.get("rules", ())
        if "pods" in rule.get("resources", ()) and "delete" in rule["verbs"]
    ]
    assert may_end == (["sluice-watcher-failure-recovery"] if on else [])


def test_only_pods_have_a_status_that_is_written() -> None:
    writable = {
        kind.framework
        for kind in integrations.optional()
        for rule in integrations.roles(kind)[0]["rules"]
        if any(resource.endswith("/status") for resource in rule["resources"])
    }
    assert writable == {"pod"}


def test_the_webhook_may_read_what_jobs_refer_to_and_nothing_else() -> None:
    """Its rules about a TrainJob's pods need the runtime that describes them."""
    rules = {
        (kind.framework, role["metadata"]["name"], resource, verb)
        for kind in integrations.optional()
        for role in integrations.roles(kind)
        if role["kind"] == "ClusterRole" and role["metadata"]["name"].startswith("sluice-webhook")
        for rule in role["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    trainjob = ("trainer.kubeflow.org/trainjob", "sluice-webhook-trainjob")
    assert rules == {(*trainjob, "clustertrainingruntimes", "get"), (*trainjob, "trainingruntimes", "get")}
