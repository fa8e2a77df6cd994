from datetime import UTC, datetime, timedelta, timezone

import pytest

from shared.api.decoding import decode, encode
from shared.api.meta import ObjectMeta, OwnerReference, format_time, parse_time, whole_seconds


def test_times_are_whole_seconds_of_utc() -> None:
    when = datetime(2026, 1, 2, 5, 4, 5, 999_999, tzinfo=timezone(timedelta(hours=2)))
    assert format_time(when) == "2026-01-02T03:04:05Z"
    assert whole_seconds(when) == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.mark.parametrize(
    "text",
    ["2026-01-02T03:04:05Z", "2026-01-02T03:04:05+00:00", "2026-01-02T05:04:05+02:00", "2026-01-02T03:04:05.000Z"],
)
def test_times_are_read_in_any_zone(text: str) -> None:
    assert parse_time(text) == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert format_time(parse_time(text)) == "2026-01-02T03:04:05Z"


@pytest.mark.parametrize("text", ["", "yesterday", "2026-01-02T03:04:05", "2026-13-02T03:04:05Z"])
def test_what_is_no_time_is_named(text: str) -> None:
    with pytest.raises(ValueError, match="is not an RFC 3339 time") as refused:
        parse_time(text)
    assert repr(text) in str(refused.value)


def test_a_time_without_a_zone_never_reaches_the_api() -> None:
    with pytest.raises(ValueError, match="time zone"):
        format_time(datetime(2026, 1, 2))  # noqa: DTZ001 - the fault under test


def test_key() -> None:
    assert ObjectMeta(name="a", namespace="team").key == "team/a"
    assert ObjectMeta(name="a").key == "a"


def test_the_controlling_owner() -> None:
    owner = OwnerReference(api_version="batch/v1", kind="Job", name="j", uid="1", controller=True)
    other = OwnerReference(api_version="v1", kind="Pod", name="p", uid="2")
    assert ObjectMeta(owner_references=(other, owner)).controller_owner() is owner
    assert ObjectMeta(owner_references=(other,)).controller_owner() is None


def test_metadata_of_a_real_object() -> None:
    meta = decode(
        ObjectMeta,
        b'{"name":"a","namespace":"n","uid":"u","resourceVersion":"7","generation":2,"managedFields":[{"manager":"x"}],'
        b'"creationTimestamp":"2026-01-02T03:04:05Z","deletionTimestamp":null,"labels":{"k":"v"},'
        b'"ownerReferences":[{"apiVersion":"batch/v1","kind":"Job","name":"j","uid":"1","blockOwnerDeletion":true}]}',
    )
    assert meta.resource_version == "7"
    assert meta.creation_timestamp == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert meta.deletion_timestamp is None
    assert meta.owner_references[0].block_owner_deletion
    assert b"managedFields" not in encode(meta)
    assert b'"creationTimestamp":"2026-01-02T03:04:05Z"' in encode(meta)
