import pytest

from shared.api.meta import ObjectMeta, OwnerReference
from shared.jobs.queue_membership import (
    MAX_CHAIN,
    AncestorSearch,
    NestingTooDeep,
    OwnershipError,
    Standing,
    should_suspend,
    standing,
)
from shared.jobs.registry import OwnerKind

QUEUE = {"kueue.x-k8s.io/queue-name": "q"}
RAY_CLUSTER = OwnerKind("ray.io/v1", "RayCluster")
RAY_JOB = OwnerKind("ray.io/v1", "RayJob")
MPI_JOB = OwnerKind("kubeflow.org/v2beta1", "MPIJob")
WRAPPER = OwnerKind("workload.codeflare.dev/v1beta2", "AppWrapper")
DEPLOYMENT = OwnerKind("apps/v1", "Deployment")
REPLICA_SET = OwnerKind("apps/v1", "ReplicaSet")
POD = OwnerKind("v1", "Pod")
JOB = OwnerKind("batch/v1", "Job")
FOREIGN = OwnerKind("example.com/v1", "Thing")
ENABLED = frozenset({RAY_CLUSTER, RAY_JOB, WRAPPER, DEPLOYMENT, POD, JOB})

Link = tuple[OwnerKind, bool]


def chain(*links: Link) -> list[ObjectMeta]:
    """Objects from the child up; each is owned by the next."""
    found = []
    for index, (_, queued) in enumerate(links):
        owners: tuple[OwnerReference, ...] = ()
        if index + 1 < len(links):
            kind = links[index + 1][0]
            owners = (
                OwnerReference(
                    api_version=kind.api_version,
                    kind=kind.kind,
                    name=f"n{index + 1}",
                    uid=f"u{index + 1}",
                    controller=True,
                ),
            )
        found.append(
            ObjectMeta(name=f"n{index}", uid=f"u{index}", labels=QUEUE if queued else {}, owner_references=owners)
        )
    return found


def search(objects: list[ObjectMeta], *, manage_all: bool = False) -> AncestorSearch:
    found = AncestorSearch(objects[0], manage_all=manage_all, enabled=ENABLED)
    by_uid = {o.uid: o for o in objects}
    while owner := found.next_owner():
        found.found(by_uid.get(owner.uid))
    return found


@pytest.mark.parametrize(
    ("links", "without", "with_all"),
    [
        (((RAY_CLUSTER, False), (RAY_JOB, False), (WRAPPER, False)), None, "AppWrapper"),
        (((RAY_CLUSTER, True), (RAY_JOB, True), (WRAPPER, False)), "RayJob", "AppWrapper"),
        (((RAY_CLUSTER, True), (RAY_JOB, False), (WRAPPER, True)), "AppWrapper", "AppWrapper"),
        (((JOB, False), (MPI_JOB, False), (WRAPPER, True)), "AppWrapper", "AppWrapper"),
        (((POD, False), (REPLICA_SET, False), (DEPLOYMENT, True)), "Deployment", "Deployment"),
        (((JOB, True), (FOREIGN, False), (WRAPPER, True)), None, None),
        (((JOB, True),), None, None),
    ],
)
def test_the_highest_managed_ancestor(links: tuple[Link, ...], without: str | None, with_all: str | None) -> None:
    for manage_all, expected in ((False, without), (True, with_all)):
        result = search(chain(*links), manage_all=manage_all).result
        assert (None if result is None else result.kind) == expected


def test_a_stale_reference_protects_nothing() -> None:
    child, parent = chain((JOB, False), (WRAPPER, True))
    found = AncestorSearch(child, manage_all=False, enabled=ENABLED)
    assert found.next_owner() is not None
    found.found(ObjectMeta(name=parent.name, uid="another", labels=QUEUE))
    assert found.next_owner() is None
    assert found.result is None


def test_an_owner_that_cannot_be_read_is_an_error() -> None:
    child, _ = chain((JOB, False), (WRAPPER, True))
    found = AncestorSearch(child, manage_all=False, enabled=ENABLED)
    with pytest.raises(OwnershipError, match="not found"):
        found.found(None)


def test_cycles_and_long_chains_are_errors() -> None:
    one, other = chain((JOB, False), (JOB, False))
    circle = [
        one,
        ObjectMeta(
            name="n1",
            uid="u1",
            owner_references=(
                OwnerReference(api_version="batch/v1", kind="Job", name="n0", uid="u0", controller=True),
            ),
        ),
    ]
    assert other.uid == "u1"
    with pytest.raises(OwnershipError, match="cyclic"):
        search(circle)
    assert search(chain(*[(JOB, True)] * (MAX_CHAIN + 1))).result is not None
    with pytest.raises(NestingTooDeep):
        search(chain(*[(JOB, True)] * (MAX_CHAIN + 2)))


@pytest.mark.parametrize(
    ("labels", "ancestor", "manage_all", "matches", "expected"),
    [
        (QUEUE, False, False, False, True),
        (QUEUE, True, True, True, False),
        ({}, False, True, True, True),
        ({}, False, True, False, False),
        ({}, False, False, True, False),
        ({"kueue.x-k8s.io/queue-name": ""}, False, False, True, False),
    ],
)
def test_should_suspend(
    labels: dict[str, str], ancestor: bool, manage_all: bool, matches: bool, expected: bool
) -> None:
    assert should_suspend(labels, ancestor=ancestor, manage_all=manage_all, namespace_matches=matches) is expected


def test_standing_of_jobs() -> None:
    top = search(chain((JOB, True)))
    assert standing(QUEUE, top, manage_all=False, namespace_matches=True) == Standing(managed=True)
    assert not standing(QUEUE, top, manage_all=False, namespace_matches=False).managed
    assert not standing({}, top, manage_all=False, namespace_matches=True).managed
    assert standing({}, top, manage_all=True, namespace_matches=True).managed
    child = search(chain((JOB, False), (WRAPPER, True)))
    found = standing({}, child, manage_all=False, namespace_matches=True)
    assert found.managed
    assert not found.top_level
    assert found.ancestor is not None
    assert found.ancestor.kind == "AppWrapper"
