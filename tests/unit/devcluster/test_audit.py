"""Counting writes from an audit log: by user, verb and resource; errors and half-written lines apart."""

from pathlib import Path

import yaml

from devcluster.audit import POLICY, Write, count_writes, read_events

CREATE = (
    '{"kind":"Event","verb":"create","user":{"username":"alice","groups":["dev"]},"objectRef":'
    '{"resource":"jobs","namespace":"ns","name":"a"},"responseStatus":{"metadata":{},"code":201},'
    '"requestReceivedTimestamp":"2026-01-02T03:04:05.000006Z"}\n'
)
STATUS = (
    '{"verb":"patch","user":{"username":"watcher"},"objectRef":{"resource":"workloads","subresource":"status"},'
    '"responseStatus":{"code":200}}\n'
)
CONFLICT = (
    '{"verb":"patch","user":{"username":"watcher"},"objectRef":{"resource":"workloads","subresource":"status"},'
    '"responseStatus":{"code":409}}\n'
)


def test_writes_are_counted_by_who_and_what(tmp_path: Path) -> None:
    log = tmp_path / "audit.log"
    log.write_text(CREATE + STATUS + CREATE)
    assert count_writes(log) == {
        Write("alice", "create", "jobs"): 2,
        Write("watcher", "patch", "workloads/status"): 1,
    }


def test_failed_requests_count_only_when_asked_for(tmp_path: Path) -> None:
    log = tmp_path / "audit.log"
    log.write_text(STATUS + CONFLICT)
    write = Write("watcher", "patch", "workloads/status")
    assert count_writes(log)[write] == 1
    assert count_writes(log, failed=True)[write] == 2


def test_a_line_still_being_written_is_left_for_later(tmp_path: Path) -> None:
    log = tmp_path / "audit.log"
    log.write_text(CREATE + STATUS[:20])
    assert [event.verb for event in read_events(log)] == ["create"]


def test_no_log_yet_is_no_event(tmp_path: Path) -> None:
    assert count_writes(tmp_path / "missing") == {}


def test_events_keep_what_a_test_may_ask_for(tmp_path: Path) -> None:
    log = tmp_path / "audit.log"
    log.write_text(CREATE)
    (event,) = read_events(log)
    assert (event.object_ref.namespace, event.object_ref.name) == ("ns", "a")
    assert event.request_received_timestamp == "2026-01-02T03:04:05.000006Z"


def test_default_policy_logs_every_write_and_nothing_else() -> None:
    policy = yaml.safe_load(POLICY)
    first, last = policy["rules"]
    assert first == {"level": "Metadata", "verbs": ["create", "update", "patch", "delete", "deletecollection"]}
    assert last == {"level": "None"}
