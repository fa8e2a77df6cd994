"""Objects of both versions as hypothesis makes them: what the schemas allow, with every field that only one version has, and some that nobody knows."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from shared.api import names

Json = dict[str, Any]
V1, V2 = names.V1BETA1_GROUP_VERSION, names.GROUP_VERSION
TIME = "2026-01-02T03:04:05Z"
HOST = names.HOSTNAME_LABEL

name = st.sampled_from(["a", "b", "main", "workers", "x-1"])
texts = st.dictionaries(st.sampled_from(["team", "example.com/k"]), st.text(max_size=5), min_size=1, max_size=2)
unknown = st.sampled_from([{}, {"colour": {"deep": [1, None, {"x": 1.5}]}}])
scalar = st.one_of(st.booleans(), st.integers(-(2**53), 2**53), st.text(max_size=6))


def some(**fields: SearchStrategy[Any]) -> SearchStrategy[Json]:
    """Any of the fields."""
    return st.fixed_dictionaries({}, optional=fields)


def all_of(required: dict[str, SearchStrategy[Any]], **optional: SearchStrategy[Any]) -> SearchStrategy[Json]:
    return st.fixed_dictionaries(required, optional=optional)


def listed(field: str, values: SearchStrategy[str], **others: SearchStrategy[Any]) -> SearchStrategy[list[Json]]:
    """A list whose entries are told apart by a field."""
    return st.lists(all_of({field: values}, **others), max_size=3, unique_by=lambda entry: str(entry[field]))


def document(version: str, kind: str, **parts: SearchStrategy[Json]) -> SearchStrategy[Json]:
    metadata = all_of(
        {"name": name, "uid": st.just("u")},
        annotations=texts,
        labels=texts,
        managedFields=st.just([{"manager": "kueue-admission", "fieldsV1": {"f:status": {}}}]),
    )
    fixed: dict[str, SearchStrategy[Any]] = {"apiVersion": st.just(version), "kind": st.just(kind)}
    return all_of({**fixed, "metadata": metadata}, **parts)


def merged(*parts: SearchStrategy[Json]) -> SearchStrategy[Json]:
    return st.tuples(*parts).map(lambda given: {key: value for part in given for key, value in part.items()})


# Queues.

condition = st.fixed_dictionaries({"type": st.just("Active"), "status": st.sampled_from(["True", "False"])})
usage = st.lists(st.just({"name": "f", "resources": [{"name": "cpu", "total": "1"}]}), max_size=1)
admission_sharing = some(consumedResources=st.just({"cpu": "3"}), lastUpdate=st.just(TIME))
sharing_v1 = all_of({"weightedShare": st.integers(0, 2**62)}, admissionFairSharingStatus=admission_sharing)
sharing_v2 = all_of({"weightedShare": st.integers(0, 2**62)})
counts = some(conditions=st.lists(condition, max_size=1), pendingWorkloads=st.integers(0, 9), flavorsReservation=usage)
queue_spec = some(stopPolicy=st.sampled_from(["None", "Hold"]), namespaceSelector=st.just({}), fairSharing=st.just({}))
strategy = all_of({"admissionChecks": listed("name", name, onFlavors=st.lists(name, max_size=2, unique=True))})
stop = ["MayStopSearch", "TryNextFlavor"]
policy = st.fixed_dictionaries({"migration": st.fixed_dictionaries({"mode": st.just("RetainFirstAdmission")})})
pending = some(
    clusterQueuePendingWorkload=st.lists(st.just({"name": "w", "namespace": "n"}), max_size=2),
    lastChangeTime=st.just(TIME),
)


def fungibility(borrow: list[str], preempt: list[str]) -> SearchStrategy[Json]:
    return some(whenCanBorrow=st.sampled_from(borrow), whenCanPreempt=st.sampled_from(preempt))


cluster_queue_v1 = document(
    V1,
    names.CLUSTER_QUEUE,
    spec=merged(
        queue_spec,
        some(
            cohort=name,
            admissionChecks=st.lists(name, max_size=3),
            admissionChecksStrategy=strategy,
            flavorFungibility=fungibility([*stop, "Borrow"], [*stop, "Preempt"]),
        ),
        unknown,
    ),
    status=merged(counts, some(flavorsUsage=usage, fairSharing=sharing_v1, pendingWorkloadsStatus=pending)),
)
cluster_queue_v2 = document(
    V2,
    names.CLUSTER_QUEUE,
    spec=merged(
        queue_spec,
        some(
            cohortName=name,
            admissionChecksStrategy=strategy,
            flavorFungibility=fungibility(stop, stop),
            concurrentAdmissionPolicy=policy,
        ),
        unknown,
    ),
    status=merged(counts, some(flavorsUsage=usage, fairSharing=sharing_v2)),
)
flavors = listed("name", name, resources=st.just(["cpu"]), nodeLabels=st.just({"a": "b"}))
local_queue_v1 = document(
    V1,
    names.LOCAL_QUEUE,
    spec=merged(queue_spec, some(clusterQueue=name), unknown),
    status=merged(counts, some(flavorUsage=usage, flavors=flavors, fairSharing=sharing_v1)),
)
local_queue_v2 = document(
    V2,
    names.LOCAL_QUEUE,
    spec=merged(queue_spec, some(clusterQueue=name), unknown),
    status=merged(counts, some(flavorsUsage=usage, fairSharing=sharing_v1)),
)
cohort_v1 = document(V1, names.COHORT, spec=merged(some(parentName=name), unknown), status=some(fairSharing=sharing_v1))
cohort_v2 = document(V2, names.COHORT, spec=merged(some(parentName=name), unknown), status=some(fairSharing=sharing_v2))
check_v1 = document(
    V1, names.ADMISSION_CHECK, spec=all_of({"controllerName": name, "retryDelayMinutes": st.sampled_from([0, 15, 7])})
)
check_v2 = document(V2, names.ADMISSION_CHECK, spec=all_of({"controllerName": name}), status=unknown)
kube_config = st.fixed_dictionaries({"location": name, "locationType": st.sampled_from(["Secret", "Path"])})
profile = st.fixed_dictionaries({"name": name})
no_location = {"location": "", "locationType": "Secret"}
cluster_v1 = document(
    V1,
    names.MULTIKUEUE_CLUSTER,
    spec=all_of({"kubeConfig": st.one_of(kube_config, st.just(no_location))}, clusterProfileRef=profile),
)
cluster_v2 = document(
    V2,
    names.MULTIKUEUE_CLUSTER,
    spec=merged(
        some(clusterSource=st.one_of(all_of({"kubeConfig": kube_config}), all_of({"clusterProfileRef": profile})))
    ),
)
clusters = st.lists(name, min_size=1, max_size=3, unique=True)
config_v1 = document(V1, names.MULTIKUEUE_CONFIG, spec=all_of({"clusters": clusters}))
config_v2 = document(
    V2,
    names.MULTIKUEUE_CONFIG,
    spec=all_of({"clusters": clusters}, quotaManagement=st.sampled_from(["Manual", "Automated"])),
)

# Workloads.

template = st.recursive(
    scalar, lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(name, inner, max_size=2)), max_leaves=5
)
gates = listed("name", st.sampled_from(["g", "h"]))
gate_states = listed("name", st.sampled_from(["g", "h"])).map(
    lambda gates: [{**gate, "position": "Open", "lastTransitionTime": TIME} for gate in gates]
)
constraints = st.lists(st.fixed_dictionaries({"topology": name, "size": st.integers(1, 4)}), min_size=1, max_size=2)


def pod_sets(request: SearchStrategy[Json]) -> SearchStrategy[list[Json]]:
    whole = all_of({"spec": st.dictionaries(name, template)})
    each = all_of({"name": name, "template": whole}, count=st.integers(0, 9), topologyRequest=request)
    return st.lists(each, max_size=3, unique_by=lambda entry: str(entry["name"]))


request_v1 = some(required=st.just("rack"), podSetSliceSize=st.integers(1, 3))
request_v2 = merged(request_v1, some(podsetSliceRequiredTopologyConstraints=constraints))
common_spec = some(
    queueName=name, priority=st.integers(-9, 9), active=st.booleans(), maximumExecutionTimeSeconds=st.just(5)
)
common_status = some(
    conditions=st.lists(condition, max_size=1),
    requeueState=st.just({"count": 1, "requeueAt": TIME}),
    admissionChecks=listed("name", name, state=st.just("Ready"), message=st.text(max_size=5), retryCount=st.just(1)),
    clusterName=name,
    schedulingStats=st.just({"evictions": [{"reason": "Preempted", "underlyingCause": "", "count": 2}]}),
)
host = st.builds(
    "{}-{}-{}".format, st.sampled_from(["gpu", "cpu", ""]), st.sampled_from(["r1", "r2"]), st.integers(0, 12)
)


@st.composite
def domain_lists(draw: st.DrawFn) -> Json:
    """A topology assignment of v1beta1."""
    levels = draw(st.sampled_from([[HOST], ["block", "rack"], ["block", HOST]]))
    values = st.tuples(*(host if level == HOST else name for level in levels))
    domains = draw(st.lists(values, max_size=8, unique=True))
    return {
        "levels": levels,
        "domains": [{"values": list(each), "count": draw(st.integers(1, 3))} for each in domains],
    }


def assignments(topology: SearchStrategy[Json]) -> SearchStrategy[Json]:
    each = listed("name", name, flavors=st.just({"cpu": "f"}), count=st.integers(0, 9), topologyAssignment=topology)
    return all_of({"clusterQueue": name, "podSetAssignments": each})


sources = st.sampled_from(["", "kueue.x-k8s.io/workloadpriorityclass", "scheduling.k8s.io/priorityclass"])
refs = st.one_of(
    st.fixed_dictionaries({"group": st.just(names.GROUP), "kind": st.just("WorkloadPriorityClass"), "name": name}),
    st.fixed_dictionaries({"group": st.just(names.SCHEDULING_GROUP), "kind": st.just("PriorityClass"), "name": name}),
    # Refused by the schema today; stored is stored.
    st.fixed_dictionaries({"group": st.just(names.GROUP), "kind": st.just("PriorityClass"), "name": name}),
)
workload_v1 = document(
    V1,
    names.WORKLOAD,
    spec=merged(
        common_spec,
        all_of({"priorityClassSource": sources}, priorityClassName=name, podSets=pod_sets(request_v1)),
        unknown,
    ),
    status=merged(
        common_status,
        some(accumulatedPastExexcutionTimeSeconds=st.integers(0, 9), admission=assignments(domain_lists())),
        unknown,
    ),
)


def workload_v2(topology: SearchStrategy[Json]) -> SearchStrategy[Json]:
    """With topology assignments of that kind."""
    return document(
        V2,
        names.WORKLOAD,
        spec=merged(
            common_spec, some(priorityClassRef=refs, preemptionGates=gates, podSets=pod_sets(request_v2)), unknown
        ),
        status=merged(
            common_status,
            some(
                accumulatedPastExecutionTimeSeconds=st.integers(0, 9),
                preemptionGates=gate_states,
                admission=assignments(topology),
            ),
            unknown,
        ),
    )


FROM_V1 = {
    names.CLUSTER_QUEUE: cluster_queue_v1,
    names.LOCAL_QUEUE: local_queue_v1,
    names.COHORT: cohort_v1,
    names.ADMISSION_CHECK: check_v1,
    names.MULTIKUEUE_CLUSTER: cluster_v1,
    names.MULTIKUEUE_CONFIG: config_v1,
    names.WORKLOAD: workload_v1,
}
FROM_V2 = {
    names.CLUSTER_QUEUE: cluster_queue_v2,
    names.LOCAL_QUEUE: local_queue_v2,
    names.COHORT: cohort_v2,
    names.ADMISSION_CHECK: check_v2,
    names.MULTIKUEUE_CLUSTER: cluster_v2,
    names.MULTIKUEUE_CONFIG: config_v2,
}
