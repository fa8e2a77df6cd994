"""What a cluster needs before Sluice can work in it, by server-side apply: namespace, CRDs, roles, webhook configurations, and the identity to act as.

Needs no kubectl. The manifests are those of `k8s/`; webhook configurations are pointed at a URL, for a webhook that runs outside the cluster.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import yaml

from cli import integrations
from shared.api import names
from shared.api.selectors import LabelSelector
from shared.jobs.protocol import JobKind
from shared.jobs.queueing_parent import QueueingParent
from shared.jobs.registry import PARENTS
from shared.kube import credentials, resources
from shared.kube.client import KubeClient, connect
from shared.kube.errors import AlreadyExists, ApiError, Invalid, NotFound
from shared.kube.resources import Resource

MANIFESTS = Path(__file__).resolve().parent.parent / "k8s"
FIELD_MANAGER = "kubectl"
"""What `kubectl apply --server-side` calls itself. Under the same name the manifests can be applied over what was installed here, and the other way round:
each takes the other's fields away (a URL where a Service is wanted, webhooks of kinds that are not enabled), which no third name could."""
USER_AGENT = "sluice-install"
GATEWAY = "sluice-watcher"
"""ServiceAccount of the gateway, as the shipped webhook configurations know it."""
ALL_RIGHTS = "system:masters"
"""What it acts with: the rights of the owner of the credentials, who may do everything when this is allowed."""
ESTABLISHED_S = 20.0
POLL_S = 0.03

_RESOURCES = {
    resource.kind: resource
    for resource in (
        resources.CRDS,
        resources.NAMESPACES,
        resources.SERVICE_ACCOUNTS,
        resources.CLUSTER_ROLES,
        resources.CLUSTER_ROLE_BINDINGS,
        resources.ROLES,
        resources.ROLE_BINDINGS,
        resources.MUTATING_WEBHOOKS,
        resources.VALIDATING_WEBHOOKS,
    )
}
_NEEDED = (
    resources.ADMISSION_CHECKS,
    resources.CLUSTER_QUEUES,
    resources.COHORTS,
    resources.LOCAL_QUEUES,
    resources.PROVISIONING_REQUEST_CONFIGS,
    resources.RESOURCE_FLAVORS,
    resources.TOPOLOGIES,
    resources.WORKLOADS,
    resources.WORKLOAD_PRIORITY_CLASSES,
)
_DISCOVERY = Resource(names.GROUP, names.V1BETA2, "", "", namespaced=False)
Manifest = dict[str, Any]


class InstallError(Exception):
    """What could not be installed and why, for people."""


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """`parts`: which of crds, rbac, webhooks to install; `webhook_ca`: PEM of the authority of a given certificate, empty when the gateway fills it in."""

    kubeconfig: str
    namespace: str
    parts: tuple[str, ...] = ()
    webhook_url: str = ""
    webhook_ca: bytes = b""
    managed_namespaces: LabelSelector = LabelSelector()
    """Whose Jobs are reviewed."""
    frameworks: tuple[str, ...] = ()
    """Integrations that are enabled; batch/job is always there."""
    failure_recovery: bool = False
    """Gate FailureRecoveryPolicy: the gateway ends pods of nodes that are gone."""


class Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """Who the gateway acts as: `user` is impersonated when `impersonate`, else it is the user of the credentials. `missing`: kinds that are not there.
    `server`: base URL of the API server."""

    user: str
    impersonate: bool
    missing: tuple[str, ...] = ()
    server: str = ""


async def prepare(wanted: Wanted) -> Prepared:
    """Install what is wanted, make the namespace if there is none. Raises InstallError, CredentialsError."""
    async with await connect(wanted.kubeconfig, user_agent=USER_AGENT, timeout_s=10.0) as client:
        try:
            identity, _, missing = await asyncio.gather(
                _identity(client, wanted), _namespace(client, wanted.namespace), _crds(client, wanted)
            )
            if "rbac" in wanted.parts:
                await _rbac(client, wanted)
            if "webhooks" in wanted.parts:
                await _webhooks(client, wanted, identity)
        except ApiError as error:
            raise InstallError(f"{wanted.kubeconfig or 'cluster'}: {error}") from error
    server = (await credentials.load(wanted.kubeconfig)).server
    return msgspec.structs.replace(identity, missing=missing, server=server)


