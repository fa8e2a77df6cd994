"""What objects beside a workload do to its pods: LimitRanges, RuntimeClasses, DeviceClasses and claim templates.

Why it exists: effective requests depend on them, whichever comes first. This keeps them as the rules that `shared.decide` applies, per namespace, and
says which workloads a change of one concerns. It applies nothing itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from shared.api.quantity import parse
from shared.decide.devices import Templates, classes_of
from shared.events.objects import (
    DeviceClass,
    DeviceRequest,
    LimitRange,
    Object,
    PodSet,
    ResourceClaimTemplate,
    RuntimeClass,
    Workload,
)
from shared.events.subjects import ObjectName
from shared.model.limit_range import NO_RULES, PodRules, pod_rules

KINDS = ("limitrange", "runtimeclass", "deviceclass", "resourceclaimtemplate")


class Concerned:
    """Which workloads a change is about: those of a namespace (empty: of all) of which some pod set is `of` it."""

    def __init__(self, namespace: str, of: Callable[[PodSet], bool]) -> None:
        self.namespace = namespace
        self._of = of

    def __contains__(self, workload: object) -> bool:
        return isinstance(workload, Workload) and any(self._of(pod_set) for pod_set in workload.pod_sets)


class PodRulesOfNamespaces:
    """`take` what changes; ask `rules`, `classes` and `templates`."""

    def __init__(self) -> None:
        self._limits: dict[str, dict[str, LimitRange]] = {}
        self._overheads: dict[str, dict[str, str]] = {}
        self._classes: dict[str, DeviceClass] = {}
        self._templates: dict[str, ResourceClaimTemplate] = {}
        self._rules: dict[str, PodRules] = {}
        self._no_limits = NO_RULES
        self.classes: Mapping[str, str] = {}
        """Extended resource -> the DeviceClass behind it."""

    def rules(self, namespace: str) -> PodRules:
        """Of the pods of this namespace; the same object until something changes."""
        limits = self._limits.get(namespace)
        if not limits:
            return self._no_limits
        found = self._rules.get(namespace)
        if found is None:
            items = (item for _, one in sorted(limits.items()) for item in one.items)
            found = self._rules[namespace] = pod_rules(items, self._overheads)
        return found

    def templates(self, namespace: str) -> Templates:
        """The claim templates of this namespace."""

        def requests(name: str) -> tuple[DeviceRequest, ...] | None:
            template = self._templates.get(f"{namespace}/{name}")
            return template.requests if template is not None else None

        return requests

    def take(self, name: ObjectName, new: Object | None) -> Concerned:
        """An object is new, has changed, or is gone (None). Raises QuantityError; the object then counts as gone."""
        match name.kind:
            case "limitrange":
                return self._limit_range(name, new)
            case "runtimeclass":
                return self._runtime_class(name.name, new)
            case "deviceclass":
                return self._device_class(name.name, new)
            case _:
                return self._template(name, new)

    def _limit_range(self, name: ObjectName, new: Object | None) -> Concerned:
        of_namespace = self._limits.setdefault(name.namespace, {})
        of_namespace.pop(name.name, None)
        self._rules.pop(name.namespace, None)
        if isinstance(new, LimitRange):
            for item in new.items:
                _check(item.max, item.min, item.default, item.default_request)
            of_namespace[name.name] = new
        return Concerned(name.namespace, lambda _: True)

    def _runtime_class(self, name: str, new: Object | None) -> Concerned:
        self._overheads = {key: amounts for key, amounts in self._overheads.items() if key != name}
        if isinstance(new, RuntimeClass) and new.overhead:
            _check(new.overhead)
            self._overheads[name] = new.overhead
        self._rules.clear()
        self._no_limits = PodRules(overheads=self._overheads) if self._overheads else NO_RULES
        return Concerned("", lambda pod_set: pod_set.runtime_class == name)

    def _device_class(self, name: str, new: Object | None) -> Concerned:
        before = self.classes
        if isinstance(new, DeviceClass):
            self._classes[name] = new
        else:
            self._classes.pop(name, None)
        self.classes = classes_of(self._classes.values())
        differ = {one for one in {**before, **self.classes} if before.get(one) != self.classes.get(one)}
        return Concerned("", lambda pod_set: bool(differ) and not differ.isdisjoint(_asked(pod_set)))

    def _template(self, name: ObjectName, new: Object | None) -> Concerned:
        if isinstance(new, ResourceClaimTemplate):
            self._templates[name.key] = new
        else:
            self._templates.pop(name.key, None)
        return Concerned(name.namespace, lambda pod_set: any(claim.template == name.name for claim in pod_set.claims))


def _asked(pod_set: PodSet) -> set[str]:
    """Every resource that a container names, as request or limit."""
    return {
        resource
        for container in (*pod_set.containers, *pod_set.init_containers)
        for resource in (*container.requests, *container.limits)
    }


def _check(*amounts: Mapping[str, str]) -> None:
    for one in amounts:
        for raw in one.values():
            parse(raw)
