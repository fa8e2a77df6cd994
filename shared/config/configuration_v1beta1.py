"""A v1beta1 configuration as a v1beta2 one: what switches features on, other defaults, fields that only one of both knows."""

from __future__ import annotations

from collections.abc import Mapping

from shared.config.durations import parse_duration

_ONLY_V1BETA2 = (
    "visibilityServer",
    "resources.quotaCheckStrategy",
    "multiKueue.clusterProfile",
    "multiKueue.incrementalDispatcherConfig",
)
_IN_LISTS = {
    "resources.deviceClassMappings": ("sources",),
    "metrics.customLabels": ("sourceKind", "trackedValues"),
}
_QUEUE_VISIBILITY = {"clusterQueues": ("maxCount",), "updateIntervalSeconds": ()}
BOTH_STRATEGIES = ("LessThanOrEqualToFinalShare", "LessThanInitialShare")


def converted(fields: Mapping[str, object]) -> tuple[dict[str, object], tuple[str, ...]]:
    """The same in v1beta2, and the attributes of Configuration that are off in spite of what stands there. Raises ValueError: `path: reason`."""
    result = dict(fields)
    for path in _ONLY_V1BETA2:
        section, _, field = path.partition(".")
        if (field and field in _map(result, section)) or (not field and section in result):
            raise ValueError(f"{path}: no such field in v1beta1")
    for path, keys in _IN_LISTS.items():
        section, _, field = path.partition(".")
        items = _map(result, section).get(field)
        for index, item in enumerate(items if isinstance(items, list) else ()):
            for key in keys:
                if isinstance(item, dict) and key in item:
                    raise ValueError(f"{path}[{index}].{key}: no such field in v1beta1")
    _drop_queue_visibility(result)
    _drop_pod_options(result)
    on = {"fair_sharing": _fair_sharing(result), "wait_for_pods_ready": _wait_for_pods_ready(result)}
    return result, tuple(name for name, is_on in on.items() if not is_on)


def _map(fields: Mapping[str, object], name: str) -> dict[str, object]:
    """A section; empty when it is not there. What is no map is left for the types to complain about."""
    found = fields.get(name)
    return dict(found) if isinstance(found, dict) else {}


def _enabled(section: dict[str, object], path: str, default: bool = False) -> bool:
    value = section.pop("enable", default)
    if not isinstance(value, bool):
        raise ValueError(f"{path}.enable: Expected `bool`")
    return value


def _drop_queue_visibility(result: dict[str, object]) -> None:
    for key, value in _map(result, "queueVisibility").items():
        if key not in _QUEUE_VISIBILITY:
            raise ValueError(f"queueVisibility.{key}: no such field")
        for inner in value if isinstance(value, dict) else ():
            if inner not in _QUEUE_VISIBILITY[key]:
                raise ValueError(f"queueVisibility.{key}.{inner}: no such field")
    result.pop("queueVisibility", None)


def _drop_pod_options(result: dict[str, object]) -> None:
    integrations = _map(result, "integrations")
    if "podOptions" not in integrations:
        return
    options = integrations.pop("podOptions")
    for key in options if isinstance(options, dict) else ():
        if key not in ("namespaceSelector", "podSelector"):
            raise ValueError(f"integrations.podOptions.{key}: no such field")
    result["integrations"] = integrations


def _fair_sharing(result: dict[str, object]) -> bool:
    """Whether it is on."""
    if not isinstance(result.get("fairSharing"), dict):
        return True
    section = _map(result, "fairSharing")
    on = _enabled(section, "fairSharing")
    if not section.get("preemptionStrategies"):
        section["preemptionStrategies"] = list(BOTH_STRATEGIES)
    result["fairSharing"] = section
    return on


def _wait_for_pods_ready(result: dict[str, object]) -> bool:
    """Whether it is on."""
    if "waitForPodsReady" in result and not isinstance(result["waitForPodsReady"], dict):
        return True
    section = _map(result, "waitForPodsReady")
    on = _enabled(section, "waitForPodsReady")
    section.setdefault("blockAdmission", True)
    if _is_zero(section.get("timeout", "0")):
        section["timeout"] = "5m"
    result["waitForPodsReady"] = section
    return on


def _is_zero(value: object) -> bool:
    try:
        return isinstance(value, str) and not parse_duration(value)
    except ValueError:
        return False
