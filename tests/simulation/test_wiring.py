"""Services of one simulated process share what was decoded: nobody may change it unnoticed."""

from __future__ import annotations

import pytest

from shared.events import objects
from shared.events.codec import MalformedMessage
from shared.events.objects import LocalQueue
from tests.simulation.wiring import Remembered

SENT = objects.codec.encode(LocalQueue(namespace="a", name="lq", uid="u", version=1, cluster_queue="cq"))


def test_a_message_is_decoded_once() -> None:
    decode = Remembered(objects.codec.decode)
    assert decode(SENT) is decode(bytes(bytearray(SENT)))
    assert decode(SENT) == objects.codec.decode(SENT)
    assert not list(decode.changed())


def test_who_changes_what_others_read_is_found_out() -> None:
    decode = Remembered(objects.codec.decode)
    decode(SENT).labels["changed"] = "by a reader"
    assert [message.name for message in decode.changed()] == ["lq"]


def test_what_cannot_be_read_is_not_remembered() -> None:
    decode = Remembered(objects.codec.decode)
    for _ in range(2):
        with pytest.raises(MalformedMessage):
            decode(b"nonsense")
