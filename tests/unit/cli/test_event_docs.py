"""docs/events.md is what the Structs say."""

from __future__ import annotations

from typing import get_args

from cli.event_docs import TARGET, render
from devcluster.stack import ROOT
from shared.events import cloudevents


def test_the_page_is_current() -> None:
    assert (ROOT / TARGET).read_text() == render(), "run `make docs`"


def test_every_event_and_its_own_fields_are_there() -> None:
    page = render()
    for type_ in get_args(cloudevents.Data):
        assert f"`{cloudevents.TYPE_PREFIX}{type_.__struct_config__.tag}.v1`" in page
    assert "`waitSeconds` | number, may be absent | From creation or requeue to admission." in page
