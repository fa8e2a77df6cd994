"""What ServiceAccounts may do (their roles, as the API server holds them) and what they did (its audit log), in the same terms."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from devcluster.audit import read_events
from devcluster.cluster import DevCluster

PREFIX = "system:serviceaccount:kueue-system:"
POLICY = """\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  users: [system:serviceaccount:kueue-system:sluice-watcher, system:serviceaccount:kueue-system:sluice-webhook]
- level: None
"""
"""Every call of ours, reads included, and of nobody else."""


class Grant(msgspec.Struct, frozen=True, order=True):
    """One verb on one resource (`jobs/status`). Empty: any `namespace`, any `name`."""

    account: str
    group: str
    resource: str
    verb: str
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        where = f" in {self.namespace}" if self.namespace else ""
        return f"{self.account}: {self.verb} {self.resource}.{self.group} {self.name}".rstrip(". ") + where


class Call(msgspec.Struct, frozen=True, order=True):
    """One call, or several of the same kind."""

    account: str
    group: str
    resource: str
    verb: str
    namespace: str
    name: str
    refused: bool

    def needs(self, grant: Grant) -> bool:
        """Whether this call is what the grant is for."""
        return (
            (self.account, self.group, self.resource, self.verb)
            == (grant.account, grant.group, grant.resource, grant.verb)
            and grant.namespace in ("", self.namespace)
            and grant.name in ("", self.name)
        )


async def granted(cluster: DevCluster) -> set[Grant]:
    """Of all roles that are ours."""
    kinds = "clusterroles,roles,clusterrolebindings,rolebindings"
    found = json.loads(
        await cluster.kubectl("get", kinds, "-A", "-l", "app.kubernetes.io/part-of=sluice", "-o", "json")
    )
    return set(grants_of(found["items"]))


def grants_of(objects: Iterable[dict[str, Any]]) -> Iterator[Grant]:
    """What roles and bindings give to whom."""
    objects = list(objects)
    roles = {
        (o["kind"], o["metadata"].get("namespace", ""), o["metadata"]["name"]): o["rules"]
        for o in objects
        if "rules" in o
    }
    for binding in objects:
        if "roleRef" not in binding:
            continue
        namespace = binding["metadata"].get("namespace", "")
        reference = binding["roleRef"]
        scope = namespace if reference["kind"] == "Role" else ""
        for rule in roles[reference["kind"], scope, reference["name"]]:
            for account in (s["name"] for s in binding["subjects"]):
                for group in rule["apiGroups"]:
                    for resource in rule["resources"]:
                        for verb in rule["verbs"]:
                            for name in rule.get("resourceNames", ("",)):
                                yield Grant(account, group, resource, verb, namespace, name)


def calls(log: Path) -> set[Call]:
    """What the accounts asked for so far."""
    found = set()
    for event in read_events(log):
        if event.user.username.startswith(PREFIX) and event.object_ref.resource:
            at = event.object_ref
            found.add(
                Call(
                    event.user.username.removeprefix(PREFIX),
                    at.api_group,
                    f"{at.resource}/{at.subresource}" if at.subresource else at.resource,
                    event.verb,
                    at.namespace,
                    at.name,
                    event.response_status.code == 403
                    or event.annotations.get("authorization.k8s.io/decision") == "forbid",
                )
            )
    return found


def unused(grants: Iterable[Grant], made: Iterable[Call]) -> set[Grant]:
    """Grants that no call needed."""
    made = list(made)
    return {grant for grant in grants if not any(call.needs(grant) for call in made)}
