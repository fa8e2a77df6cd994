"""Writes kubeconfig files. Everything is embedded, so that a file still works when it is moved or copied."""

import base64
import os
from pathlib import Path

import msgspec

from devcluster.certificates import KeyPair


class ClusterEntry(msgspec.Struct, frozen=True, omit_defaults=True, rename="kebab"):
    """How to reach an API server: `server` is its URL, the CA is base64 of PEM."""

    server: str
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""


class UserEntry(msgspec.Struct, frozen=True, omit_defaults=True, rename="kebab"):
    client_certificate_data: str = ""
    client_key_data: str = ""
    token: str = ""


class ContextEntry(msgspec.Struct, frozen=True):
    cluster: str
    user: str
    namespace: str = "default"


class NamedCluster(msgspec.Struct, frozen=True):
    name: str
    cluster: ClusterEntry


class NamedUser(msgspec.Struct, frozen=True):
    name: str
    user: UserEntry


class NamedContext(msgspec.Struct, frozen=True):
    name: str
    context: ContextEntry


class Kubeconfig(
    msgspec.Struct, frozen=True, rename={"api_version": "apiVersion", "current_context": "current-context"}
):
    """A kubeconfig with one cluster, one user and one context."""

    clusters: tuple[NamedCluster, ...]
    users: tuple[NamedUser, ...]
    contexts: tuple[NamedContext, ...]
    current_context: str
    api_version: str = "v1"
    kind: str = "Config"


def kubeconfig(cluster: ClusterEntry, user_name: str, user: UserEntry, namespace: str = "default") -> Kubeconfig:
    return Kubeconfig(
        clusters=(NamedCluster("devcluster", cluster),),
        users=(NamedUser(user_name, user),),
        contexts=(NamedContext("devcluster", ContextEntry("devcluster", user_name, namespace)),),
        current_context="devcluster",
    )


def cluster_entry(server: str, ca_file: Path) -> ClusterEntry:
    return ClusterEntry(server=server, certificate_authority_data=_base64_of(ca_file))


def certificate_user(pair: KeyPair) -> UserEntry:
    return UserEntry(client_certificate_data=_base64_of(pair.certificate), client_key_data=_base64_of(pair.key))


def write_kubeconfig(path: Path, content: Kubeconfig) -> Path:
    """Writes it for its owner alone (it holds a credential); JSON, which is YAML to every reader of kubeconfigs."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(content)) + b"\n")
    return path


def _base64_of(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
