"""Requests and bytes are counted by repository and user, and no client can take all series."""

from __future__ import annotations

from tarn.telemetry.meters import Meters
from tarn_gateway.tenants import NAMES_MAX, THROTTLED, Tenants


def requests(meters: Meters) -> dict[tuple[str, ...], float]:
    found = {tuple(each.values()): n for each, n in meters.samples("repository.requests")}
    return {labels: count for labels, count in found.items() if count}


def test_requests_and_bytes_are_counted_by_name() -> None:
    meters = Meters()
    tenants = Tenants(meters, "repository")
    for status in (200, 206, 404, 503, 0, THROTTLED):
        tenants.count("lake", status, 1, 3, 5)
    tenants.count("", 403, 1, 3, 5)
    assert requests(meters) == {
        ("lake", "ok"): 2,
        ("lake", "refused"): 1,
        ("lake", "failed"): 2,
        ("lake", "throttled"): 1,
    }
    assert {tuple(each.values()): n for each, n in meters.samples("repository.moved")} == {
        ("lake", "received"): 18,
        ("lake", "sent"): 30,
    }


def test_names_that_never_succeeded_share_one_series() -> None:
    meters = Meters()
    tenants = Tenants(meters, "repository")
    for number in range(1000):
        tenants.count(f"none-{number}", 404, 1, 0, 0)
    tenants.count("lake", 200, 1, 0, 0)
    assert requests(meters) == {("other", "refused"): 1000, ("lake", "ok"): 1}


def test_names_beyond_the_bound_share_one_series() -> None:
    meters = Meters()
    tenants = Tenants(meters, "repository")
    for number in range(NAMES_MAX + 50):
        tenants.count(f"lake-{number}", 200, 1, 0, 0)
    tenants.count("lake-0", 200, 4, 0, 0)
    found = requests(meters)
    assert len(found) == NAMES_MAX + 1
    assert (found["other", "ok"], found["lake-0", "ok"]) == (50, 5)
