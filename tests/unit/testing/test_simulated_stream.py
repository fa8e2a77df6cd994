"""A stream's own rules, without a server: what is lost at its end is as if it had never been, and its indices never lie."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.bus.jetstream import S_NS, WRONG_LAST_SEQUENCE, StreamConfig
from shared.bus.publishing import EXPECTED_LAST, EXPECTED_LAST_OF_SUBJECT, MESSAGE_ID, MESSAGE_TTL
from shared.testing.simulated_bus.stream import Duplicate, Refused, SimulatedStream, StoredMessage
from shared.testing.simulated_bus.subjects import matcher, matches

LATEST = StreamConfig(
    name="S", subjects=("s.>",), max_msgs_per_subject=1, max_bytes=-1, duplicate_window=10 * S_NS, allow_msg_ttl=True
)
LOG = msgspec.structs.replace(LATEST, max_msgs_per_subject=-1)


def stream(config: StreamConfig) -> SimulatedStream:
    return SimulatedStream(config, created="now")


def put(found: SimulatedStream, subject: str, now: float = 0.0, **headers: str) -> StoredMessage:
    named = {"id_": MESSAGE_ID, "ttl": MESSAGE_TTL, "last": EXPECTED_LAST, "of_subject": EXPECTED_LAST_OF_SUBJECT}
    return found.store(
        subject, b"x", {named[k]: v for k, v in headers.items()} or None, now=now, stamp=found.last + 1_000
    )


def consistent(found: SimulatedStream) -> None:
    """What the indices say is what the messages say."""
    messages = list(found.messages.values())
    assert [m.sequence for m in messages] == sorted(m.sequence for m in messages) == list(found.messages)
    assert found.bytes == sum(m.size for m in messages)
    assert all(m.sequence <= found.last for m in messages)
    if messages:
        assert found.first == messages[0].sequence
    for subject in {m.subject for m in messages}:
        newest = max(m.sequence for m in messages if m.subject == subject)
        assert found.newest(subject) is found.messages[newest]
    if found.config.max_msgs_per_subject == 1:
        assert len({m.subject for m in messages}) == len(messages)


subjects = st.sampled_from(["s.a", "s.b", "s.c"])
actions = st.one_of(
    st.tuples(st.just("put"), subjects),
    st.tuples(st.just("remove"), st.integers(1, 12)),
    st.tuples(st.just("purge"), st.integers(1, 14)),
    st.tuples(st.just("expire"), st.integers(0, 5)),
    st.tuples(st.just("ttl"), subjects),
)


def act(found: SimulatedStream, action: tuple[str, object]) -> None:
    what, about = action
    match what:
        case "put":
            put(found, str(about))
        case "ttl":
            put(found, str(about), ttl="3s")
        case "remove":
            found.remove(int(str(about)))
        case "purge":
            found.purge_below(int(str(about)))
        case "expire":
            found.expire(float(str(about)))


@given(st.sampled_from([LATEST, LOG]), st.lists(actions, max_size=30))
def test_indices_follow_the_messages(config: StreamConfig, todo: list[tuple[str, object]]) -> None:
    found = stream(config)
    last = 0
    for action in todo:
        act(found, action)
        consistent(found)
        assert found.last >= last
        last = found.last
        assert all(m.subject in ("s.a", "s.b", "s.c") for m in found.messages.values())


@given(st.sampled_from([LATEST, LOG]), st.lists(subjects, max_size=12), st.lists(subjects, min_size=1, max_size=12))
def test_what_was_lost_had_never_been(config: StreamConfig, before: list[str], after: list[str]) -> None:
    found, untouched = stream(config), stream(config)
    for subject in before:
        put(found, subject)
        put(untouched, subject)
    for number, subject in enumerate(after):
        put(found, subject, id_=f"id-{number}")
    assert found.lose_tail(len(after)) == len(after)
    assert (found.messages, found.last, found.bytes) == (untouched.messages, untouched.last, untouched.bytes)
    assert found.first == untouched.first or not found.messages
    consistent(found)
    # Their ids are unknown, too.
    assert put(found, "s.a", id_="id-0").sequence == len(before) + 1


def test_what_comes_back_is_as_old_as_it_is() -> None:
    found = stream(msgspec.structs.replace(LATEST, max_age=3 * S_NS))
    put(found, "s.a", 0.0)
    put(found, "s.a", 2.0)
    put(found, "s.a", 4.0)
    found.lose_tail(1)
    found.expire(4.5)
    assert found.newest("s.a") is not None
    found.lose_tail(1)
    found.expire(4.5)
    assert found.newest("s.a") is None


def test_more_than_was_stored_cannot_be_lost() -> None:
    found = stream(LOG)
    put(found, "s.a")
    assert found.lose_tail(5) == 1
    assert (found.last, found.messages) == (0, {})


def test_a_replaced_message_takes_its_time_to_live_along() -> None:
    found = stream(LATEST)
    put(found, "s.a", ttl="3s")
    put(found, "s.a")
    found.expire(100.0)
    assert found.newest("s.a") is not None
    put(found, "s.b", 100.0, ttl="3s")
    found.expire(102.9)
    assert found.newest("s.b") is not None
    # Storing looks at the clock, too.
    put(found, "s.c", 103.0)
    assert found.newest("s.b") is None


def test_an_id_counts_within_its_window() -> None:
    found = stream(LOG)
    put(found, "s.a", 0.0, id_="i")
    with pytest.raises(Duplicate) as duplicate:
        put(found, "s.b", 9.9, id_="i")
    assert duplicate.value.sequence == 1
    assert put(found, "s.b", 10.0, id_="i").sequence == 2


@pytest.mark.parametrize("headers", [{"last": "1"}, {"of_subject": "1"}])
def test_a_wrong_expectation_changes_nothing(headers: dict[str, str]) -> None:
    found = stream(LOG)
    with pytest.raises(Refused) as refused:
        put(found, "s.a", 0.0, **headers)
    assert refused.value.err_code == WRONG_LAST_SEQUENCE
    assert (found.last, found.messages) == (0, {})


tokens = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=4)
patterns = st.builds(
    lambda parts, rest: ".".join([*parts, *rest]),
    st.lists(st.sampled_from(["a", "b", "*"]), min_size=1, max_size=3),
    st.sampled_from([[], [">"]]),
)


@given(st.lists(patterns, min_size=1, max_size=4), tokens)
def test_the_quick_matcher_is_the_slow_one(chosen: list[str], subject: list[str]) -> None:
    text = ".".join(subject)
    assert matcher(chosen)(text) == any(matches(pattern, text) for pattern in chosen)


def test_wildcards() -> None:
    assert matches("a.>", "a.b")
    assert matches("a.>", "a.b.c")
    assert not matches("a.>", "a")
    assert matches("a.*", "a.b")
    assert not matches("a.*", "a.b.c")
    assert not matches("a.*", "a")
    assert matches("*.b.>", "a.b.c")
    assert matcher(())("anything")
