"""How commands print objects: one line that says what was done, a table, or the object itself, by the words of kubectl's `-o`.

json, yaml and name are written here. Templates (go-template, jsonpath and their kin) are a language of kubectl's, so kubectl evaluates them.
"""

from __future__ import annotations

import itertools
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import msgspec
import typer
import yaml

from cli.ctl.cluster import CommandError, Json
from shared.api.meta import parse_time
from shared.kube.resources import Resource

TEMPLATES = (
    "go-template",
    "go-template-file",
    "template",
    "templatefile",
    "jsonpath",
    "jsonpath-as-json",
    "jsonpath-file",
)
FORMATS = ("json", "yaml", "name", "wide", *TEMPLATES)
GAP = "   "
CUT = "…"
LEAST = 8
"""No column is cut to fewer characters, or to fewer than its head has, unless nothing else is left;"""
LAST = 4
"""then to these."""


class DryRun(StrEnum):
    """How far a command goes."""

    NONE = "none"
    SERVER = "server"
    CLIENT = "client"

    @classmethod
    def of(cls, value: str) -> DryRun:
        """The flag's value. Raises CommandError."""
        try:
            return cls(value)
        except ValueError:
            raise CommandError(f'invalid dry-run value ({value}). Must be "none", "server", or "client"') from None

    @property
    def suffix(self) -> str:
        """What is printed behind the operation."""
        return "" if self is DryRun.NONE else f" ({self} dry run)"


class Style(msgspec.Struct, frozen=True):
    """The output flags of a command. Raises CommandError for a format that nobody knows."""

    output: str = ""
    template: str = ""
    show_managed_fields: bool = False
    allow_missing_keys: bool = True

    def __post_init__(self) -> None:
        word = self.format
        if word and word not in FORMATS:
            raise CommandError(
                f'unable to match a printer suitable for the output format "{word}", allowed formats are: {",".join(FORMATS)}'
            )

    @property
    def format(self) -> str:
        """The word in front of `=`; empty for the command's own way, of which `wide` is more."""
        word = self.output.partition("=")[0] or ("go-template" if self.template else "")
        return "" if word == "wide" else word

    @property
    def wide(self) -> bool:
        """Whether a table has all columns there are."""
        return self.output == "wide"


