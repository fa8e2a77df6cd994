"""The table of gates, and what may be set together."""

from __future__ import annotations

import pytest

from shared.config.feature_gates import DEFAULT_GATES, GateError, parse_flag, resolve
from shared.config.gate_table import GATES, Stage

OFF_BY_DEFAULT = {
    "PrioritizePreemptorWorkloads",
    "PriorityBoost",
    "ConcurrentAdmission",
    "ElasticJobsViaWorkloadSlicesWithTAS",
    "RejectUpdatesToCQWithInvalidOnFlavors",
    "UnadmittedWorkloadsExplicitStatus",
    "DisableWaitForPodsReady",
    "FailureRecoveryPolicy",
    "SchedulerLibraryIntegration",
    "KueueDRAIntegrationConsumableCapacity",
    "TASBalancedPlacement",
    "TASRespectNodeAffinityPreferred",
    "TASReplaceNodeDueToNotReadyOverFixedTime",
    "MultiKueueClusterProfile",
    "MultiKueueOrchestratedPreemption",
    "MultiKueueManagerQuotaAutomation",
    "WorkloadRequestUseMergePatch",
    "ShortWorkloadNames",
    "FastQuotaReleaseInPodIntegration",
    "SparkApplicationIntegration",
    "CustomMetricLabels",
}
ALPHA_ON = {"AllAlpha": True}


def test_defaults() -> None:
    assert {name for name, on in DEFAULT_GATES if not on} == OFF_BY_DEFAULT
    assert len(GATES) == 80
    assert DEFAULT_GATES.changed() == {}


def test_what_a_gate_needs_is_a_gate_that_is_on_by_default() -> None:
    for gate in GATES.values():
        for needed in gate.needs:
            assert GATES[needed].default, f"{gate.name} needs {needed}"


def test_alpha_is_off_and_locked_is_ga() -> None:
    assert {g.name for g in GATES.values() if g.stage is Stage.ALPHA} <= OFF_BY_DEFAULT
    assert {g.name for g in GATES.values() if g.locked} == {
        "ManagedJobsNamespaceSelectorAlwaysRespected",
        "TLSOptions",
    }


def test_an_unknown_name_in_code_is_a_defect() -> None:
    with pytest.raises(KeyError):
        DEFAULT_GATES["NoSuchGate"]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("", {}),
        ("A=true", {"A": True}),
        ("A=true,B=false", {"A": True, "B": False}),
        (" A = 1 , B=F ,", {"A": True, "B": False}),
        ("A=true,A=false", {"A": False}),
        ("AllAlpha=TRUE", {"AllAlpha": True}),
    ],
)
def test_flag(text: str, values: dict[str, bool]) -> None:
    assert parse_flag(text) == values


@pytest.mark.parametrize(
    ("text", "errors"),
    [
        ("A", [("A", "no value: write NAME=true or NAME=false")]),
        ("A=yes", [("A", "not true or false: 'yes'")]),
        ("A=", [("A", "not true or false: ''")]),
        ("A,B=2", [("A", "no value: write NAME=true or NAME=false"), ("B", "not true or false: '2'")]),
    ],
)
def test_flag_that_is_none(text: str, errors: list[tuple[str, str]]) -> None:
    with pytest.raises(GateError) as caught:
        parse_flag(text)
    assert list(caught.value.errors) == errors


def test_one_gate() -> None:
    gates = resolve({"PriorityBoost": True, "PartialAdmission": False})
    assert gates["PriorityBoost"]
    assert not gates["PartialAdmission"]
    assert gates.changed() == {"PriorityBoost": True, "PartialAdmission": False}
    assert not DEFAULT_GATES["PriorityBoost"]


def test_all_alpha_but_those_that_are_named() -> None:
    gates = resolve({**ALPHA_ON, "PriorityBoost": False})
    on = {g.name for g in GATES.values() if g.stage is Stage.ALPHA and gates[g.name]}
    assert on == {g.name for g in GATES.values() if g.stage is Stage.ALPHA} - {"PriorityBoost"}
    # Beta and deprecated ones stay as they are.
    assert not gates["UnadmittedWorkloadsExplicitStatus"]
    assert not gates["TASReplaceNodeDueToNotReadyOverFixedTime"]


def test_no_beta_but_those_that_are_named() -> None:
    gates = resolve({"AllBeta": False, "PartialAdmission": True})
    assert [g.name for g in GATES.values() if g.stage is Stage.BETA and gates[g.name]] == ["PartialAdmission"]
    assert gates["TLSOptions"]


def test_all_beta() -> None:
    assert resolve({"AllBeta": True}).changed() == {"UnadmittedWorkloadsExplicitStatus": True}


@pytest.mark.parametrize("name", ["ManagedJobsNamespaceSelectorAlwaysRespected", "TLSOptions"])
def test_a_locked_gate_takes_its_own_value_only(name: str) -> None:
    assert resolve({name: True})[name]
    with pytest.raises(GateError, match=f"{name}: cannot be set to false: it is locked to true"):
        resolve({name: False})


def test_unknown() -> None:
    with pytest.raises(GateError) as caught:
        resolve({"NoSuchGate": True, "Other": False})
    assert caught.value.errors == (
        ("NoSuchGate", "no such feature gate"),
        ("Other", "no such feature gate"),
    )


@pytest.mark.parametrize("name", [name for name, gate in GATES.items() if gate.needs])
def test_a_gate_is_refused_without_what_it_needs(name: str) -> None:
    for needed in GATES[name].needs:
        dependents = {n: False for n, g in GATES.items() if needed in g.needs and n != name}
        # What needs those in turn is switched off as well, so that only this one is left to complain.
        more = {n: False for n, g in GATES.items() if set(g.needs) & set(dependents) and n != name}
        with pytest.raises(GateError) as caught:
            resolve({**more, **dependents, needed: False, name: True})
        ((refused, why),) = caught.value.errors
        assert refused == name
        assert why.startswith("needs ")
        assert needed in why
        assert not resolve({**more, **dependents, needed: False, name: False})[name]


def test_several_needs_in_one_line() -> None:
    with pytest.raises(
        GateError, match=r"ElasticJobsViaWorkloadSlicesWithTAS: needs ElasticJobsViaWorkloadSlices, Topo.*which are off"
    ):
        resolve({**ALPHA_ON, "ElasticJobsViaWorkloadSlices": False, "TopologyAwareScheduling": False})
