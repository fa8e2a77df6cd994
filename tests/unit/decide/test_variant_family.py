"""Families of concurrent admission: what is done about a parent and its variants, rule by rule and over whole lives."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.decide.variant_family import (
    UNGATE_EVERY_S,
    AdmitParent,
    CopyProgress,
    CreateVariant,
    DeleteVariant,
    Disband,
    EvictParent,
    Family,
    FinishVariant,
    FollowParent,
    OpenGate,
    ReleaseVariant,
    RequeueVariant,
    SetVariantActive,
    Step,
    Variant,
    next_steps,
)

FLAVORS = ("best", "good", "last")
NOW = 1_000_000.0


def variant(flavor: str, **fields: Any) -> Variant:
    """`admitted` brings the reservation along; whoever holds quota is not admissible."""
    if fields.get("admitted"):
        fields.setdefault("reserved", True)
    fields.setdefault("admissible", not fields.get("reserved", False) and fields.get("active", True))
    return Variant(name=f"v-{flavor}", flavor=flavor, **fields)


def family(*changed: Variant, **fields: Any) -> Family:
    """All flavors have a variant, those that are given and plain ones."""
    given_ = {v.flavor: v for v in changed}
    fields.setdefault("variants", tuple(given_.get(flavor, variant(flavor)) for flavor in FLAVORS))
    fields.setdefault("flavors", FLAVORS)
    if fields.get("admitted"):
        fields.setdefault("reserved", True)
    return Family(**fields)


def steps(found: Family, now: float = NOW) -> tuple[Step, ...]:
    return next_steps(found, now).steps


def evictions(found: Family) -> list[str]:
    return [step.reason for step in steps(found) if isinstance(step, EvictParent)]


# --- 1: making and deleting ------------------------------------------------------------------------------------------


def test_each_flavor_gets_a_variant_in_the_order_of_the_queue() -> None:
    assert steps(family(variants=())) == tuple(CreateVariant(flavor) for flavor in FLAVORS)
    assert steps(family(variants=(variant("good"),))) == (CreateVariant("best"), CreateVariant("last"))
    assert steps(family()) == ()


def test_a_flavor_that_left_the_queue_takes_its_variant_along() -> None:
    assert steps(family(variant("last"), flavors=FLAVORS[:2])) == (DeleteVariant("v-last"),)


def test_of_two_variants_on_a_flavor_one_goes() -> None:
    twice = (variant("best"), msgspec.structs.replace(variant("best"), name="w-best"))
    assert steps(family(variants=twice, flavors=("best",))) == (DeleteVariant("w-best"),)


@pytest.mark.parametrize("changes", [{"current": False}, {"finished": True}])
def test_a_variant_that_can_be_of_no_use_is_made_anew_once_it_is_gone(changes: dict[str, Any]) -> None:
    assert steps(family(variant("good", **changes))) == (DeleteVariant("v-good"),)
    # Its name is still taken.
    assert steps(family(variant("good", deleting=True, **changes))) == ()


def test_what_the_parent_asks_for_is_not_compared_while_its_job_may_run() -> None:
    running = family(variant("best", admitted=True, current=False), admitted=True, flavor="best", retain_first=True)
    assert DeleteVariant("v-best") not in steps(running)


def test_without_its_queue_nothing_is_made_or_deleted() -> None:
    assert steps(family(flavors=None)) == ()
    assert steps(family(variants=(), flavors=None)) == ()


def test_a_queue_without_the_policy_ends_the_family() -> None:
    assert steps(family(flavors=())) == tuple(DeleteVariant(f"v-{flavor}") for flavor in ("best", "good", "last"))
    assert steps(family(variants=(), flavors=())) == (Disband(),)
    running = family(variants=(), flavors=(), admitted=True, flavor="best")
    assert evictions(running) == ["ConcurrentAdmission"]
    assert Disband() not in steps(running)


def test_what_changed_of_the_parent_is_taken_over() -> None:
    assert steps(family(variant("good", follows=False))) == (FollowParent("v-good"),)


# --- 2: evicted variants ---------------------------------------------------------------------------------------------


def test_the_quota_of_an_evicted_variant_is_free_once_the_job_of_its_parent_has_stopped() -> None:
    gone = variant("good", admitted=True, evicted=True)
    running = family(gone, admitted=True, flavor="good")
    assert evictions(running) == ["VariantEvicted"]
    assert steps(running)[-1] == EvictParent("VariantEvicted", "The variant on flavor good was evicted")
    assert steps(family(gone, admitted=True, evicted=True, flavor="good")) == ()
    assert steps(family(gone, evicted=True)) == (ReleaseVariant("v-good"),)


def test_a_reservation_by_which_nothing_runs_is_given_back_at_once() -> None:
    waits_for_checks = variant("last", reserved=True, evicted=True, active=False)
    running = family(waits_for_checks, variant("best", admitted=True), admitted=True, flavor="best")
    assert steps(running) == (ReleaseVariant("v-last"),)


# --- 3 and 4: activity -----------------------------------------------------------------------------------------------


def activity(found: Family) -> dict[str, bool]:
    return {step.name[2:]: step.active for step in steps(found) if isinstance(step, SetVariantActive)}


def test_an_inactive_parent_has_no_active_variant() -> None:
    assert activity(family(active=False)) == dict.fromkeys(FLAVORS, False)
    held = family(variant("good", admitted=True), active=False, admitted=True, evicted=True, flavor="good")
    assert activity(held) == dict.fromkeys(FLAVORS, False)


@pytest.mark.parametrize(
    ("retain", "last", "expected"),
    [
        (True, "", {"best": False, "last": False}),
        (False, "", {"last": False}),
        (False, "best", {"last": False}),
        (False, "good", {"last": False}),
        (False, "last", {"last": False}),
    ],
)
def test_who_goes_on_trying_beside_an_admitted_variant(retain: bool, last: str, expected: dict[str, bool]) -> None:
    found = family(variant("good", admitted=True), admitted=True, flavor="good", retain_first=retain)
    assert activity(msgspec.structs.replace(found, last_acceptable=last)) == expected


def test_flavors_after_the_last_acceptable_one_are_not_worth_a_migration() -> None:
    found = family(variant("last", admitted=True), admitted=True, flavor="last", last_acceptable="best")
    assert activity(found) == {"good": False}


def test_without_an_admitted_variant_all_are_tried() -> None:
    off = tuple(variant(flavor, active=False) for flavor in FLAVORS)
    assert activity(family(*off)) == dict.fromkeys(FLAVORS, True)
    assert activity(family(*off, active=False)) == {}
    assert activity(family(*off, last_acceptable="best", retain_first=True)) == dict.fromkeys(FLAVORS, True)


def test_better_ones_are_tried_again_beside_an_admitted_variant_if_they_may_replace_it() -> None:
    off = (variant("best", active=False), variant("good", active=False), variant("last", admitted=True))
    running = family(*off, admitted=True, flavor="last")
    assert activity(running) == {"best": True, "good": True}
    assert activity(msgspec.structs.replace(running, last_acceptable="best")) == {"best": True}
    assert activity(msgspec.structs.replace(running, retain_first=True)) == {}


def test_what_was_migrated_away_from_may_be_tried_again_when_nothing_better_is_left() -> None:
    parked = variant("good", parked=True)
    assert steps(family(parked)) == (RequeueVariant("v-good"),)
    # Activated first: a write at a time.
    assert RequeueVariant("v-good") not in steps(family(variant("good", parked=True, active=False)))
    better = family(parked, variant("best", admitted=True), admitted=True, flavor="best")
    assert RequeueVariant("v-good") not in steps(better)


# --- 5: the parent ---------------------------------------------------------------------------------------------------


def test_the_parent_is_admitted_with_its_variant() -> None:
    found = family(variant("good", admitted=True), variant("last", active=False))
    assert steps(found) == (AdmitParent("v-good"),)
    behind = family(variant("good", admitted=True, same_progress=False), variant("last", active=False))
    assert steps(behind) == (CopyProgress("v-good"), AdmitParent("v-good"))


@pytest.mark.parametrize(
    "changes",
    [
        {"active": False},
        {"reserved": True},
        {"reserved": True, "evicted": True},
        {"requeue_at": int(NOW) + 60},
        {"deleting": True},
        {"finished": True},
    ],
)
def test_when_the_parent_is_not_admitted(changes: dict[str, Any]) -> None:
    found = steps(family(variant("good", admitted=True), **changes))
    assert not any(isinstance(step, AdmitParent) for step in found)


def test_a_variant_that_is_about_to_be_stopped_admits_nobody() -> None:
    found = steps(family(variant("good", admitted=True, active=False)))
    assert not any(isinstance(step, AdmitParent) for step in found)


def test_a_backoff_of_the_parent_is_waited_for() -> None:
    found = family(variant("good", admitted=True), requeue_at=int(NOW) + 60)
    assert next_steps(found, NOW).again_at == NOW + 60
    assert AdmitParent("v-good") in steps(found, NOW + 60)


def test_a_job_is_not_stopped_for_a_variant_that_it_does_not_run_by() -> None:
    runs, late = variant(FLAVORS[0], admitted=True), variant(FLAVORS[1], admitted=True, evicted=True)
    found = steps(family(runs, late, admitted=True, flavor=FLAVORS[0]))
    assert ReleaseVariant(late.name) in found
    assert not [step for step in found if isinstance(step, EvictParent)]
    # The other way round it has to stop before the quota is free.
    found = steps(family(runs, late, admitted=True, flavor=FLAVORS[1]))
    assert [step for step in found if isinstance(step, EvictParent)]
    assert ReleaseVariant(late.name) not in found


def test_a_parent_without_an_admitted_variant_is_evicted() -> None:
    assert evictions(family(admitted=True, flavor="good")) == ["ConcurrentAdmission"]
    assert evictions(family(variants=(), flavors=None, admitted=True)) == ["ConcurrentAdmission"]
    assert evictions(family(admitted=True, evicted=True, flavor="good")) == []


def test_two_that_were_admitted_side_by_side_become_one() -> None:
    both = (variant("best", admitted=True), variant("good", admitted=True))
    moving = family(*both, admitted=True, flavor="good")
    assert evictions(moving) == ["VariantEvicted"]
    assert activity(moving) == {"good": False, "last": False}
    staying = msgspec.structs.replace(moving, retain_first=True)
    assert evictions(staying) == []
    assert activity(staying) == {"best": False, "last": False}
    assert evictions(msgspec.structs.replace(staying, flavor="last")) == ["VariantEvicted"]


def test_how_far_the_job_is_goes_on_to_the_variant() -> None:
    running = family(variant("best", admitted=True, same_progress=False), retain_first=True, admitted=True)
    assert CopyProgress("v-best") in steps(msgspec.structs.replace(running, flavor="best"))
    leaving = msgspec.structs.replace(running, flavor="best", evicted=True)
    assert CopyProgress("v-best") not in steps(leaving)


def test_the_end_of_the_parent_is_the_end_of_all() -> None:
    found = family(variant("good", finished=True), finished=True, admitted=True)
    assert steps(found) == (FinishVariant("v-best"), FinishVariant("v-last"))


def test_a_parent_that_is_going_takes_its_variants_along_by_itself() -> None:
    assert steps(family(variant("good", admitted=True, evicted=True), deleting=True, admitted=True)) == ()


# --- 6: preemption ---------------------------------------------------------------------------------------------------


def gate_of(*changed: Variant, now: float = NOW) -> tuple[list[str], float | None]:
    verdict = next_steps(family(*changed), now)
    return [step.name[2:] for step in verdict.steps if isinstance(step, OpenGate)], verdict.again_at


def test_the_preferred_one_that_would_have_to_preempt_may() -> None:
    assert gate_of(variant("best", blocked=True, looked_at=True)) == (["best"], None)
    evaluated = variant("best", looked_at=True)
    assert gate_of(evaluated, variant("good", blocked=True, looked_at=True)) == (["good"], None)


def test_whoever_was_not_looked_at_yet_is_waited_for() -> None:
    assert gate_of(variant("good", blocked=True, looked_at=True)) == ([], None)


@pytest.mark.parametrize("changes", [{"active": False}, {"admissible": False}, {"reserved": True}])
def test_only_those_that_are_queued_have_a_say(changes: dict[str, Any]) -> None:
    opened, _ = gate_of(variant("best", **changes), variant("good", blocked=True, looked_at=True))
    assert opened == ["good"]


def test_gates_are_opened_five_minutes_apart() -> None:
    opened = variant("best", blocked=True, looked_at=True, open_since=int(NOW))
    next_one = variant("good", blocked=True, looked_at=True)
    assert gate_of(opened, next_one) == ([], NOW + UNGATE_EVERY_S)
    assert gate_of(opened, next_one, now=NOW + UNGATE_EVERY_S - 1) == ([], NOW + UNGATE_EVERY_S)
    assert gate_of(opened, next_one, now=NOW + UNGATE_EVERY_S) == (["good"], None)


def test_no_gate_is_opened_while_variants_are_missing() -> None:
    found = family(variants=(variant("best", blocked=True, looked_at=True),))
    assert steps(found) == (CreateVariant("good"), CreateVariant("last"))


# --- whole lives -----------------------------------------------------------------------------------------------------


class Life:
    """A family whose steps are carried out, a scheduler that admits whom it likes, and a job that starts and stops."""

    def __init__(self, *, retain: bool, last: str) -> None:
        self.found = Family(flavors=FLAVORS, retain_first=retain, last_acceptable=last)

    def parent(self, **fields: Any) -> None:
        self.found = msgspec.structs.replace(self.found, **fields)

    def variant(self, name: str, **fields: Any) -> None:
        changed = tuple(msgspec.structs.replace(v, **fields) if v.name == name else v for v in self.found.variants)
        self.parent(variants=changed)

    def one(self, name: str) -> Variant:
        return next(v for v in self.found.variants if v.name == name)

    def event(self, what: str, flavor: str) -> None:
        """Something that others do."""
        name = f"v-{flavor}"
        there = next((v for v in self.found.variants if v.name == name), None)
        match what:
            case "admit" if there is not None and there.active and not there.reserved and not there.parked:
                self.variant(name, reserved=True, admitted=True, evicted=False, admissible=False)
            case "migrate" | "preempt" if there is not None and there.reserved and not there.evicted:
                self.variant(name, evicted=True, parked=what == "migrate")
            case "delete" if there is not None:
                self.parent(variants=tuple(v for v in self.found.variants if v.name != name))
            case "switch":
                self.parent(active=not self.found.active)
            case _:
                pass

    def rest(self) -> None:
        """Until nobody has anything left to do."""
        for _ in range(60):
            before = self.found
            for step in next_steps(self.found, NOW).steps:
                self.carry_out(step)
            self.others()
            if self.found == before:
                return
        raise AssertionError(f"never at rest: {next_steps(self.found, NOW)}")

    def others(self) -> None:
        """Who is inactive is evicted; the job of an evicted parent stops, and gives back what it has."""
        for one in self.found.variants:
            if not one.active and one.reserved and not one.evicted:
                self.variant(one.name, evicted=True)
        if not self.found.active and self.found.reserved:
            self.parent(evicted=True)
        if self.found.evicted and self.found.reserved:
            self.parent(reserved=False, admitted=False, flavor="")

    def carry_out(self, step: Step) -> None:
        match step:
            case CreateVariant(flavor):
                assert flavor not in {v.flavor for v in self.found.variants}
                self.parent(variants=(*self.found.variants, variant(flavor)))
            case DeleteVariant(name):
                self.event("delete", name[2:])
            case SetVariantActive(name, active):
                self.variant(name, active=active)
            case ReleaseVariant(name):
                one = self.one(name)
                assert one.evicted
                assert not (one.admitted and self.found.reserved and self.found.flavor == one.flavor)
                self.variant(name, reserved=False, admitted=False, admissible=one.active)
            case RequeueVariant(name):
                self.variant(name, parked=False)
            case EvictParent():
                assert self.found.reserved
                assert not self.found.evicted
                self.parent(evicted=True)
            case AdmitParent(name):
                one = self.one(name)
                assert one.admitted
                assert not self.found.reserved
                self.parent(reserved=True, admitted=True, evicted=False, flavor=one.flavor)
            case _:
                raise AssertionError(step)


EVENTS = st.tuples(
    st.sampled_from(["admit", "migrate", "preempt", "delete", "switch", "rest"]), st.sampled_from(FLAVORS)
)


@settings(max_examples=400, deadline=None)
@given(st.booleans(), st.sampled_from(["", *FLAVORS]), st.lists(EVENTS, max_size=12), st.booleans())
def test_whatever_happens_a_family_comes_to_rest_in_order(
    retain: bool, last: str, happens: list[tuple[str, str]], patient: bool
) -> None:
    life = Life(retain=retain, last=last if not retain else "")
    life.rest()
    for what, flavor in happens:
        life.event(what, flavor)
        if patient or what == "rest":
            life.rest()
    life.rest()
    found = life.found
    admitted = [v for v in found.variants if v.admitted]
    assert sorted(v.flavor for v in found.variants) == sorted(FLAVORS)
    assert len(admitted) <= 1
    assert found.admitted == bool(admitted)
    if admitted:
        assert found.flavor == admitted[0].flavor
    if not found.active:
        assert not any(v.active or v.reserved for v in found.variants)
    elif not admitted:
        assert all(v.active and not v.parked for v in found.variants)
    elif retain:
        assert [v for v in found.variants if v.active] == admitted
    else:
        place = FLAVORS.index(admitted[0].flavor)
        assert not any(v.active for v in found.variants if FLAVORS.index(v.flavor) > place)
