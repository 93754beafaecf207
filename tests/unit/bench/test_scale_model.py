"""The arithmetic of the model of larger installations, on cases with a known answer."""

from dataclasses import replace
from math import exp, inf

import pytest
from bench.scale.measure import IDLE, own_requests
from bench.scale.model import (
    OPERATIONS,
    Installation,
    Sharing,
    Target,
    UnitCosts,
    limits,
    listing_s,
    sharing_of,
)
from bench.scale.queueing import batch_size, erlang_c, in_system, mean_wait_s


@pytest.mark.parametrize("load", [0.1, 0.5, 0.9])
def test_with_one_server_an_arrival_waits_as_often_as_the_server_is_busy(load: float) -> None:
    assert erlang_c(1, load) == pytest.approx(load)


def test_the_probability_of_waiting_with_two_servers_is_that_of_the_closed_form() -> None:
    # C(2, a) = a² / (2 + a)
    for load in (0.5, 1.0, 1.9):
        assert erlang_c(2, load) == pytest.approx(load**2 / (2 + load))


def test_many_servers_do_not_overflow() -> None:
    assert 0 < erlang_c(1000, 990) < 1


def test_an_overloaded_queue_has_no_mean_wait() -> None:
    assert erlang_c(3, 3) == 1
    assert mean_wait_s(3, 300, 0.01) == inf


def test_the_wait_of_one_server_is_that_of_pollaczek_and_khinchine() -> None:
    arrivals, service_s = 50.0, 0.01
    busy = arrivals * service_s
    exponential = busy / (1 / service_s - arrivals)
    assert mean_wait_s(1, arrivals, service_s) == pytest.approx(exponential)
    assert mean_wait_s(1, arrivals, service_s, variation=0) == pytest.approx(exponential / 2)


def test_one_common_queue_waits_less_than_two_of_half_the_load() -> None:
    assert mean_wait_s(2, 100, 0.01) < mean_wait_s(1, 50, 0.01)


def test_in_one_queue_of_one_server_the_number_in_the_system_is_that_of_the_closed_form() -> None:
    arrivals, service_s, busy = 80.0, 0.01, 0.8
    time_s = mean_wait_s(1, arrivals, service_s) + service_s
    assert in_system(arrivals, time_s) == pytest.approx(busy / (1 - busy))


def test_a_batch_is_as_large_as_what_came_during_the_round_before() -> None:
    size = batch_size(1000, 0.004, 0.0005)
    assert size == pytest.approx(1000 * (0.004 + size * 0.0005))
    assert batch_size(1, 0.001, 0.001) == 1
    assert batch_size(1000, 0.001, 0.001) == inf


def test_between_two_measurements_the_requests_follow_the_logarithm() -> None:
    curve = Sharing([4, 16], [3.0, 1.0])
    assert [curve.at(each) for each in (1, 4, 8, 16, 99)] == [3, 3, pytest.approx(2), 1, 1]


def test_a_curve_is_the_mean_of_the_rows_with_as_many_connections() -> None:
    scans = {"scan": 0.25}  # of an idle installation, which takes four requests for each scan
    common = {"operation": "PUT", "processes": 1, "kv_calls": scans}
    rows = [
        {**common, "hot": True, "connections_per_gateway": at, "cql_requests": cost}
        for at, cost in ((32, 2.0), (4, 9.0), (32, 3.0))  # at most 3 are its own
    ]
    other = {**common, "hot": False, "connections_per_gateway": 1, "cql_requests": 9.0}
    rows.append({**common, "operation": IDLE, "cql_requests": 4.0, "kv_calls": {"scan": 1.0}})
    assert sharing_of([*rows, other], "PUT", hot=True) == Sharing([4, 32], [3.0, 1.5])


def _without_sharing() -> tuple[Installation, Target, UnitCosts]:
    """A model in which every operation costs the same, whatever is in flight."""
    flat = Sharing([1], [1.0])
    same = dict.fromkeys(OPERATIONS, 400.0)
    target, costs = (
        Target(headroom=0.5, distinct=0.0),
        UnitCosts(gateway=same, graveler=same, cql=100.0),
    )
    curves = {(operation, hot): flat for operation in OPERATIONS for hot in (False, True)}
    return Installation(target, costs, curves), target, costs


def test_without_sharing_a_replica_takes_the_headroom_of_one_core() -> None:
    model, _, _ = _without_sharing()
    assert model.graveler_s(7) == pytest.approx(500e-6)
    assert model.most(3) == pytest.approx(3 * 0.5 / 500e-6)


def test_the_operations_in_flight_are_those_of_one_queue_and_of_the_store() -> None:
    model, target, _ = _without_sharing()
    trips = target.shares["GET"] + 3 * target.shares["PUT"] + 2 * target.shares["LIST"]
    busy = 0.4
    assert model.in_flight(800, 1) == pytest.approx(busy / (1 - busy) + 800 * trips * 0.003)
    assert model.in_flight(2000, 1) == inf


def test_twice_the_processes_carry_twice_the_rate_until_another_resource_is_busy() -> None:
    model, target, costs = _without_sharing()
    rates = [
        {each.resource: each.requests for each in limits(model, target, costs, count, 3)}
        for count in (2, 4)
    ]
    assert rates[1]["gateways"] == pytest.approx(2 * rates[0]["gateways"])
    assert rates[1]["Cassandra's cores"] == pytest.approx(rates[0]["Cassandra's cores"])


def test_the_scan_of_a_list_is_its_own() -> None:
    idle = {"cql_requests": 6.0, "kv_calls": {"scan": 2.0}}
    row = {"operation": "LIST", "cql_requests": 8.0, "kv_calls": {"scan": 1.5}}
    assert own_requests(row, idle) == 8 - 0.5 * 3
    assert own_requests({**row, "kv_calls": {}}, idle) == 8


def test_a_record_is_read_again_if_no_request_for_its_branch_came_to_the_replica_for_two_seconds() -> (
    None
):
    # 10 requests/s for each of 1,000 branches that are not hot, of which each of 5 replicas gets 2.
    target = Target(requests=20_000, branches=1_000, hot_share=0.5, affinity=5)
    assert target.unread_share == pytest.approx(exp(-4))
    assert Target(affinity=0).unread_share == 1


def test_replicas_that_serve_a_part_of_the_branches_hold_its_listings() -> None:
    costs = UnitCosts()
    # 1,000 listings of 1,000 ranges: a replica of 10 with 2 for each branch holds all of its 200.
    target = Target(objects=2e9, repositories=100, branches=1_000)
    assert target.ranges == 1_000
    assert listing_s(target, costs, 10) == listing_s(target, costs, 1) > 0
    sent = replace(target, affinity=2)
    assert listing_s(sent, costs, 10) == 0
    assert listing_s(sent, costs, 5) == pytest.approx(listing_s(target, costs, 5) * 0.5 / 0.8)
    assert listing_s(sent, costs, 1) == listing_s(target, costs, 1)
