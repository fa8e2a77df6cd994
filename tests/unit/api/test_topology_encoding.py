"""The compact form of topology assignments: what Kueue writes for a list of domains, and what is read from any legal form."""

import msgspec
import pytest

from shared.api import topology_encoding
from shared.api.decoding import convert
from shared.api.names import HOSTNAME_LABEL
from shared.api.topology_assignment import TopologyAssignment
from shared.api.topology_encoding import Domain, decode, encode

HOST = [HOSTNAME_LABEL]


def hosts(*given: str, count: int = 1) -> list[Domain]:
    return [Domain((host,), count) for host in given]


def slices(levels: list[str], domains: list[Domain]) -> object:
    assignment = encode(levels, domains)
    assert decode(assignment) == domains
    return msgspec.json.decode(msgspec.json.encode(assignment.slices))


def individual(*roots: str, **ends: str) -> object:
    return {"individual": {**ends, "roots": list(roots)}}


def test_one_slice_with_prefix_and_suffix() -> None:
    domains = [Domain(("b1", "node-1-x"), 1), Domain(("b1", "node-22-x"), 3)]
    assert slices(["block", "rack"], domains) == [
        {
            "domainCount": 2,
            "valuesPerLevel": [{"universal": "b1"}, individual("1", "22", prefix="node-", suffix="-x")],
            "podCounts": {"individual": [1, 3]},
        }
    ]


def test_equal_counts_and_a_single_domain_are_universal() -> None:
    assert slices(["rack"], [Domain(("r",), 4)]) == [
        {"domainCount": 1, "valuesPerLevel": [{"universal": "r"}], "podCounts": {"universal": 4}}
    ]


def test_prefix_and_suffix_do_not_overlap_in_the_shortest_value() -> None:
    assert slices(["rack"], [Domain(("aa",), 1), Domain(("aaa",), 1)]) == [
        {"domainCount": 2, "valuesPerLevel": [individual("", "a", suffix="aa")], "podCounts": {"universal": 1}}
    ]


def test_hosts_that_begin_alike_share_a_slice() -> None:
    many = [f"gpu-rack-{r}-node-{n}" for r in range(2) for n in range(40)]
    found = slices(HOST, hosts(*many))
    assert isinstance(found, list)
    assert [s["domainCount"] for s in found] == [40, 40]
    assert [s["valuesPerLevel"][0]["individual"]["prefix"] for s in found] == [f"gpu-rack-{r}-node-" for r in range(2)]


def test_a_single_slice_is_taken_where_it_is_shorter() -> None:
    found = slices(HOST, hosts("a-1", "a-2", "b-1", "b-2"))
    assert found == [
        {
            "domainCount": 4,
            "valuesPerLevel": [individual("a-1", "a-2", "b-1", "b-2")],
            "podCounts": {"universal": 1},
        }
    ]


def test_other_levels_are_not_cut_by_prefix() -> None:
    many = [Domain((f"gpu-rack-{r}-node-{n}",), 1) for r in range(2) for n in range(40)]
    assert isinstance(found := slices(["rack"], many), list)
    assert len(found) == 1


def test_shorter_prefixes_when_there_would_be_too_many_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topology_encoding, "MAX_SLICES", 2)
    many = [f"zone-of-many-machines-{z}-row-{r}-n{n}" for z in range(2) for r in range(3) for n in range(40)]
    found = slices(HOST, hosts(*many))
    assert isinstance(found, list)
    assert [s["domainCount"] for s in found] == [120, 120]


def test_long_slices_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topology_encoding, "MAX_DOMAINS_PER_SLICE", 3)
    assert isinstance(found := slices(["rack"], [Domain((f"r{i}",), 1) for i in range(7)]), list)
    assert [s["domainCount"] for s in found] == [3, 3, 1]
    assert isinstance(found := slices(HOST, hosts(*(f"r-{i}" for i in range(7)))), list)
    assert [s["domainCount"] for s in found] == [3, 3, 1]


def test_no_domains_no_slices() -> None:
    assert slices(HOST, []) == []
    assert slices(["block", "rack"], []) == []


def test_a_domain_has_a_value_per_level() -> None:
    with pytest.raises(ValueError, match="domain a has 1 values for 2 levels"):
        encode(["block", "rack"], [Domain(("a",), 1)])


@pytest.mark.parametrize(
    "part",
    [
        {"domainCount": 2, "valuesPerLevel": [{"individual": {"roots": ["a"]}}], "podCounts": {"universal": 1}},
        {"domainCount": 1, "valuesPerLevel": [{}], "podCounts": {"universal": 1}},
        {"domainCount": 1, "valuesPerLevel": [], "podCounts": {"universal": 1}},
        {"domainCount": 1, "valuesPerLevel": [{"universal": "a"}] * 2, "podCounts": {"universal": 1}},
        {"domainCount": 2, "valuesPerLevel": [{"universal": "a"}], "podCounts": {"individual": [1]}},
        {"domainCount": 1, "valuesPerLevel": [{"universal": "a"}], "podCounts": {}},
    ],
)
def test_a_slice_that_does_not_add_up_is_refused(part: object) -> None:
    with pytest.raises(ValueError, match="slice of"):
        decode(convert(TopologyAssignment, {"levels": ["rack"], "slices": [part]}))
