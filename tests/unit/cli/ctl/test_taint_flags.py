"""Labels, taints and tolerations on the command line."""

from __future__ import annotations

import pytest

from cli.ctl.cluster import CommandError
from cli.ctl.taint_flags import pairs, taints, tolerations


def test_pairs() -> None:
    assert pairs("a=1,b=", "node-labels") == {"a": "1", "b": ""}
    assert pairs("", "node-labels") == {}
    with pytest.raises(CommandError, match="node-labels: b"):
        pairs("a=1,b", "node-labels")


def test_taints() -> None:
    assert taints(["spot=true:NoSchedule,example.com/gpu:NoExecute", "spot=true:NoExecute"]) == [
        {"key": "spot", "value": "true", "effect": "NoSchedule"},
        {"key": "example.com/gpu", "effect": "NoExecute"},
        {"key": "spot", "value": "true", "effect": "NoExecute"},
    ]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("spot", "invalid taint spec: spot"),
        ("spot=true", "invalid taint spec"),
        (":NoSchedule", "invalid taint spec"),
        ("-spot:NoSchedule", "invalid taint spec"),
        ("spot=a b:NoSchedule", "invalid taint spec"),
        ("spot:a:NoSchedule", "invalid taint spec"),
        ("spot:Never", "invalid taint effect: spot:Never, unsupported taint effect"),
        ("spot=1:NoSchedule,spot=2:NoSchedule", "duplicated taints with the same key and effect: spot:NoSchedule"),
    ],
)
def test_what_is_no_taint(text: str, error: str) -> None:
    with pytest.raises(CommandError, match=error):
        taints([text])


def test_tolerations() -> None:
    assert tolerations(["spot=true:NoSchedule,spot,spot=1", ":NoExecute"]) == [
        {"key": "spot", "operator": "Equal", "value": "true", "effect": "NoSchedule"},
        {"key": "spot", "operator": "Exists"},
        {"key": "spot", "operator": "Equal", "value": "1"},
        {"operator": "Exists", "effect": "NoExecute"},
    ]


@pytest.mark.parametrize("text", ["=1", "=1:NoSchedule", "a/b/c", "spot:", "spot:NoSchedule:x"])
def test_what_is_no_toleration(text: str) -> None:
    with pytest.raises(CommandError, match="invalid t"):
        tolerations([text])
