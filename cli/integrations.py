"""Writes what each kind of job needs in a cluster when its integration is enabled: a kustomize component per integration, with the rights of the gateway
and of the webhook, and the admission of that kind. batch/v1 Job is part of the base.

python -m cli.integrations             writes k8s/components/integrations
python -m cli.integrations --check     exit code 1 and the differing names if anything is stale
python -m cli.integrations --out FOLDER --framework example.com/kind     the component of a kind that another package brings
"""

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from shared.api import names
from shared.jobs.protocol import JobKind
from shared.jobs.queueing_parent import QueueingParent
from shared.jobs.registry import BUILT_IN, INTEGRATED, PARENTS, review_path

Manifest = dict[str, Any]

FOLDER = Path("k8s/components/integrations")
BASE = "batch/job"
"""The one integration that is always installed."""
NAMESPACE = "kueue-system"
GATEWAY = "sluice-watcher"
WEBHOOK = "sluice-webhook"
_READS = {"trainer.kubeflow.org/trainjob": ("clustertrainingruntimes", "trainingruntimes")}
"""What jobs of a kind refer to (`JobKind.refers_to`)."""
_NEVER = ("kube-system", NAMESPACE)
_HEADER = "# Generated from shared/jobs by `make integrations`; do not edit.\n"
_RBAC = "rbac.authorization.k8s.io"


def component(framework: str) -> str:
    """Name of an integration's folder."""
    return framework.rpartition("/")[2]


def roles(kind: JobKind | QueueingParent) -> list[Manifest]:
    """What the gateway may do with a kind of job, and the webhook beyond its review: ClusterRoles, each with its binding."""
    found: list[Manifest] = []
    for account, rules in ((GATEWAY, _of_gateway(kind)), (WEBHOOK, _of_webhook(kind))):
        if rules:
            found += _granted(account, f"{account}-{component(kind.framework)}", rules)
    return found


def _of_gateway(kind: JobKind | QueueingParent) -> list[Manifest]:
    for parent in PARENTS:
        if kind is parent:
            # It is only looked at; its pods are marked, and may be by the rights of the integration of pods, which comes with it.
            watched = [(kind.group, kind.plural), ("apps", "statefulsets")] if parent.grouped else []
            return [
                {"apiGroups": [group], "resources": [plural], "verbs": ["list", "watch"]}
                for group, plural in dict.fromkeys(watched)
            ]
    rules: list[Manifest] = [
        {"apiGroups": [kind.group], "resources": [kind.plural], "verbs": ["delete", "get", "list", "patch", "watch"]},
        {"apiGroups": [kind.group], "resources": [f"{kind.plural}/finalizers"], "verbs": ["update"]},
    ]
    rules += _referred(kind)
    if kind.framework == "pod":
        rules.append({"apiGroups": [""], "resources": ["pods/status"], "verbs": ["patch"]})
    return rules


def _referred(kind: JobKind | QueueingParent) -> list[Manifest]:
    """What jobs of the kind refer to is read by whoever has to tell their pods."""
    plurals = _READS.get(kind.framework)
    return [{"apiGroups": [kind.group], "resources": list(plurals), "verbs": ["get"]}] if plurals else []


def _of_webhook(kind: JobKind | QueueingParent) -> list[Manifest]:
    rules = _referred(kind)
    if kind.framework == "statefulset":
        # It may not have replicas again before its workload has given back its quota.
        rules.append({"apiGroups": [names.GROUP], "resources": ["workloads"], "verbs": ["get"]})
    return rules


def _granted(account: str, name: str, rules: list[Manifest]) -> list[Manifest]:
    metadata = {"name": name}
    subject = {"kind": "ServiceAccount", "name": account, "namespace": NAMESPACE}
    reference = {"apiGroup": _RBAC, "kind": "ClusterRole", "name": name}
    return [
        {"apiVersion": f"{_RBAC}/v1", "kind": "ClusterRole", "metadata": metadata, "rules": rules},
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": metadata,
            "roleRef": reference,
            "subjects": [subject],
        },
    ]


