"""Which writes of a Workload the shipped webhooks are asked about, as the simulated API server answers it."""

from typing import Any

import msgspec
import pytest

from shared.api.names import NOT_THE_WATCHER
from shared.testing.simulated_api.admission import SHIPPED
from shared.testing.simulated_api.match_conditions import MATCH_CONDITIONS, condition_of

RESERVED = {"type": "QuotaReserved", "status": "True"}
ADMISSION = {"clusterQueue": "cq"}
DEFAULTED, JUDGED = MATCH_CONDITIONS
asks, defaults = condition_of(JUDGED), condition_of(DEFAULTED)


def workload(*, annotations: dict[str, str] | None = None, queue: str = "q", **status: object) -> dict[str, Any]:
    metadata: dict[str, object] = {"name": "w"} if annotations is None else {"name": "w", "annotations": annotations}
    return {"metadata": metadata, "spec": {"queueName": queue}, **({"status": status} if status else {})}


def test_every_condition_that_ships_is_simulated() -> None:
    documents = [msgspec.yaml.decode((SHIPPED / name).read_bytes()) for name in ("mutating.yaml", "validating.yaml")]
    conditions = [c for document in documents for w in document["webhooks"] for c in w.get("matchConditions", ())]
    asked = {" ".join(c["expression"].split()) for c in conditions if c["name"] != NOT_THE_WATCHER}
    assert asked == set(MATCH_CONDITIONS)


def test_another_expression_is_an_error_and_not_a_guess() -> None:
    with pytest.raises(ValueError, match="not simulated"):
        condition_of(f"{DEFAULTED} || true")


def test_every_creation_is_asked_about() -> None:
    assert asks("CREATE", None, workload())


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (workload(), workload()),
        (workload(), workload(conditions=[{"type": "PodsReady", "status": "True"}])),
        (workload(), workload(conditions=[{"type": "QuotaReserved", "status": "False"}])),
        (
            workload(conditions=[RESERVED], admission=ADMISSION),
            workload(conditions=[RESERVED, {"type": "Finished", "status": "True"}], admission=ADMISSION),
        ),
        (
            workload(conditions=[RESERVED], admission=ADMISSION),
            workload(conditions=[{"type": "QuotaReserved", "status": "False"}]),
        ),
        (workload(requeueState={"count": 1}), workload(requeueState={"count": 2})),
    ],
)
def test_what_the_schema_judges_is_not_asked_about(old: dict[str, Any], new: dict[str, Any]) -> None:
    assert not asks("UPDATE", old, new)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (workload(), workload(queue="other")),
        (workload(), workload(annotations={"a": "b"})),
        (workload(annotations={"a": "b"}), workload()),
        (workload(), workload(conditions=[RESERVED])),
        (workload(conditions=[RESERVED]), workload(conditions=[RESERVED])),
        (workload(admission=ADMISSION), workload(conditions=[RESERVED], admission=ADMISSION)),
        (workload(), workload(conditions=[RESERVED], admission=ADMISSION)),
        (workload(admission=ADMISSION), workload(admission={"clusterQueue": "other"})),
        (workload(), workload(reclaimablePods=[{"name": "main", "count": 1}])),
        (workload(reclaimablePods=[{"name": "main", "count": 1}]), workload()),
        (workload(), workload(admissionChecks=[{"name": "c"}])),
        (workload(), workload(clusterName="one")),
    ],
)
def test_everything_else_is_asked_about(old: dict[str, Any], new: dict[str, Any]) -> None:
    assert asks("UPDATE", old, new)


@pytest.mark.parametrize(
    ("pod_sets", "asked"),
    [([], False), ([{"name": "a"}], False), ([{"name": "a"}, {"name": "b", "minCount": 1}], True)],
)
def test_only_a_least_count_is_defaulted(pod_sets: list[dict[str, object]], asked: bool) -> None:
    assert defaults("CREATE", None, {"spec": {"podSets": pod_sets}}) is asked
