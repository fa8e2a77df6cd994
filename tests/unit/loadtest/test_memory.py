"""Memory per workload, measured for real and in a process of its own."""

from __future__ import annotations

import pytest

from loadtest.memory import FIGURES, in_a_process_of_its_own


@pytest.mark.parametrize("figure", sorted(FIGURES))
def test_a_workload_takes_some_hundred_to_some_thousand_bytes(figure: str) -> None:
    assert 500 < in_a_process_of_its_own(figure) < 20_000


def test_an_unknown_figure_is_refused() -> None:
    with pytest.raises(KeyError):
        in_a_process_of_its_own("memory.of.nobody")