async def _identity(client: KubeClient, wanted: Wanted) -> Prepared:
    """The gateway's ServiceAccount if we may act as it: then the owner of these credentials is still told apart, and reviewed, by the webhooks."""
    account = f"system:serviceaccount:{wanted.namespace}:{GATEWAY}"
    acting = await connect(
        wanted.kubeconfig, user_agent=USER_AGENT, impersonate_user=account, impersonate_groups=(ALL_RIGHTS,)
    )
    async with acting:
        try:
            return Prepared(user=await _user(acting), impersonate=True)
        except ApiError as error:
            if error.status in (0, 401):
                raise
            return Prepared(user=await _user(client), impersonate=False)


async def _user(client: KubeClient) -> str:
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    answer = await client.create(resources.SELF_SUBJECT_REVIEWS, "", msgspec.json.encode(review))
    return str(msgspec.json.decode(answer)["status"]["userInfo"]["username"])


async def _namespace(client: KubeClient, name: str) -> None:
    try:
        await client.get(resources.NAMESPACES, "", name)
    except NotFound:
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        with contextlib.suppress(AlreadyExists):
            await client.create(resources.NAMESPACES, "", msgspec.json.encode(body), field_manager=FIELD_MANAGER)


async def _crds(client: KubeClient, wanted: Wanted) -> tuple[str, ...]:
    """Kinds of ours that are not there; none after installing them."""
    if "crds" in wanted.parts:
        manifests = [pointed_definition(m, wanted) for m in _read(MANIFESTS / "crds")]
        await asyncio.gather(*(_define(client, m) for m in manifests))
        await asyncio.gather(*(_established(client, m["metadata"]["name"]) for m in manifests))
        return ()
    try:
        served = msgspec.json.decode(await client.get(_DISCOVERY, "", "")).get("resources") or ()
    except NotFound:
        served = ()
    there = {found["name"] for found in served}
    return tuple(resource.plural for resource in _NEEDED if resource.plural not in there)


def pointed_definition(manifest: Manifest, wanted: Wanted) -> Manifest:
    """A definition whose versions are converted at `webhook_url`."""
    conversion = manifest["spec"]["conversion"]
    if "webhook" not in conversion:
        return manifest
    webhook = {**conversion["webhook"], "clientConfig": _client_config(conversion["webhook"], wanted)}
    return {**manifest, "spec": {**manifest["spec"], "conversion": {**conversion, "webhook": webhook}}}


async def _define(client: KubeClient, manifest: Manifest) -> None:
    try:
        await _apply(client, manifest)
    except Invalid:
        conversion = manifest["spec"]["conversion"]
        if "webhook" not in conversion:
            raise
        # It names a Service, whose field belongs to somebody else: an apply cannot take that away, and deleting it would delete all objects.
        webhook = conversion["webhook"]
        client_config = {"service": None, **webhook["clientConfig"]}
        patch = {"spec": {"conversion": {**conversion, "webhook": {**webhook, "clientConfig": client_config}}}}
        await client.patch(resources.CRDS, "", manifest["metadata"]["name"], msgspec.json.encode(patch))
        await _apply(client, manifest)


async def _established(client: KubeClient, crd: str) -> None:
    try:
        async with asyncio.timeout(ESTABLISHED_S):
            while True:
                status = msgspec.json.decode(await client.get(resources.CRDS, "", crd)).get("status") or {}
                if any(c["type"] == "Established" and c["status"] == "True" for c in status.get("conditions") or ()):
                    return
                await asyncio.sleep(POLL_S)
    except TimeoutError as error:
        raise InstallError(f"CRD {crd} is not established after {ESTABLISHED_S:.0f} s") from error


async def _rbac(client: KubeClient, wanted: Wanted) -> None:
    for manifest in rights(wanted):
        await _apply(client, _in_namespace(manifest, wanted.namespace))


def rights(wanted: Wanted) -> Iterator[Manifest]:
    """Accounts and roles: what is always needed, and what kinds of jobs and features need that are on."""
    yield from _read(MANIFESTS / "rbac")
    kinds: list[JobKind | QueueingParent] = [*_enabled(wanted), *_parents(wanted)]
    for kind in kinds:
        yield from integrations.roles(kind)
    if wanted.failure_recovery:
        yield from _read(MANIFESTS / "components" / "failure-recovery")


def _enabled(wanted: Wanted) -> list[JobKind]:
    implied = {"pod"} if _parents(wanted) else set()
    return [kind for kind in integrations.optional() if kind.framework in {*wanted.frameworks, *implied}]


def _parents(wanted: Wanted) -> list[QueueingParent]:
    return [kind for kind in PARENTS if kind.framework in wanted.frameworks]


