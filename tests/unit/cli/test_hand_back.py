"""Records of ownership, from updated to applied: what changes, what does not, and that nothing owned is lost."""

from __future__ import annotations

import json
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from cli import hand_back as command
from cli.hand_back import MANAGERS, HandBackError, HandedBack, as_applied, hand_back, union
from cli.main import app
from services.watcher.standing import HOLDER
from shared.api import names
from shared.api.meta import format_time
from shared.kube.resources import LEASES, WORKLOADS
from tests.unit.kube.api_server import ApiServer, kubeconfig, serve, status

Entry = dict[str, Any]


def entry(operation: str, *fields: str, manager: str = names.ADMISSION_MANAGER, subresource: str = "status") -> Entry:
    return {
        "manager": manager,
        "operation": operation,
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "fieldsType": "FieldsV1",
        "subresource": subresource,
        "fieldsV1": {"f:status": {f"f:{field}": {} for field in fields}},
    }


@pytest.mark.parametrize("manager", MANAGERS)
def test_what_was_updated_counts_as_applied(manager: str) -> None:
    assert as_applied([entry("Update", "admission", manager=manager)]) == [entry("Apply", "admission", manager=manager)]


def test_what_kueue_applied_before_is_kept_in_the_one_record_of_it() -> None:
    both = as_applied([entry("Apply", "requeueState"), entry("Update", "admission")])
    assert both == [entry("Apply", "admission", "requeueState")]


def test_each_manager_keeps_its_own() -> None:
    ready = {"manager": names.PODS_READY_MANAGER}
    both = as_applied([entry("Apply", "conditions", **ready), entry("Update", "admission")])
    assert both == [entry("Apply", "conditions", **ready), entry("Apply", "admission")]


@pytest.mark.parametrize(
    "other",
    [
        entry("Apply", "admission"),
        entry("Update", "admission", manager="somebody"),
        entry("Update", "labels", subresource=""),
    ],
)
def test_what_others_own_and_what_is_applied_already_stays(other: Entry) -> None:
    assert as_applied([other]) is None
    assert as_applied([other, entry("Update", "x", manager=names.RECLAIMABLE_PODS_MANAGER)]) is not None
    kept = as_applied([deepcopy(other), entry("Update", "x", manager=names.RECLAIMABLE_PODS_MANAGER)])
    assert kept is not None
    assert other in kept


fields: st.SearchStrategy[dict[str, Any]] = st.recursive(
    st.just({}),
    lambda inner: st.dictionaries(st.sampled_from([".", "f:a", "f:b", 'k:{"type":"x"}', "v:1"]), inner, max_size=3),
    max_leaves=8,
)
entries = st.lists(
    st.builds(
        lambda manager, operation, subresource, owned: {
            "manager": manager, "operation": operation, "subresource": subresource, "fieldsV1": owned,
        },
        st.sampled_from([*MANAGERS, "kubectl"]),
        st.sampled_from(["Apply", "Update"]),
        st.sampled_from(["status", ""]),
        fields,
    ),
    max_size=6,
    unique_by=lambda e: (e["manager"], e["operation"], e["subresource"]),
)  # fmt: skip


def paths(owned: dict[str, Any], prefix: tuple[str, ...] = ()) -> set[tuple[str, ...]]:
    found: set[tuple[str, ...]] = set()
    for key, below in owned.items():
        found |= {(*prefix, key)} | paths(below, (*prefix, key))
    return found


def owners(records: list[Entry]) -> dict[tuple[str, str], set[tuple[str, ...]]]:
    owned: dict[tuple[str, str], set[tuple[str, ...]]] = {}
    for one in records:
        owned.setdefault((one["manager"], one["subresource"]), set()).update(paths(one["fieldsV1"]))
    return owned


@given(entries)
def test_nobody_gains_or_loses_a_field_and_a_second_time_changes_nothing(before: list[Entry]) -> None:
    given_ = json.dumps(before)
    after = as_applied(before)
    assert json.dumps(before) == given_
    if after is None:
        return
    assert owners(after) == owners(before)
    assert as_applied(after) is None
    identities = [(e["manager"], e["operation"], e["subresource"]) for e in after]
    assert len(identities) == len(set(identities))


