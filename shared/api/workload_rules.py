"""CEL rules over a whole Workload: what may not change once quota is reserved or the workload is admitted."""

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
    f"!{_RESERVED} || !has(self.status.admission) || "
    "(has(self.spec.podSets) ? size(self.spec.podSets) : 0) == "
    "(has(self.status.admission.podSetAssignments) ? size(self.status.admission.podSetAssignments) : 0)",
    "podSetAssignments must be as many as podSets",
    ".status.admission.podSetAssignments",
)
_QUEUE = (
    f"!({_WAS_RESERVED} && {_RESERVED}) || (has(self.spec.queueName) == has(oldSelf.spec.queueName) && "
    "(!has(self.spec.queueName) || self.spec.queueName == oldSelf.spec.queueName))",
    "queueName is immutable while quota is reserved",
    ".spec.queueName",
)
_TIME = (
    f"!({_WAS_ADMITTED} && {_ADMITTED}) || {_same('maximumExecutionTimeSeconds', '0')}",
    "maximumExecutionTimeSeconds is immutable while the workload is admitted",
    ".spec.maximumExecutionTimeSeconds",
)

WORKLOAD_RULES: tuple[Rule, ...] = (
    _ASSIGNMENTS,
    (
        f"!{_WAS_RESERVED} || has({_REF}) == has({_OLD_REF})",
        "priorityClassRef cannot be set or removed while quota is reserved",
        ".spec.priorityClassRef",
    ),
    (
        f"!{_WAS_RESERVED} || !({_BOTH_REFS}) || ({_REF}.group == {_OLD_REF}.group && {_REF}.kind == {_OLD_REF}.kind)",
        "priorityClassRef group and kind are immutable while quota is reserved",
        ".spec.priorityClassRef",
    ),
    (
        f"!{_WAS_RESERVED} || !({_BOTH_REFS}) || {_OLD_REF}.kind != 'PriorityClass' || {_REF}.name == {_OLD_REF}.name",
        "the name of a PriorityClass is immutable while quota is reserved",
        ".spec.priorityClassRef.name",
    ),
    _QUEUE,
    _TIME,
)
V1BETA1_WORKLOAD_RULES: tuple[Rule, ...] = (
    _ASSIGNMENTS,
    (
        f"!({_WAS_RESERVED} && {_RESERVED}) || {_same('priorityClassSource', chr(39) * 2)}",
        "priorityClassSource is immutable while quota is reserved",
        ".spec.priorityClassSource",
    ),
    (
        f"!({_WAS_RESERVED} && {_RESERVED}) || (has(self.spec.priorityClassSource) && "
        f"self.spec.priorityClassSource == 'kueue.x-k8s.io/workloadpriorityclass') || "
        f"{_same('priorityClassName', chr(39) * 2)}",
        "the name of a PriorityClass is immutable while quota is reserved",
        ".spec.priorityClassName",
    ),
    _QUEUE,
    _TIME,
)
