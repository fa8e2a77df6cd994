"""CEL rules over a whole Workload: what may not change once quota is reserved or the workload is admitted.

In each rule, what is cheap and nearly always true stands first. The API server evaluates all of them with each write of a status, and looking for a condition
is the dear part: a tenth of its processor time under load when it stood first (docs/performance.md).
"""

from shared.api.schema_hints import Rule


def _condition(self: str, type_: str) -> str:
    return (
        f"(has({self}.status) && has({self}.status.conditions) && "
        f"{self}.status.conditions.exists(c, c.type == '{type_}' && c.status == 'True'))"
    )


_RESERVED, _WAS_RESERVED = _condition("self", "QuotaReserved"), _condition("oldSelf", "QuotaReserved")
_ADMITTED, _WAS_ADMITTED = _condition("self", "Admitted"), _condition("oldSelf", "Admitted")
_REF, _OLD_REF = "self.spec.priorityClassRef", "oldSelf.spec.priorityClassRef"
_BOTH_REFS = f"has({_REF}) && has({_OLD_REF})"


def _same(field: str, absent: str) -> str:
    """A field of the spec says the same as before."""
    now, before = f"self.spec.{field}", f"oldSelf.spec.{field}"
    return f"(has({now}) ? {now} : {absent}) == (has({before}) ? {before} : {absent})"


_ASSIGNMENTS = (
    "!has(self.status) || !has(self.status.admission) || "
    "(has(self.spec.podSets) ? size(self.spec.podSets) : 0) == "
    "(has(self.status.admission.podSetAssignments) ? size(self.status.admission.podSetAssignments) : 0) || "
    f"!{_RESERVED}",
    "podSetAssignments must be as many as podSets",
    ".status.admission.podSetAssignments",
)
_QUEUE = (
    "(has(self.spec.queueName) == has(oldSelf.spec.queueName) && "
    f"(!has(self.spec.queueName) || self.spec.queueName == oldSelf.spec.queueName)) || !({_WAS_RESERVED} && {_RESERVED})",
    "queueName is immutable while quota is reserved",
    ".spec.queueName",
)
_TIME = (
    f"{_same('maximumExecutionTimeSeconds', '0')} || !({_WAS_ADMITTED} && {_ADMITTED})",
    "maximumExecutionTimeSeconds is immutable while the workload is admitted",
    ".spec.maximumExecutionTimeSeconds",
)

WORKLOAD_RULES: tuple[Rule, ...] = (
    _ASSIGNMENTS,
    (
        f"has({_REF}) == has({_OLD_REF}) || !{_WAS_RESERVED}",
        "priorityClassRef cannot be set or removed while quota is reserved",
        ".spec.priorityClassRef",
    ),
    (
        f"!({_BOTH_REFS}) || ({_REF}.group == {_OLD_REF}.group && {_REF}.kind == {_OLD_REF}.kind) || !{_WAS_RESERVED}",
        "priorityClassRef group and kind are immutable while quota is reserved",
        ".spec.priorityClassRef",
    ),
    (
        f"!({_BOTH_REFS}) || {_OLD_REF}.kind != 'PriorityClass' || {_REF}.name == {_OLD_REF}.name || !{_WAS_RESERVED}",
        "the name of a PriorityClass is immutable while quota is reserved",
        ".spec.priorityClassRef.name",
    ),
    _QUEUE,
    _TIME,
)
V1BETA1_WORKLOAD_RULES: tuple[Rule, ...] = (
    _ASSIGNMENTS,
    (
        f"{_same('priorityClassSource', chr(39) * 2)} || !({_WAS_RESERVED} && {_RESERVED})",
        "priorityClassSource is immutable while quota is reserved",
        ".spec.priorityClassSource",
    ),
    (
        f"{_same('priorityClassName', chr(39) * 2)} || (has(self.spec.priorityClassSource) && "
        f"self.spec.priorityClassSource == 'kueue.x-k8s.io/workloadpriorityclass') || "
        f"!({_WAS_RESERVED} && {_RESERVED})",
        "the name of a PriorityClass is immutable while quota is reserved",
        ".spec.priorityClassName",
    ),
    _QUEUE,
    _TIME,
)