def webhook(kind: JobKind | QueueingParent, verb: str) -> Manifest:
    """The entry of a webhook configuration for a kind; `verb`: mutate or validate."""
    path = review_path(kind, verb)
    return {
        "name": f"{verb[0]}{kind.kind.lower()}.kb.io",
        "admissionReviewVersions": ["v1"],
        # The null takes away the address that an all-in-one left.
        "clientConfig": {
            "url": None,
            "service": {"name": "kueue-webhook-service", "namespace": NAMESPACE, "path": path},
        },
        "failurePolicy": "Fail",
        "sideEffects": "None",
        "namespaceSelector": {
            "matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": list(_NEVER)}]
        },
        "matchConditions": [
            {
                "name": names.NOT_THE_WATCHER,
                "expression": f'request.userInfo.username != "system:serviceaccount:{NAMESPACE}:{GATEWAY}"',
            }
        ],
        "rules": [
            {
                "apiGroups": [kind.group],
                "apiVersions": [kind.version],
                "operations": ["CREATE"] if verb == "mutate" and kind not in PARENTS else ["CREATE", "UPDATE"],
                "resources": [kind.plural],
            }
        ],
    }


def optional(kinds: Iterable[JobKind] = INTEGRATED) -> list[JobKind]:
    """Those of the kinds that are installed only when they are enabled."""
    return [kind for kind in kinds if kind.framework != BASE]


def rendered(frameworks: Iterable[str] = ()) -> dict[str, str]:
    """Path below the folder to content; of all built-in kinds unless some are named."""
    wanted = set(frameworks)
    files: dict[str, str] = {}
    kinds: list[JobKind | QueueingParent]
    kinds = [kind for kind in INTEGRATED if kind.framework in wanted] if wanted else [*optional(BUILT_IN), *PARENTS]
    for kind in kinds:
        name = component(kind.framework)
        patches = [
            {
                "target": {"kind": configuration},
                "patch": yaml.dump(
                    [{"op": "add", "path": "/webhooks/-", "value": webhook(kind, verb)}],
                    Dumper=_Dumper,
                    sort_keys=False,
                ),
            }
            for configuration, verb in (
                ("MutatingWebhookConfiguration", "mutate"),
                ("ValidatingWebhookConfiguration", "validate"),
            )
        ]
        files[f"{name}/kustomization.yaml"] = _render(
            {
                "apiVersion": "kustomize.config.k8s.io/v1alpha1",
                "kind": "Component",
                "labels": [{"pairs": {"app.kubernetes.io/part-of": "sluice"}}],
                **({"resources": ["role.yaml"]} if roles(kind) else {}),
                "patches": patches,
            }
        )
        if roles(kind):
            files[f"{name}/role.yaml"] = _render(*roles(kind))
    return files


def differing(folder: Path, frameworks: Iterable[str] = ()) -> list[str]:
    """Files that are missing, stale or not generated any more."""
    wanted = rendered(frameworks)
    present = {str(path.relative_to(folder)): path.read_text() for path in folder.glob("*/*.yaml")}
    return sorted(name for name in wanted.keys() | present.keys() if wanted.get(name) != present.get(name))


def write(folder: Path, frameworks: Iterable[str] = ()) -> list[str]:
    """Makes the folder current; returns the names of the files that changed."""
    changed, wanted = differing(folder, frameworks), rendered(frameworks)
    for name in changed:
        if name in wanted:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(wanted[name])
        else:
            (folder / name).unlink()
    return changed


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m cli.integrations", description=__doc__)
    parser.add_argument("--out", type=Path, default=FOLDER, help="folder of the components")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a file differs")
    parser.add_argument("--framework", action="append", default=[], help="only of these kinds")
    options = parser.parse_args(arguments)
    if unknown := set(options.framework) - {kind.framework for kind in INTEGRATED}:
        parser.error(f"no package brings {', '.join(sorted(unknown))}")
    if options.check:
        stale = differing(options.out, options.framework)
        for name in stale:
            print(f"{options.out / name} differs from shared/jobs: run `make integrations`", file=sys.stderr)
        return 1 if stale else 0
    for name in write(options.out, options.framework):
        print(options.out / name)
    return 0


class _Dumper(yaml.SafeDumper):
    """Block style, no aliases, long texts as blocks."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _block(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


_Dumper.add_representer(str, _block)


def _render(*documents: Manifest) -> str:
    return _HEADER + yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False, width=160)


if __name__ == "__main__":
    sys.exit(main())
