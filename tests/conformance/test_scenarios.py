"""The scenario files as tests: our own cases always, the shared folder where it is checked out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance import api_admission, live, waiting
from tests.conformance.live import LIVE
from tests.conformance.run import main, run_area, run_case, survivor
from tests.conformance.scenario import Case, Mismatch, Unavailable, read_folder

OWN = Path(__file__).with_name("scenarios")
SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "scenarios"
FOLDERS = [folder for folder in (OWN, SHARED) if folder.is_dir()]
WAITING = waiting.read()
CASES = [
    case for folder in FOLDERS for _, cases in read_folder(folder) for case in cases if WAITING.feature(case) is None
]


NEEDS_CLUSTER = ("api_admission",)


@pytest.fixture(scope="module", autouse=True)
def _api_server_ends() -> Iterator[None]:
    yield
    LIVE.stop()


def _marked(case: Case) -> object:
    marks = [pytest.mark.integration] if case.area in NEEDS_CLUSTER else []
    return pytest.param(case, id=case.id, marks=marks)


@pytest.mark.parametrize("case", [_marked(case) for case in CASES])
def test_case(case: Case) -> None:
    try:
        run_case(case)
    except Unavailable as lack:
        pytest.skip(str(lack))


@pytest.mark.parametrize("case", [case for case in CASES if case.id.startswith("own-")], ids=lambda case: case.id)
def test_case_notices_an_altered_expectation(case: Case) -> None:
    assert survivor(case) is None


def _case(area: str = "queue_order", **expect: object) -> Case:
    raw = {"id": "made-up", "now": "2025-01-01T00:00:00Z", "objects": [], "steps": [{"do": "heads"}], "expect": expect}
    return Case(area, "made-up", raw)


def test_a_wrong_expectation_is_a_failure() -> None:
    with pytest.raises(Mismatch, match="heads"):
        run_case(_case(heads={"line": "team/a"}))


def test_what_a_machine_lacks_is_said_and_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "missing", lambda: "no etcd here")
    raw = {"id": "made-up", "request": {"op": "create", "object": {}}, "expect": {"verdict": "accepted"}}
    case = Case("api_admission", "made-up", raw)
    monkeypatch.setattr(api_admission, "LIVE", live.Live())
    tally = run_area([case], waiting.WaitingList({}, {}), self_check=False, try_waiting=False)
    assert (tally.failed, tally.unlisted) == (0, 0)
    assert tally.line("api") == "api: 0 passed, 0 failed, 1 waiting (1 NOT RUN: no etcd here)"


def test_what_the_runner_cannot_check_is_waiting_and_not_listed() -> None:
    tally = run_area([_case(colour="blue")], waiting.WaitingList({}, {}), self_check=False, try_waiting=False)
    assert (tally.passed, tally.failed, tally.waiting, tally.unlisted) == (0, 0, 1, 1)


@pytest.mark.parametrize(
    "listed", [waiting.WaitingList({"made-up": "x"}, {}), waiting.WaitingList({}, {"queue_order": "x"})]
)
def test_a_listed_case_waits_without_being_run(listed: waiting.WaitingList) -> None:
    tally = run_area([_case(heads={"no": "such"})], listed, self_check=False, try_waiting=False)
    assert tally.line("queue_order") == "queue_order: 0 passed, 0 failed, 1 waiting"
    assert tally.unlisted == 0


def test_self_check_fails_a_case_that_expects_nothing() -> None:
    tally = run_area([_case()], waiting.WaitingList({}, {}), self_check=True, try_waiting=False)
    assert tally.failed == 1


def test_main_prints_each_area_and_a_total(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(OWN)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == [*sorted(path.stem for path in OWN.glob("*.json")), "total"]
    assert lines[-1].endswith("0 failed, 0 waiting")
    (tmp_path / "odd.json").write_text(
        '{"format": 1, "cases": [{"id": "x", "request": {"op": "dance"}, "expect": {}}]}'
    )
    assert main([str(tmp_path)]) == 1
    assert main([str(tmp_path / "missing")]) == 2