@given(fields, fields)
def test_union_holds_exactly_what_either_holds(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert paths(union(one, other)) == paths(one) | paths(other)
    assert union(one, other) == union(other, one)


# Against an API server.


def workload(name: str, *records: Entry, finished: bool = False) -> dict[str, Any]:
    conditions = [{"type": "Finished", "status": "True"}] if finished else []
    metadata = {"name": name, "namespace": "ns", "managedFields": list(records)}
    return {"metadata": metadata, "status": {"conditions": conditions, "admission": {"clusterQueue": "q"}}}


async def served(folder: Path, api: ApiServer) -> HandedBack:
    async with serve(api) as url:
        return await hand_back(str(kubeconfig(folder, url)), "kueue-system")


def recorded(api: ApiServer, name: str) -> list[Entry]:
    found: list[Entry] = api.objects["workloads"][("ns", name)]["metadata"]["managedFields"]
    return found


async def test_every_unfinished_workload_of_every_page_and_nothing_else_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "PAGE", 2)
    api = ApiServer()
    for number in range(5):
        await api.put(WORKLOADS, workload(f"w{number}", entry("Update", "admission")))
    await api.put(WORKLOADS, workload("theirs", entry("Apply", "admission")))
    await api.put(WORKLOADS, workload("done", entry("Update", "admission"), finished=True))
    assert await served(tmp_path, api) == HandedBack(workloads=6, changed=5)
    for number in range(5):
        assert recorded(api, f"w{number}") == [entry("Apply", "admission")]
        assert api.objects["workloads"][("ns", f"w{number}")]["status"]["admission"] == {"clusterQueue": "q"}
    assert recorded(api, "done") == [entry("Update", "admission")]
    assert await served(tmp_path, api) == HandedBack(workloads=6, changed=0)


async def test_who_writes_meanwhile_is_not_undone_and_what_is_gone_is_left_out(tmp_path: Path) -> None:
    api = ApiServer()
    await api.put(WORKLOADS, workload("busy", entry("Update", "admission")))
    await api.put(WORKLOADS, workload("gone", entry("Update", "admission")))

    async def meanwhile(request: web.Request) -> None:
        """When the first patch comes: somebody wrote one, and the other was deleted."""
        if request.method != "PATCH":
            api.faults.append(meanwhile)
        elif ("ns", "gone") in api.objects["workloads"]:
            await api.put(WORKLOADS, workload("busy", entry("Update", "admission", "conditions")))
            await api.remove(WORKLOADS, "ns", "gone")

    api.faults.append(meanwhile)
    assert await served(tmp_path, api) == HandedBack(workloads=2, changed=1)
    assert recorded(api, "busy") == [entry("Apply", "admission", "conditions")]


def lease(holder: str, seconds_ago: float) -> dict[str, Any]:
    renewed = format_time(datetime.now(UTC) - timedelta(seconds=seconds_ago))
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed}
    return {"metadata": {"name": "c1f6bfd2.kueue.x-k8s.io", "namespace": "kueue-system"}, "spec": spec}


@pytest.mark.parametrize(
    ("holder", "seconds_ago", "refused"),
    [(HOLDER, 1, True), (HOLDER, 60, False), ("a-kueue", 1, False), ("", 1, False)],
)
async def test_not_while_a_watcher_is_active(tmp_path: Path, holder: str, seconds_ago: float, refused: bool) -> None:
    api = ApiServer()
    await api.put(WORKLOADS, workload("w", entry("Update", "admission")))
    await api.put(LEASES, lease(holder, seconds_ago))
    if refused:
        with pytest.raises(HandBackError, match="stop it first"):
            await served(tmp_path, api)
    else:
        assert (await served(tmp_path, api)).changed == 1
    assert recorded(api, "w") == [entry("Update" if refused else "Apply", "admission")]


async def test_what_the_api_server_forbids_is_said(tmp_path: Path) -> None:
    api = ApiServer()
    await api.put(WORKLOADS, workload("w", entry("Update", "admission")))

    async def forbidden(request: web.Request) -> web.Response | None:
        if request.method == "PATCH":
            return status(403, "Forbidden", "nobody may patch workloads")
        api.faults.append(forbidden)
        return None

    api.faults.append(forbidden)
    with pytest.raises(HandBackError, match="nobody may patch workloads"):
        await served(tmp_path, api)


def test_the_command_says_how_many_and_what_is_wrong(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async def done(kubeconfig: str, namespace: str) -> HandedBack:
        return HandedBack(workloads=3, changed=2)

    async def wrong(kubeconfig: str, namespace: str) -> HandedBack:
        raise HandBackError(f"the watcher of {namespace} is active")

    monkeypatch.setattr(command, "hand_back", done)
    said = CliRunner().invoke(app, ["hand-back"])
    assert (said.exit_code, said.output) == (0, "2 of 3 workloads handed back\n")
    monkeypatch.setattr(command, "hand_back", wrong)
    said = CliRunner().invoke(app, ["hand-back", "-n", "batch"])
    assert (said.exit_code, said.output) == (1, "the watcher of batch is active\n")
