"""The API server's own counter of requests."""

from __future__ import annotations

from loadtest.api_requests import RequestCount, Requests, difference, read_requests

METRICS = b"""# HELP apiserver_request_total Counter
# TYPE apiserver_request_total counter
apiserver_request_total{code="200",component="apiserver",group="kueue.x-k8s.io",resource="workloads",subresource="status",verb="PATCH"} 12
apiserver_request_total{code="409",component="apiserver",group="kueue.x-k8s.io",resource="workloads",subresource="status",verb="PATCH"} 3
apiserver_request_total{code="201",resource="events",subresource="",verb="POST"} 1.5e+03
apiserver_request_total_other{verb="GET"} 4
apiserver_current_inflight_requests{request_kind="mutating"} 4
"""


def test_codes_are_added_up_and_other_series_left_out() -> None:
    assert read_requests(METRICS) == {("PATCH", "workloads/status"): 15, ("POST", "events"): 1500}


def test_text_without_the_counter_has_no_requests() -> None:
    assert read_requests(b"") == {}


def test_what_was_added_comes_most_first() -> None:
    before = Requests({("GET", "a"): 5, ("PATCH", "b"): 1})
    after = Requests({("GET", "a"): 6, ("PATCH", "b"): 11, ("LIST", "c"): 2, ("WATCH", "d"): 0})
    assert difference(before, after) == (
        RequestCount("PATCH", "b", 10),
        RequestCount("LIST", "c", 2),
        RequestCount("GET", "a", 1),
    )


def test_the_counter_of_a_new_process_begins_at_nothing() -> None:
    assert difference(Requests({("GET", "a"): 50}), Requests({("GET", "a"): 3})) == (RequestCount("GET", "a", 3),)
