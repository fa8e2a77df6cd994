"""The finalizer that keeps what is in use."""

from __future__ import annotations

import pytest

from services.queue_manager.finalizers import (
    check_in_use,
    checks_of,
    finalizer_change,
    flavor_in_use,
    flavors_of,
    topology_in_use,
)
from shared.api import names
from tests.unit.queue_manager.objects import IN_USE, cluster_queue, flavor, rules


@pytest.mark.parametrize(
    ("deleting", "present", "in_use", "wanted"),
    [
        (False, False, False, True),
        (False, False, True, True),
        (False, True, False, None),
        (False, True, True, None),
        (True, True, True, None),
        (True, True, False, False),
        (True, False, False, None),
        (True, False, True, None),
    ],
)
def test_added_while_alive_removed_when_unused(
    deleting: bool, present: bool, in_use: bool, wanted: bool | None
) -> None:
    guarded = flavor(deleting=deleting, finalizers=("other", *IN_USE) if present else ("other",))
    change = finalizer_change("resourceflavor", guarded, in_use=in_use)
    assert (change.present if change is not None else None) is wanted
    if change is not None:
        assert (change.kind, change.name, change.uid) == ("resourceflavor", "default", "default-uid")


def test_the_finalizer_is_known_by_its_name() -> None:
    assert IN_USE == (names.RESOURCE_IN_USE,) == ("kueue.x-k8s.io/resource-in-use",)


def test_what_a_queue_names() -> None:
    queue = cluster_queue(flavors=("a", "b"), checks=rules("x", "y"))
    assert flavors_of(queue) == {"a", "b"}
    assert checks_of(queue) == {"x", "y"}


@pytest.mark.parametrize(("name", "used"), [("a", True), ("z", False)])
def test_use(name: str, used: bool) -> None:
    queues = [cluster_queue("one", flavors=()), cluster_queue("two", flavors=("a",), checks=rules("a"))]
    assert flavor_in_use(name, queues) is used
    assert check_in_use(name, queues) is used
    assert topology_in_use(name, [flavor(), flavor("f2", topology="a")]) is used
