"""Objects as the API server sends them, for tests of the watcher."""

from __future__ import annotations

import json
from typing import Any

Document = dict[str, Any]

TIME = "2026-01-02T03:04:05Z"
LATER = "2026-01-02T03:05:05Z"
TIME_S = 1767323045
LATER_S = TIME_S + 60


def metadata(name: str, *, namespace: str = "", version: int = 1, uid: str = "", **more: Any) -> Document:
    found = {"name": name, "uid": uid or f"uid-{name}", "resourceVersion": str(version), "creationTimestamp": TIME}
    return {**found, **({"namespace": namespace} if namespace else {}), **more}


def condition(type_: str, status: str = "True", reason: str = "Because", at: str = TIME) -> Document:
    return {"type": type_, "status": status, "reason": reason, "message": "", "lastTransitionTime": at}


def template(cpu: str = "1", **spec: Any) -> Document:
    container = {
        "name": "main",
        "image": "busybox",
        "command": ["sleep"],
        "env": [{"name": "TOKEN", "value": "hush"}],
        "resources": {"requests": {"cpu": cpu}},
    }
    return {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [container], "restartPolicy": "Never", **spec}}


def workload(
    name: str = "w",
    *,
    version: int = 1,
    uid: str = "",
    status: Document | None = None,
    pod_sets: list[Document] | None = None,
    meta: Document | None = None,
    **spec: Any,
) -> Document:
    sets = [{"name": "main", "count": 3, "template": template()}] if pod_sets is None else pod_sets
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": metadata(name, namespace="team", version=version, uid=uid, **{"generation": 1, **(meta or {})}),
        "spec": {"queueName": "lq", "podSets": sets, "active": True, **spec},
        "status": status or {},
    }


def job(name: str = "j", *, version: int = 1, meta: Document | None = None, status: Document | None = None) -> Document:
    return {
        "metadata": metadata(name, namespace="team", version=version, **(meta or {})),
        "spec": {"suspend": True, "parallelism": 3, "template": template()},
        "status": status or {},
    }


def flavor(name: str = "default", *, version: int = 1, uid: str = "") -> Document:
    return {"metadata": metadata(name, version=version, uid=uid), "spec": {"nodeLabels": {"v": str(version)}}}


def raw(document: Document) -> bytes:
    return json.dumps(document).encode()