def show(found: Json | Sequence[Json], style: Style) -> None:
    """Print an object, or several as a List, in the format of the style (which must have one)."""
    single = isinstance(found, dict)
    objects: list[Json] = [found] if isinstance(found, dict) else list(found)
    if not style.show_managed_fields:
        objects = [_without_managed_fields(one) for one in objects]
    whole = (
        objects[0]
        if single
        else {"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}, "items": objects}
    )
    match style.format:
        case "json":
            typer.echo(msgspec.json.format(msgspec.json.encode(whole), indent=4))
        case "yaml":
            typer.echo(yaml.safe_dump(whole, sort_keys=False, default_flow_style=False), nl=False)
        case "name":
            for one in objects:
                typer.echo(f"{one['kind'].lower()}.{one['apiVersion'].partition('/')[0]}/{one['metadata']['name']}")
        case _:
            _by_kubectl(whole, style, single)


def _by_kubectl(whole: Json, style: Style, single: bool) -> None:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        raise CommandError(f"-o {style.format} needs kubectl, which evaluates templates; it is not on PATH")
    verb = ["create", "--dry-run=client", "--validate=false"] if single else ["get"]
    output = style.output or "go-template"
    arguments = [
        kubectl,
        *verb,
        "-f",
        "-",
        "-o",
        output,
        f"--allow-missing-template-keys={str(style.allow_missing_keys).lower()}",
    ]
    if style.template:
        arguments.append(f"--template={style.template}")
    ended = subprocess.run(arguments, input=msgspec.json.encode(whole), check=False)
    if ended.returncode:
        raise typer.Exit(ended.returncode)


def said(resource: Resource, name: str, done: str, how: DryRun = DryRun.NONE) -> None:
    """`localqueue.kueue.x-k8s.io/name created (server dry run)`."""
    typer.echo(f"{singular(resource)}/{name} {done}".rstrip() + how.suffix)


def singular(resource: Resource) -> str:
    """`localqueue.kueue.x-k8s.io`."""
    return f"{resource.kind.lower()}.{resource.group}" if resource.group else resource.kind.lower()


def table(
    head: Sequence[str], rows: Sequence[Sequence[str]], *, with_head: bool = True, width: int | None = None
) -> None:
    """Columns as wide as their content, three spaces between, as kubectl prints them; on a terminal that has less room see `layout`.
    `width`: characters a line may have; None: those of the terminal, and as many as are needed where there is none."""
    if width is None and sys.stdout.isatty():
        width = shutil.get_terminal_size().columns
    gap, widths = layout(head, rows, width)
    lines = [list(row) for row in rows]
    if with_head:
        heads = [_wrapped(words, room) for words, room in zip(head, widths, strict=True)]
        lines = [*map(list, itertools.zip_longest(*heads, fillvalue="")), *lines]
    for line in lines:
        cells = (_cut(cell, room).ljust(room) for cell, room in zip(line, widths, strict=True))
        typer.echo(gap.join(cells).rstrip())


def layout(head: Sequence[str], rows: Sequence[Sequence[str]], width: int | None) -> tuple[str, list[int]]:
    """The gap between columns, and the width of each, for lines of `width` characters at most (None: of any length).

    What gives way, in this order: long cells are cut; heads of several words go over several lines; gaps shrink to one space; and in the end heads are cut too.
    """
    heads = [len(words) for words in head]
    content = [max((len(row[column]) for row in rows), default=0) for column in range(len(head))]
    natural = [max(pair) for pair in zip(heads, content, strict=True)]
    if width is None:
        return GAP, natural
    words = [max(map(len, text.split()), default=0) for text in head]
    narrow = [max(pair) for pair in zip(words, content, strict=True)]
    steps = [(GAP, natural, heads), *((" " * spaces, narrow, words) for spaces in range(len(GAP), 0, -1))]
    for gap, widths, lowest in steps:
        least = [max(low, LEAST) for low in lowest]
        room = width - len(gap) * (len(head) - 1)
        if sum(map(min, widths, least)) <= room:
            return gap, fitted(widths, least, room)
    gap, widths, _ = steps[-1]
    return gap, fitted(widths, [LAST] * len(head), width - len(gap) * (len(head) - 1))


def _wrapped(words: str, room: int) -> list[str]:
    return [words] if len(words) <= room else textwrap.wrap(words, room, break_long_words=False)


def fitted(widths: Sequence[int], least: Sequence[int], room: int) -> list[int]:
    """Widths that add up to `room` at most, if that can be without one below its least: the widest is narrowed first, and the first column, by whose names
    people go on, only when nothing else is left."""
    found = list(widths)
    for columns in (range(1, len(found)), range(1)):
        while sum(found) > room:
            can = [column for column in columns if found[column] > least[column]]
            if not can:
                break
            widest = max(can, key=lambda column: found[column])
            others = max((found[column] for column in can if found[column] < found[widest]), default=0)
            take = min(sum(found) - room, found[widest] - max(others, least[widest], 0))
            found[widest] -= max(take, 1)
    return found


def _cut(cell: str, room: int) -> str:
    return cell if len(cell) <= room else cell[: room - 1] + CUT


def age(since: str | None, now: datetime | None = None) -> str:
    """How long ago, as kubectl says it: 45s, 3m20s, 2h5m, 3d4h, 12d, 2y30d."""
    if not since:
        return "<unknown>"
    return duration(((now or datetime.now(UTC)) - parse_time(since)).total_seconds())


def duration(seconds: float) -> str:
    """Two units at most, and one where the second tells nothing."""
    whole = int(seconds)
    if whole < 0:
        return "0s" if whole > -2 else "<invalid>"
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if whole < 120:
        return f"{whole}s"
    if minutes < 10:
        return _two(minutes, "m", whole % 60, "s")
    if hours < 3:
        return f"{minutes}m"
    if hours < 8:
        return _two(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return _two(days, "d", hours % 24, "h")
    if days < 730:
        return f"{days}d"
    return _two(days // 365, "y", days % 365, "d") if days < 365 * 8 else f"{days // 365}y"


def _two(large: int, unit: str, small: int, smaller: str) -> str:
    return f"{large}{unit}{small}{smaller}" if small else f"{large}{unit}"


def _without_managed_fields(found: Json) -> Json:
    metadata: dict[str, Any] = {name: value for name, value in found["metadata"].items() if name != "managedFields"}
    return {**found, "metadata": metadata}
