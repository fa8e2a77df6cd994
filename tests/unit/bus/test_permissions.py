"""The permissions that are rendered are those of the table: what each user gets, and above all what nobody but one gets."""

import re

import pytest

from shared.bus import permissions
from shared.bus.permissions import Permissions, consumer_names, of_reader, of_service
from shared.events import streams, subjects


def matches(pattern: str, subject: str) -> bool:
    """NATS's own rule: `*` is one token, a last `>` one or more."""
    wanted, given = pattern.split("."), subject.split(".")
    for n, token in enumerate(wanted):
        if token == ">":
            return len(given) > n
        if n >= len(given) or token not in ("*", given[n]):
            return False
    return len(wanted) == len(given)


def may_publish(service: str, subject: str) -> bool:
    return any(matches(p, subject) for p in of_service(service).publish)


def who_may_publish(subject: str) -> set[str]:
    return {s for s in streams.SERVICES if may_publish(s, subject)}


@pytest.mark.parametrize(
    ("subject", "services"),
    [
        (subjects.objects("workload", "ns", "w"), {"watcher"}),
        (subjects.decisions("0", 3), {"watcher", "scheduler"}),
        (subjects.OUTCOMES_OF_DECISIONS, {"watcher"}),
        (subjects.event("ns", "workload.admitted", "w"), {"watcher"}),
        (subjects.command("preemptor", "evict", "workload", "ns", "w"), {"preemptor"}),
        (subjects.dead_letter("metrics"), {"metrics"}),
        ("$KV.LEASES.scheduler.0", {"scheduler"}),
        ("$JS.API.STREAM.CREATE.OBJECTS", {"watcher"}),
        ("$JS.API.STREAM.DELETE.DECISIONS_0_1", {"watcher"}),
        ("$JS.API.STREAM.PURGE.OUTCOMES", {"watcher"}),
        ("$JS.API.STREAM.MSG.DELETE.COMMANDS", {"watcher"}),
        ("$JS.API.STREAM.INFO.COMMANDS", {"watcher"}),
        ("$JS.API.STREAM.INFO.OBJECTS", set(streams.SERVICES)),
        ("$JS.API.CONSUMER.CREATE.OBJECTS.webhook-0-objects", {"webhook"}),
        ("$JS.API.CONSUMER.CREATE.OUTCOMES.webhook-0-outcomes", set()),
        ("$JS.API.CONSUMER.CREATE.DECISIONS_0_1.webhook-0-decisions.sluice.decisions.0.1", set()),
        ("$JS.API.CONSUMER.CREATE.DECISIONS_0_1.scheduler-3-decisions.sluice.decisions.0.1", {"scheduler"}),
        ("$JS.API.CONSUMER.CREATE.DECISIONS_0_1.scheduler-0-decisions", set()),
        ("$JS.API.CONSUMER.CREATE.COMMANDS.scheduler-0-decisions.sluice.commands.>", set()),
        ("$JS.API.CONSUMER.MSG.NEXT.OBJECTS.scheduler-0-objects", set()),
        ("$JS.API.DIRECT.GET.KV_LEASES.$KV.LEASES.preemptor.0", {"preemptor"}),
        ("$JS.API.INFO", set()),
        ("$SYS.REQ.SERVER.PING", set()),
        ("sluice.rpc.watcher.workload", {s for s, callees in streams.RPC_CALLS.items() if "watcher" in callees}),
    ],
)
def test_exactly_these_services_may_publish(subject: str, services: set[str]) -> None:
    assert who_may_publish(subject) == services


@pytest.mark.parametrize("service", streams.SERVICES)
def test_a_service_listens_to_its_inbox_and_its_calls_alone(service: str) -> None:
    assert of_service(service).subscribe == (f"_INBOX_{service}.>", f"sluice.rpc.{service}.>")


@pytest.mark.parametrize("service", streams.SERVICES)
def test_no_pattern_is_wider_than_meant(service: str) -> None:
    for pattern in of_service(service).publish:
        head = pattern.split(".")[0]
        assert head in ("sluice", "$JS", "$KV"), pattern
        # A wildcard for the stream is only there where consumer and filter are literal.
        if ".*." in pattern and head == "$JS":
            assert re.search(rf"\.\*\.{service}-\d-decisions(\.|$)", pattern), pattern


def test_inboxes_are_nobodys_prefix() -> None:
    for one in streams.SERVICES:
        for other in streams.SERVICES:
            heard = any(matches(p, f"{permissions.inbox(other)}.a.b") for p in of_service(one).subscribe)
            assert heard == (one == other)


def test_readers_only_listen() -> None:
    assert of_reader("r") == Permissions(user="r", publish=(), subscribe=("sluice.events.>",))
    limited = of_reader("r", ("team-a", "weird.ns"))
    assert limited.subscribe == ("sluice.events.team-a.>", "sluice.events.weird%2Ens.>")
    assert not limited.responses


def test_every_stream_has_its_purposes_and_every_name_is_listed() -> None:
    for stream in streams.STREAMS:
        for reader in stream.readers:
            if not stream.per_epoch:
                assert may_publish(reader, f"$JS.API.STREAM.INFO.{stream.name}")
    names = consumer_names("scheduler", "objects")
    assert names == tuple(f"scheduler-{number}-objects" for number in range(streams.REPLICAS))
    with pytest.raises(ValueError, match="purpose"):
        consumer_names("scheduler", "theft")
