"""The role hash of a pod: pods of one group with the same hash are one pod set (job specification 14.5).

It is a contract, byte for byte: groups may hold pods that another version, or Kueue itself, has marked. Names, images, environment, limits, volumes and
gates are no part of it. Structs inside keep the order of keys in which the API server sends them, which is that of the API's declaration.
"""

import json
from hashlib import sha256

from shared.jobs.manifest import JsonObject, items, section

_DIGITS = 8
_AS_IT_IS = ("affinity", "priority", "runtimeClassName")
_MAPS = ("nodeSelector", "overhead")
_LISTS = ("resourceClaims", "tolerations", "topologySpreadConstraints")
_ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def role_hash(pod: JsonObject) -> str:
    """8 hexadecimal digits."""
    return sha256(hashed_text(pod).encode()).hexdigest()[:_DIGITS]


def hashed_text(pod: JsonObject) -> str:
    """What is hashed: compact JSON of the parts that make a role."""
    spec = section(pod, "spec")
    shape: JsonObject = {
        "containers": _containers(spec, "containers"),
        "initContainers": _containers(spec, "initContainers"),
        **{key: spec.get(key) for key in _AS_IT_IS},
        **{key: _sorted(spec.get(key)) for key in _MAPS},
        **{key: spec.get(key) or None for key in _LISTS},
    }
    if "resources" in spec:
        shape["resources"] = _sorted(section(spec, "resources").get("requests"))
    text = json.dumps({"spec": dict(sorted(shape.items()))}, separators=(",", ":"), ensure_ascii=False)
    for plain, escaped in _ESCAPES.items():
        text = text.replace(plain, escaped)
    return text


def _containers(spec: JsonObject, key: str) -> list[JsonObject] | None:
    return [
        {
            "ports": container.get("ports") or None,
            "resources": {"requests": _sorted(section(container, "resources").get("requests"))},
        }
        for container in items(spec, key)
    ] or None


def _sorted(value: object) -> object:
    return dict(sorted(value.items())) if isinstance(value, dict) else value