def _in_namespace(manifest: Manifest, namespace: str) -> Manifest:
    """The manifest for another namespace than the one it was written for."""
    metadata = dict(manifest["metadata"])
    if manifest["kind"] == "Namespace":
        metadata["name"] = namespace
    elif "namespace" in metadata:
        metadata["namespace"] = namespace
    changed = {**manifest, "metadata": metadata}
    if "subjects" in manifest:
        changed["subjects"] = [{**subject, "namespace": namespace} for subject in manifest["subjects"]]
    return changed


async def _webhooks(client: KubeClient, wanted: Wanted, identity: Prepared) -> None:
    for manifest in _read(MANIFESTS / "webhooks"):
        pointed = pointed_webhooks(manifest, wanted, identity.user)
        try:
            await _apply(client, pointed)
        except Invalid:
            # It names a Service, whose field belongs to somebody else: an apply cannot take that away.
            resource = _RESOURCES[manifest["kind"]]
            await client.delete(resource, "", manifest["metadata"]["name"])
            await _apply(client, pointed)


def pointed_webhooks(manifest: Manifest, wanted: Wanted, user: str) -> Manifest:
    """A webhook configuration that calls `webhook_url`, skips what `user` writes, and reviews Jobs of managed namespaces only."""
    webhooks = []
    verb = "mutate" if manifest["kind"].startswith("Mutating") else "validate"
    enabled: list[JobKind | QueueingParent] = [*_enabled(wanted), *_parents(wanted)]
    for webhook in (
        *manifest["webhooks"],
        *(integrations.webhook(kind, verb) for kind in enabled),
    ):
        condition = {
            "name": names.NOT_THE_WATCHER,
            "expression": f"request.userInfo.username != {msgspec.json.encode(user).decode()}",
        }
        others = [c for c in webhook.get("matchConditions", ()) if c["name"] != names.NOT_THE_WATCHER]
        conditions = [condition, *others]
        changed = {**webhook, "clientConfig": _client_config(webhook, wanted), "matchConditions": conditions}
        if "namespaceSelector" in webhook:
            changed["namespaceSelector"] = msgspec.to_builtins(wanted.managed_namespaces)
        webhooks.append(changed)
    return {**manifest, "webhooks": webhooks}


def _client_config(webhook: Manifest, wanted: Wanted) -> dict[str, str]:
    """A webhook's, for a webhook at `webhook_url`."""
    client_config = {"url": wanted.webhook_url + webhook["clientConfig"]["service"]["path"]}
    if wanted.webhook_ca:
        client_config["caBundle"] = base64.b64encode(wanted.webhook_ca).decode()
    return client_config


async def _apply(client: KubeClient, manifest: Manifest) -> None:
    metadata = manifest["metadata"]
    labels = {**(metadata.get("labels") or {}), "app.kubernetes.io/part-of": "sluice"}
    body = msgspec.json.encode({**manifest, "metadata": {**metadata, "labels": labels}})
    resource: Resource = _RESOURCES[manifest["kind"]]
    try:
        await client.apply(resource, metadata.get("namespace", ""), metadata["name"], body, field_manager=FIELD_MANAGER)
    except Invalid:
        raise
    except ApiError as error:
        raise InstallError(f"{manifest['kind']} {metadata['name']}: {error}") from error


def _read(folder: Path) -> Iterator[Manifest]:
    """The objects of a kustomization, in its order. Raises InstallError when the manifests did not come along."""
    loader = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader
    try:
        names: Iterable[str] = yaml.load((folder / "kustomization.yaml").read_text(), loader)["resources"]
        for name in names:
            yield from yaml.load_all((folder / name).read_text(), loader)
    except OSError as error:
        raise InstallError(f"{error.filename}: {error.strerror}") from error


def main(wanted: Wanted, answer: Path) -> int:
    """In a process of its own: install, leave the result in the file; the exit code."""
    try:
        prepared = asyncio.run(prepare(wanted))
    except (InstallError, credentials.CredentialsError) as error:
        sys.stderr.write(f"sluice all-in-one: {error}\n")
        return 1
    if prepared.missing:
        sys.stderr.write(
            f"sluice all-in-one: the cluster lacks {', '.join(prepared.missing)} of {names.GROUP}/{names.V1BETA2}: --install crds brings them\n"
        )
    if not prepared.impersonate and "webhooks" in wanted.parts:
        sys.stderr.write(
            f"sluice all-in-one: these credentials may not act as {GATEWAY}: the webhooks pass all that {prepared.user} writes\n"
        )
    answer.write_bytes(msgspec.json.encode(prepared))
    return 0
