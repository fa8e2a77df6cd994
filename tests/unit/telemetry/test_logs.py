"""Logs are one JSON object a line."""

from __future__ import annotations

import json
import logging
import sys

import pytest

from shared.telemetry import logs


def line(record: logging.LogRecord) -> dict[str, object]:
    text = logs.JsonFormatter("scheduler").format(record)
    assert "\n" not in text
    found: dict[str, object] = json.loads(text)
    return found


def test_fields_and_extras() -> None:
    record = logging.makeLogRecord(
        {"name": "a.b", "levelname": "INFO", "msg": "x %d", "args": (1,), "created": 0.5, "key": {"k": 2}}
    )
    assert line(record) == {
        "time": "1970-01-01T00:00:00.500+00:00",
        "level": "INFO",
        "service": "scheduler",
        "logger": "a.b",
        "message": "x 1",
        "key": {"k": 2},
    }


def test_an_exception_stays_on_the_line() -> None:
    try:
        raise ValueError("inner")
    except ValueError:
        record = logging.makeLogRecord({"msg": "failed", "exc_info": sys.exc_info()})
    assert "ValueError: inner" in str(line(record)["exception"])


def test_setup_sends_everything_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    root = logging.getLogger()
    before = root.handlers[:], root.level
    try:
        logs.setup("webhook", "warning")
        logging.getLogger("sluice.x").info("quiet")
        logging.getLogger("sluice.x").warning("loud", extra={"n": 1})
        written = json.loads(capsys.readouterr().err)
        assert (written["message"], written["n"], written["service"]) == ("loud", 1, "webhook")
        with pytest.raises(ValueError, match="NOPE"):
            logs.setup("webhook", "nope")
    finally:
        root.handlers[:], level = before
        root.setLevel(level)
