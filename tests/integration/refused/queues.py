"""Refused ClusterQueues."""

from __future__ import annotations

from tests.integration.refused.objects import (
    DUPLICATE,
    INVALID,
    REQUIRED,
    TOO_LONG,
    TOO_MANY,
    UNSUPPORTED,
    Refusal,
    group,
    grouped,
    queue,
    quota,
)

GROUP = "spec.resourceGroups[0]"
QUOTA = f"{GROUP}.flavors[0].resources[0]"
LONG = "x" * 254

CLUSTER_QUEUES = (
    Refusal(document=queue(queueingStrategy="LIFO"), path="spec.queueingStrategy", kind=UNSUPPORTED, value='"LIFO"'),
    Refusal(document=queue(stopPolicy="Now"), path="spec.stopPolicy", kind=UNSUPPORTED, value='"Now"'),
    Refusal(document=queue(cohortName="@all"), path="spec.cohortName", kind=INVALID, value='"@all"'),
    Refusal(document=queue(cohortName=LONG), path="spec.cohortName", kind=TOO_LONG),
    Refusal(document=grouped({}), path=f"{GROUP}.coveredResources", kind=REQUIRED),
    Refusal(document=grouped(group(covered=("cpu",))), path=f"{GROUP}.flavors", kind=INVALID),
    Refusal(document=grouped(group(("a_b", [quota()]))), path=f"{GROUP}.flavors[0].name", kind=INVALID, value='"a_b"'),
    Refusal(document=grouped(group(("a", [{"name": "cpu"}]))), path=f"{QUOTA}.nominalQuota", kind=REQUIRED),
    Refusal(document=grouped(group(("a", [quota(nominal="much")]))), path=f"{QUOTA}.nominalQuota", kind=INVALID),
    Refusal(
        document=grouped(*(group((f"f{i}", [quota(f"r{i}")]), covered=(f"r{i}",)) for i in range(17))),
        path="spec.resourceGroups",
        kind=TOO_MANY,
        value="17",
    ),
    Refusal(
        document=grouped(group(*((f"f{i}", [quota()]) for i in range(65)))), path=f"{GROUP}.flavors", kind=TOO_MANY
    ),
    Refusal(document=grouped(group(("a", [quota()]), ("a", [quota()]))), path=f"{GROUP}.flavors[1]", kind=DUPLICATE),
    Refusal(
        document=grouped(group(("a", [quota()]), covered=("cpu", "memory"))), path=f"{GROUP}.flavors", kind=INVALID
    ),
    Refusal(document=grouped(group(("a", [quota(borrowingLimit="1")]))), path="spec.resourceGroups", kind=INVALID),
    Refusal(
        document=queue(flavorFungibility={"preference": "BorrowingOverPreemption"}),
        path="spec.flavorFungibility.preference",
        kind=INVALID,
    ),
    Refusal(
        document=queue(flavorFungibility={"whenCanBorrow": "Borrow"}),
        path="spec.flavorFungibility.whenCanBorrow",
        kind=UNSUPPORTED,
    ),
    Refusal(
        document=queue(preemption={"borrowWithinCohort": {"policy": "LowerPriority"}}),
        path="spec.preemption",
        kind=INVALID,
    ),
    Refusal(
        document=queue(preemption={"withinClusterQueue": "Any"}),
        path="spec.preemption.withinClusterQueue",
        kind=UNSUPPORTED,
        value='"Any"',
    ),
    Refusal(
        document=queue(admissionChecksStrategy={"admissionChecks": []}),
        path="spec.admissionChecksStrategy.admissionChecks",
        kind=INVALID,
    ),
    Refusal(document=queue(admissionScope={}), path="spec.admissionScope.admissionMode", kind=REQUIRED),
    Refusal(
        document=queue(concurrentAdmissionPolicy={"migration": {}}),
        path="spec.concurrentAdmissionPolicy.migration.mode",
        kind=REQUIRED,
    ),
    # The webhook's.
    Refusal(
        document=grouped(group(("a", [quota("@cpu")]), covered=("@cpu",))),
        path=f"{GROUP}.coveredResources[0]",
        kind=INVALID,
        code=403,
        value='"@cpu"',
    ),
    Refusal(
        document=grouped(group(("a", [quota()])), group(("b", [quota()]))),
        path="spec.resourceGroups[1].coveredResources[0]",
        kind=DUPLICATE,
        code=403,
    ),
    Refusal(
        document=grouped(group(("a", [quota()])), group(("a", [quota("memory")]), covered=("memory",))),
        path="spec.resourceGroups[1].flavors[0].name",
        kind=DUPLICATE,
        code=403,
    ),
    Refusal(
        document=grouped(group(("a", [quota("memory"), quota("cpu")]), covered=("cpu", "memory"))),
        path=f"{QUOTA}.name",
        kind=INVALID,
        code=403,
        value='"memory"',
    ),
    Refusal(
        document=grouped(group(("a", [quota(nominal="-1")]))), path=f"{QUOTA}.nominalQuota", kind=INVALID, code=403
    ),
    Refusal(
        document=grouped(group(("a", [quota(borrowingLimit="-1")])), cohortName="c"),
        path=f"{QUOTA}.borrowingLimit",
        kind=INVALID,
        code=403,
    ),
    Refusal(
        document=grouped(group(("a", [quota(lendingLimit="1")]))), path=f"{QUOTA}.lendingLimit", kind=INVALID, code=403
    ),
    Refusal(
        document=grouped(group(("a", [quota(lendingLimit="10")])), cohortName="c"),
        path=f"{QUOTA}.lendingLimit",
        kind=INVALID,
        code=403,
        value='"10"',
    ),
    Refusal(
        document=queue(namespaceSelector={"matchLabels": {"a": "-"}}),
        path="spec.namespaceSelector.matchLabels",
        kind=INVALID,
        code=403,
        value='"-"',
    ),
    Refusal(
        document=queue(namespaceSelector={"matchExpressions": [{"key": "a", "operator": "NotIn"}]}),
        path="spec.namespaceSelector.matchExpressions[0].values",
        kind=REQUIRED,
        code=403,
    ),
    Refusal(document=queue(fairSharing={"weight": "-1"}), path="spec.fairSharing", kind=INVALID, code=403),
    Refusal(document=queue(fairSharing={"weight": "1n"}), path="spec.fairSharing", kind=INVALID, code=403),
    Refusal(
        document=queue(admissionChecksStrategy={"admissionChecks": [{"name": "c", "onFlavors": ["no"]}]}),
        path="spec.admissionChecksStrategy.admissionChecks[0].onFlavors[0]",
        kind=UNSUPPORTED,
        code=403,
        value='"no"',
    ),
    Refusal(
        document=grouped(
            group(
                *((f"f{j}", [quota(f"r{i}") for i in range(60)]) for j in range(9)),
                covered=tuple(f"r{i}" for i in range(60)),
            )
        ),
        path=GROUP,
        kind=TOO_MANY,
        code=403,
        value="540",
    ),
    Refusal(
        document=queue(),
        change={"spec": {"concurrentAdmissionPolicy": {"migration": {"mode": "RetainFirstAdmission"}}}},
        path="spec.concurrentAdmissionPolicy",
        kind=INVALID,
        code=403,
    ),
)
