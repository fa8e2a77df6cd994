"""CEL rules over a whole Workload: what may not change once quota is reserved or the workload is admitted."""


def _condition(self: str, type_: str) -> str:
    return (
        f"(has({self}.status) && has({self}.status.conditions) && "
        f"{self}.status.conditions.exists(c, c.type == '{type_}' && c.status == 'True'))"
    )


_RESERVED, _WAS_RESERVED = _condition("self", "QuotaReserved"), _condition("oldSelf", "QuotaReserved")
_ADMITTED, _WAS_ADMITTED = _condition("self", "Admitted"), _condition("oldSelf", "Admitted")
_REF, _OLD_REF = "self.spec.priorityClassRef", "oldSelf.spec.priorityClassRef"
_BOTH_REFS = f"has({_REF}) && has({_OLD_REF})"

WORKLOAD_RULES: tuple[tuple[str, str], ...] = (
    (
        f"!{_RESERVED} || !has(self.status.admission) || "
        "(has(self.spec.podSets) ? size(self.spec.podSets) : 0) == "
        "(has(self.status.admission.podSetAssignments) ? size(self.status.admission.podSetAssignments) : 0)",
        "podSetAssignments must be as many as podSets",
    ),
    (
        f"!{_WAS_RESERVED} || has({_REF}) == has({_OLD_REF})",
        "priorityClassRef cannot be set or removed while quota is reserved",
    ),
    (
        f"!{_WAS_RESERVED} || !({_BOTH_REFS}) || ({_REF}.group == {_OLD_REF}.group && {_REF}.kind == {_OLD_REF}.kind)",
        "priorityClassRef group and kind are immutable while quota is reserved",
    ),
    (
        f"!{_WAS_RESERVED} || !({_BOTH_REFS}) || {_OLD_REF}.kind != 'PriorityClass' || {_REF}.name == {_OLD_REF}.name",
        "the name of a PriorityClass is immutable while quota is reserved",
    ),
    (
        f"!({_WAS_RESERVED} && {_RESERVED}) || (has(self.spec.queueName) == has(oldSelf.spec.queueName) && "
        "(!has(self.spec.queueName) || self.spec.queueName == oldSelf.spec.queueName))",
        "queueName is immutable while quota is reserved",
    ),
    (
        f"!({_WAS_ADMITTED} && {_ADMITTED}) || "
        "(has(self.spec.maximumExecutionTimeSeconds) ? self.spec.maximumExecutionTimeSeconds : 0) == "
        "(has(oldSelf.spec.maximumExecutionTimeSeconds) ? oldSelf.spec.maximumExecutionTimeSeconds : 0)",
        "maximumExecutionTimeSeconds is immutable while the workload is admitted",
    ),
)
