"""Subjects: one token for any text, and back; no two names share a subject."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.events import cloudevents, commands, subjects
from shared.events.subjects import ObjectName
from tests.unit.events.samples import sample

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
names = st.text("abcdefghijklmnopqrstuvwxyz0123456789-.", min_size=1, max_size=60)
TOKEN = re.compile(r"[^\s.*>\x00-\x20]+")


@given(texts)
def test_escape_makes_one_token_and_unescape_gives_the_text_back(text: str) -> None:
    token = subjects.escape(text)
    assert TOKEN.fullmatch(token)
    assert token != subjects.CLUSTER_SCOPE
    assert token.isascii()
    assert subjects.unescape(token) == text


@given(texts, texts)
def test_different_texts_make_different_tokens(one: str, other: str) -> None:
    assert (subjects.escape(one) == subjects.escape(other)) == (one == other)


@given(texts)
def test_unescape_takes_only_what_escape_makes(token: str) -> None:
    try:
        text = subjects.unescape(token)
    except ValueError:
        return
    assert subjects.escape(text) == token


@pytest.mark.parametrize("token", ["a.b", "%zz", "%2e", "%41", "a b", "é", "_", "%%", "%FF", "*", ">"])
def test_foreign_tokens_are_refused(token: str) -> None:
    with pytest.raises(ValueError):
        subjects.unescape(token)


@given(names, st.one_of(st.just(""), names), names)
def test_objects_round_trip(kind: str, namespace: str, name: str) -> None:
    subject = subjects.objects(kind, namespace, name)
    assert subject.count(".") == 4
    assert subjects.parse_objects(subject) == ObjectName(kind, namespace, name)
    prefix = subjects.objects_of_kind(kind)
    assert prefix.endswith(">")
    assert subject.startswith(prefix[:-1])


@given(names, names, names, st.one_of(st.just(""), names), names)
def test_commands_round_trip(writer: str, type_: str, kind: str, namespace: str, name: str) -> None:
    parsed = subjects.parse_command(subjects.command(writer, type_, kind, namespace, name))
    assert parsed == (writer, type_, ObjectName(kind, namespace, name))


@pytest.mark.parametrize(
    "subject", ["", "sluice.objects.a.b", "sluice.objects.a.b.c.d", "sluice.commands.a.b.c.d.e", "x"]
)
def test_others_are_no_objects(subject: str) -> None:
    with pytest.raises(ValueError, match="subject"):
        subjects.parse_objects(subject)


@pytest.mark.parametrize("subject", ["", "sluice.commands.a.b.c.d", "sluice.objects.a.b.c"])
def test_others_are_no_commands(subject: str) -> None:
    with pytest.raises(ValueError, match="subject"):
        subjects.parse_command(subject)


def test_a_namespace_called_underscore_is_not_the_cluster_scope() -> None:
    assert subjects.objects("workload", "_", "a") != subjects.objects("workload", "", "a")
    assert subjects.parse_objects(subjects.objects("workload", "_", "a")).namespace == "_"


def test_command_subjects_tell_types_and_checks_apart() -> None:
    evict = sample(commands.Evict)
    check = commands.SetCheckState(id="i", kind="workload", namespace="ns", name="w", check="a.b", state="Ready")
    other = commands.SetCheckState(id="i", kind="workload", namespace="ns", name="w", check="a.c", state="Ready")
    found = {commands.subject_of("preemptor", c) for c in (evict, check, other)}
    assert len(found) == 3
    assert subjects.parse_command(commands.subject_of("preemptor", check)).type == "set-check-state:a.b"
    assert commands.type_token(evict) == "evict"


def test_event_subjects_keep_the_dots_of_their_type() -> None:
    data = cloudevents.Admitted(namespace="team-a", workload="job-x.1", uid="u")
    assert cloudevents.subject_of(data) == "sluice.events.team-a.workload.admitted.job-x%2E1"


def test_decisions_have_one_subject_and_one_stream_per_shard_and_epoch() -> None:
    assert subjects.decisions("0", 7) == "sluice.decisions.0.7"
    assert subjects.decisions_stream("0", 7) == "DECISIONS_0_7"
