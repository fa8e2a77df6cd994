"""Free ports: different, free, and outside the range of outgoing connections."""

import random
import socket

import pytest

from devcluster import ports
from devcluster.ports import HIGHEST, LOWEST, free_ports, is_free


def test_ports_are_different_free_and_in_range() -> None:
    found = free_ports(20)
    assert len(set(found)) == 20
    assert all(LOWEST <= port <= HIGHEST for port in found)
    assert all(is_free(port) for port in found)


def test_a_listening_port_is_not_free() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        assert not is_free(server.getsockname()[1])


def test_a_taken_port_is_never_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    free = free_ports(1)[0]
    with socket.socket() as server:
        taken = next(port for port in range(LOWEST, HIGHEST) if port != free and is_free(port))
        server.bind(("127.0.0.1", taken))
        server.listen()
        monkeypatch.setattr(random, "sample", lambda population, k: [taken, free])
        assert free_ports(1) == [free]


def test_too_few_free_ports_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "is_free", lambda port: False)
    with pytest.raises(OSError, match="found only 0 of 3"):
        free_ports(3)
