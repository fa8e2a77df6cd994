"""Output of objects, ages and tables."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.ctl.cluster import CommandError
from cli.ctl.printing import LAST, DryRun, Style, duration, fitted, layout, show, table


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "<invalid>"),
        (-1, "0s"),
        (0.9, "0s"),
        (119, "119s"),
        (120, "2m"),
        (200, "3m20s"),
        (599, "9m59s"),
        (600, "10m"),
        (3 * 3600 - 1, "179m"),
        (3 * 3600, "3h"),
        (5 * 3600 + 300, "5h5m"),
        (47 * 3600, "47h"),
        (49 * 3600, "2d1h"),
        (8 * 86400, "8d"),
        (729 * 86400, "729d"),
        (750 * 86400, "2y20d"),
        (9 * 365 * 86400, "9y"),
    ],
)
def test_durations_as_kubectl_says_them(seconds: float, text: str) -> None:
    assert duration(seconds) == text


QUEUE = {
    "apiVersion": "kueue.x-k8s.io/v1beta2",
    "kind": "LocalQueue",
    "metadata": {"name": "main", "managedFields": [{"manager": "me"}]},
}


def test_json_and_yaml_leave_managed_fields_out(capsys: pytest.CaptureFixture[str]) -> None:
    show(QUEUE, Style("json"))
    assert "managedFields" not in capsys.readouterr().out
    show(QUEUE, Style("yaml"))
    assert capsys.readouterr().out == (
        "apiVersion: kueue.x-k8s.io/v1beta2\nkind: LocalQueue\nmetadata:\n  name: main\n"
    )
    show(QUEUE, Style("json", show_managed_fields=True))
    assert '"manager": "me"' in capsys.readouterr().out


def test_names_of_several(capsys: pytest.CaptureFixture[str]) -> None:
    show([QUEUE, QUEUE], Style("name"))
    assert capsys.readouterr().out.splitlines() == ["localqueue.kueue.x-k8s.io/main"] * 2


def test_several_are_a_list(capsys: pytest.CaptureFixture[str]) -> None:
    show([QUEUE], Style("yaml"))
    assert capsys.readouterr().out.startswith("apiVersion: v1\nkind: List\n")


def test_unknown_words_are_refused() -> None:
    with pytest.raises(CommandError, match='output format "xml"'):
        Style("xml")
    with pytest.raises(CommandError, match=r"invalid dry-run value \(maybe\)"):
        DryRun.of("maybe")
    assert Style("jsonpath={.metadata.name}").format == "jsonpath"
    assert Style(template="{{.}}").format == "go-template"


def test_wide_is_the_commands_own_way_and_more() -> None:
    assert (Style("wide").format, Style("wide").wide) == ("", True)
    assert not Style("json").wide
    assert not Style().wide


@given(
    st.lists(st.tuples(st.integers(1, 60), st.integers(1, 20)), min_size=1, max_size=8),
    st.integers(0, 200),
)
def test_columns_fit_if_they_can(columns: list[tuple[int, int]], room: int) -> None:
    widths, least = [width for width, _ in columns], [low for _, low in columns]
    found = fitted(widths, least, room)
    assert all(new <= old for new, old in zip(found, widths, strict=True))
    assert all(new >= min(low, old) for new, low, old in zip(found, least, widths, strict=True))
    floor = sum(min(low, old) for low, old in zip(least, widths, strict=True))
    assert sum(found) == min(sum(widths), max(room, floor))
    if found[0] < widths[0]:
        assert all(new <= max(low, 0) or new <= low for new, low in zip(found[1:], least[1:], strict=True))


def test_a_narrow_terminal_cuts_the_widest_column_but_not_the_names(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [("a-name-that-is-long", "x" * 40, "5m"), ("b", "short", "1s")]
    table(("NAME", "LABELS", "AGE"), rows, width=50)
    lines = capsys.readouterr().out.splitlines()
    assert all(len(line) <= 50 for line in lines)
    assert lines[1].startswith("a-name-that-is-long   xxxxx")
    assert "x…   5m" in lines[1]
    table(("NAME", "LABELS", "AGE"), rows, width=200)
    assert "…" not in capsys.readouterr().out
    table(("NAME", "LABELS", "AGE"), rows)
    assert "…" not in capsys.readouterr().out, "into a pipe all is written"


HEADS = (
    ("NAME", "COHORT", "PENDING WORKLOADS", "ADMITTED WORKLOADS", "ACTIVE", "AGE"),
    (
        "NAMESPACE", "NAME", "JOB TYPE", "JOB NAME", "LOCALQUEUE", "CLUSTERQUEUE", "STATUS", "POSITION IN QUEUE", "EXEC TIME", "AGE",
        "PRIORITY", "PODS", "FLAVORS", "REASON",
    ),
)  # fmt: skip


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("width", [80, 100, 132])
def test_the_tables_of_lists_fit_a_terminal(
    head: tuple[str, ...], width: int, capsys: pytest.CaptureFixture[str]
) -> None:
    table(head, [tuple(f"{word.lower()}-{'x' * 30}" for word in head)] * 2, width=width)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= width
    assert [line for line in lines if "x" in line or "…" in line]


def test_heads_of_several_words_go_over_several_lines_before_they_are_cut(capsys: pytest.CaptureFixture[str]) -> None:
    table(HEADS[0], [("a-queue-of-the-lab", "all", "12", "3", "true", "5m")], width=70)
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        "NAME                 COHORT   PENDING     ADMITTED    ACTIVE   AGE",
        "                              WORKLOADS   WORKLOADS",
        "a-queue-of-the-lab   all      12          3           true     5m",
    ]


words = st.lists(st.sampled_from(["NAME", "QUEUE", "WORKLOADS", "IN"]), min_size=1, max_size=3).map(" ".join)


@given(st.lists(st.tuples(words, st.text("ab-", max_size=40)), min_size=1, max_size=12), st.integers(1, 200))
def test_a_layout_shows_all_if_there_is_room_and_never_more_than_there_is(
    columns: list[tuple[str, str]], width: int
) -> None:
    head, row = [name for name, _ in columns], [cell for _, cell in columns]
    gap, widths = layout(head, [row], width)
    total = sum(widths) + len(gap) * (len(widths) - 1)
    natural = [max(len(name), len(cell)) for name, cell in columns]
    if sum(natural) + 3 * (len(natural) - 1) <= width:
        assert (gap, widths) == ("   ", natural)
    assert total <= max(width, LAST * len(columns) + len(columns) - 1)
    assert layout(head, [row], None) == ("   ", natural)


def test_columns_are_as_wide_as_their_content(capsys: pytest.CaptureFixture[str]) -> None:
    table(("NAME", "AGE"), [("a-long-name", "1s"), ("b", "20m")])
    assert capsys.readouterr().out.splitlines() == ["NAME          AGE", "a-long-name   1s", "b             20m"]
