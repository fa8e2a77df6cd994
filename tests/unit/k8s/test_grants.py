"""Reading roles and calls for the comparison of tests/integration/stack/test_rbac.py."""

from __future__ import annotations

import json
from pathlib import Path

from tests.integration.stack.grants import Call, Grant, calls, grants_of, unused

USER = "system:serviceaccount:kueue-system:a"


def role(kind: str, name: str, *rules: dict[str, list[str]], namespace: str = "") -> list[dict[str, object]]:
    where = {"namespace": namespace} if namespace else {}
    reference = {"kind": kind, "name": name}
    return [
        {"kind": kind, "metadata": {"name": name, **where}, "rules": list(rules)},
        {
            "kind": f"{kind}Binding",
            "metadata": {"name": name, **where},
            "roleRef": reference,
            "subjects": [{"name": "a"}],
        },
    ]


def test_rules_become_single_grants() -> None:
    jobs = {"apiGroups": ["batch"], "resources": ["jobs", "jobs/status"], "verbs": ["get", "patch"]}
    secret = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"], "resourceNames": ["x", "y"]}
    objects = role("ClusterRole", "r", jobs) + role("Role", "r", secret, namespace="n")
    assert set(grants_of(objects)) == {
        *(Grant("a", "batch", r, v) for r in ("jobs", "jobs/status") for v in ("get", "patch")),
        Grant("a", "", "secrets", "get", "n", "x"),
        Grant("a", "", "secrets", "get", "n", "y"),
    }


def test_calls_are_read_with_group_subresource_and_refusal(tmp_path: Path) -> None:
    log = tmp_path / "audit.log"
    reference = {"apiGroup": "batch", "resource": "jobs", "subresource": "status", "namespace": "n", "name": "j"}
    events = [
        {"verb": "patch", "user": {"username": USER}, "objectRef": reference, "responseStatus": {"code": 200}},
        {
            "verb": "get",
            "user": {"username": USER},
            "objectRef": {"resource": "pods"},
            "responseStatus": {"code": 403, "message": "no"},
        },
        {"verb": "get", "user": {"username": "somebody"}, "objectRef": {"resource": "pods"}},
        {"verb": "get", "user": {"username": USER}},
    ]
    log.write_text("".join(json.dumps(e) + "\n" for e in events))
    assert calls(log) == {
        Call("a", "batch", "jobs/status", "patch", "n", "j", ""),
        Call("a", "", "pods", "get", "", "", "no"),
    }


def test_a_grant_is_used_by_calls_within_it() -> None:
    call = Call("a", "", "secrets", "get", "n", "x", "")
    used = [
        Grant("a", "", "secrets", "get"),
        Grant("a", "", "secrets", "get", "n"),
        Grant("a", "", "secrets", "get", "n", "x"),
    ]
    other = [
        Grant("b", "", "secrets", "get"),
        Grant("a", "batch", "secrets", "get"),
        Grant("a", "", "secrets/status", "get"),
        Grant("a", "", "secrets", "list"),
        Grant("a", "", "secrets", "get", "m"),
        Grant("a", "", "secrets", "get", "n", "y"),
    ]
    assert unused([*used, *other], [call]) == set(other)
