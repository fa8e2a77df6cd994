"""Strategic merge of a job or pod template with a patch of it: maps key by key, some lists item by item, all else as a whole.

Which lists are merged by which key is said in the Kubernetes API (`patchMergeKey`); of two lists that are merged the patched one keeps its order, and what is
new goes to the end. Directives (`$patch`) do not occur where this is used: what is merged has passed a schema.
"""

from shared.jobs.manifest import JsonObject

_MERGE_KEYS = {
    "containers": "name",
    "env": "name",
    "ephemeralContainers": "name",
    "hostAliases": "ip",
    "imagePullSecrets": "name",
    "initContainers": "name",
    "ports": "containerPort",
    "resourceClaims": "name",
    "schedulingGates": "name",
    "topologySpreadConstraints": "topologyKey",
    "volumeDevices": "devicePath",
    "volumeMounts": "mountPath",
    "volumes": "name",
}


def strategic_merge(target: JsonObject, patch: JsonObject) -> JsonObject:
    """`target` after `patch`; null removes a key."""
    result = dict(target)
    for key, value in patch.items():
        present = result.get(key)
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            result[key] = strategic_merge(present if isinstance(present, dict) else {}, value)
        elif isinstance(value, list) and isinstance(present, list) and key in _MERGE_KEYS:
            result[key] = _merged_lists(present, value, _MERGE_KEYS[key])
        else:
            result[key] = value
    return result


def _merged_lists(present: list[object], patch: list[object], key: str) -> list[object]:
    result = list(present)
    for item in patch:
        if not isinstance(item, dict):
            continue
        place = next(
            (i for i, one in enumerate(result) if isinstance(one, dict) and one.get(key) == item.get(key)), None
        )
        if place is None:
            result.append(item)
        else:
            known = result[place]
            result[place] = strategic_merge(known if isinstance(known, dict) else {}, item)
    return result
