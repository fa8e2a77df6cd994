"""JSON merge patches (RFC 7386): the difference of two manifests, and what a patch makes of one.

Objects are compared key by key, everything else as a whole: a list is always sent complete, so a patch that holds one needs a resourceVersion.
"""

from shared.jobs.manifest import JsonObject


def diff(old: JsonObject, new: JsonObject) -> JsonObject:
    """The patch that makes `new` of `old`; empty when they are equal. Null stands for removal, so explicit nulls count as absent."""
    patch: JsonObject = {}
    # The order of the keys, too, is that of the manifests: one input, one patch.
    for key in {**old, **new}:
        before, after = old.get(key), new.get(key)
        if isinstance(before, dict) and isinstance(after, dict):
            inner = diff(before, after)
            if inner:
                patch[key] = inner
        elif before != after or type(before) is not type(after):
            patch[key] = after
    return patch


def apply(target: JsonObject, patch: JsonObject) -> JsonObject:
    """`target` after `patch`, as the API server would have it. Neither argument is changed."""
    result = dict(target)
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            inner = result.get(key)
            result[key] = apply(inner if isinstance(inner, dict) else {}, value)
        else:
            result[key] = value
    return result
