"""What each change means for provisioning_request: which workloads and checks to look at again. One function per kind of object.

Keys of the agenda are `workload <namespace>/<name>` and `check <name>`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from shared.api import names
from shared.events.objects import (
    AdmissionCheck,
    Object,
    Owner,
    ProvisioningRequest,
    ProvisioningRequestConfig,
    Workload,
)
from shared.state.objects import Change, Objects

T = TypeVar("T")


def workload_key(key: str) -> str:
    return f"workload {key}"


def check_key(name: str) -> str:
    return f"check {name}"


class Index:
    """What hangs together: workloads by check, requests by the workload that controls them. Only workloads with checks are held."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._by_check: dict[str, set[str]] = {}
        self._requests: dict[str, set[str]] = {}

    def changed(self, change: Change[Object]) -> Iterable[str]:
        """Keys that a change concerns."""
        old, new = change.old, change.new
        match new if new is not None else old:
            case Workload():
                return self._workload(_as(Workload, old), _as(Workload, new))
            case ProvisioningRequest():
                return self._request(_as(ProvisioningRequest, old), _as(ProvisioningRequest, new))
            case AdmissionCheck(name=name, controller=names.PROVISIONING_REQUEST_CONTROLLER):
                return [check_key(name), *map(workload_key, self._by_check.get(name, ()))]
            case ProvisioningRequestConfig(name=name):
                return list(self._config(name))
        return ()

    def requests_of(self, workload: Workload) -> Iterator[ProvisioningRequest]:
        """Requests that this workload controls."""
        for key in self._requests.get(workload.uid, ()):
            request = self._objects.get(ProvisioningRequest, key)
            if request is not None:
                yield request

    def _workload(self, old: Workload | None, new: Workload | None) -> Iterable[str]:
        workload = new or old
        assert workload is not None
        before = {c.name for c in old.checks} if old is not None else set()
        after = {c.name for c in new.checks} if new is not None else set()
        for name in before - after:
            self._by_check[name].discard(workload.key)
        for name in after - before:
            self._by_check.setdefault(name, set()).add(workload.key)
        if after or before or workload.uid in self._requests:
            return [workload_key(workload.key)]
        return ()

    def _request(self, old: ProvisioningRequest | None, new: ProvisioningRequest | None) -> Iterable[str]:
        keys: list[str] = []
        for request in (old, new):
            owner = _controller(request.owners) if request is not None else None
            if request is None or owner is None:
                continue
            held = self._requests.setdefault(owner.uid, set())
            if request is new:
                held.add(request.key)
            else:
                held.discard(request.key)
                if not held:
                    del self._requests[owner.uid]
            keys.append(workload_key(f"{request.namespace}/{owner.name}"))
        return keys

    def _config(self, name: str) -> Iterator[str]:
        for check in self._objects.all(AdmissionCheck).values():
            if check.controller == names.PROVISIONING_REQUEST_CONTROLLER and check.parameters_name == name:
                yield check_key(check.name)
                yield from map(workload_key, self._by_check.get(check.name, ()))


def _as(type_: type[T], object_: Object | None) -> T | None:
    return object_ if isinstance(object_, type_) else None


def _controller(owners: Iterable[Owner]) -> Owner | None:
    return next((o for o in owners if o.controller and o.kind == names.WORKLOAD), None)
