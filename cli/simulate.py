"""`sluice simulate STATE.yaml`: what the engine would decide about the objects of a file, and why the rest waits.

The file holds Kubernetes objects as `kubectl get -o yaml` writes them: documents, lists, or both. Nothing is contacted and nothing is changed.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
import yaml

from services.watcher.kinds import KINDS, MalformedObject, read
from services.watcher.projections import project
from shared.decide.cycle import Admit
from shared.events.objects import Namespace, Object, Workload
from shared.state.simulate import Simulated, simulate

_TOKENS = {kind.token for kind in KINDS.values() if kind.on_bus}


class Dump(msgspec.Struct):
    """The objects of a file that the engine knows, and what could not be read."""

    objects: list[Object] = []
    problems: list[str] = []


def read_dump(text: str) -> Dump:
    """The objects of a YAML or JSON text. Namespaces that it names but does not hold are taken to exist, without labels."""
    dump = Dump([], [])
    for raw in _items(yaml.safe_load_all(text)):
        token = str(raw.get("kind", "")).lower()
        if token not in _TOKENS:
            continue
        metadata = raw.setdefault("metadata", {})
        name = f"{raw['kind']} {metadata.get('namespace', '')}/{metadata.get('name', '')}"
        metadata.setdefault("uid", name)
        metadata.setdefault("resourceVersion", "1")
        metadata.setdefault("generation", 1)
        try:
            found = project(read(token, msgspec.json.encode(raw)))
        except (MalformedObject, ValueError) as error:
            dump.problems.append(f"{name}: {error}")
            continue
        if found is not None:
            dump.objects.append(found)
    known = {one.name for one in dump.objects if isinstance(one, Namespace)}
    named = {one.namespace for one in dump.objects if isinstance(one, Workload)}
    dump.objects.extend(Namespace(name=name, uid=name, version=1) for name in sorted(named - known))
    return dump


def _items(documents: Iterable[Any]) -> Iterator[dict[str, Any]]:
    for document in documents:
        if isinstance(document, list):
            yield from _items(document)
        elif isinstance(document, dict) and isinstance(document.get("items"), list):
            yield from _items(document["items"])
        elif isinstance(document, dict):
            yield document


def lines(result: Simulated, problems: Iterable[str] = ()) -> Iterator[str]:
    """The answer in words."""
    for decision in result.decisions:
        if isinstance(decision, Admit):
            flavors = ", ".join(
                f"{pod_set.name}: {resource}={flavor}"
                for pod_set in decision.admission.pod_sets
                for resource, flavor in sorted(pod_set.flavors.items())
            )
            checks = f", waits for checks {', '.join(decision.required_checks)}" if decision.required_checks else ""
            yield f"admit    {decision.key} to {decision.cluster_queue} ({flavors or 'no flavors'}{checks})"
        else:
            yield f"preempt  {decision.key} in {decision.cluster_queue} for {decision.preemptor} ({decision.reason})"
    for entry in result.refused:
        yield f"pending  {entry.key} in {entry.cluster_queue}: {entry.refusal.reason}: {entry.message}"
    for key in result.passed_over:
        yield f"pending  {key}: not looked at, as others like it or ahead of it had no success"
    for why in (*result.faults, *problems):
        yield f"unusable {why}"
    if not result.settled:
        yield "it did not come to rest: workloads evict each other in turn"


def simulate_command(
    state: Annotated[
        Path, typer.Argument(help="YAML or JSON file with Kubernetes objects", exists=True, dir_okay=False)
    ],
) -> None:
    """Print what the engine would decide about the objects of a file, and why the rest waits."""
    dump = read_dump(state.read_text(encoding="utf-8"))
    for line in lines(simulate(dump.objects, time.time()), dump.problems):
        typer.echo(line)
