"""A compactor shows the repositories with most uncommitted rows, and no more than a bound of them."""

from __future__ import annotations

from tests.support.clock import ManualClock

from tarn.telemetry.meters import Meters
from tarn_compactor.counts import Counts
from tarn_compactor.metrics import REPOSITORIES_MAX, register_staging
from tarn_proto.graveler.v1 import staging_event_service_pb2 as pb


def told(counts: Counts, repository: str, branch: str, rows: int, *, sealed: bool = False) -> None:
    token = pb.StagedToken(
        repository_id=repository,
        branch_id=branch,
        token_id=f"{repository}/{branch}/{rows}",
        rows=rows,
        is_sealed=sealed,
    )
    counts.told("a", pb.WatchStagingResponse(tokens=[token], start_id=b"1"), 1.0)


def shown(meters: Meters, name: str) -> dict[str, float]:
    return {labels["repository"]: value for labels, value in meters.samples(name)}


def test_rows_are_summed_and_sealed_tokens_are_those_of_the_worst_branch() -> None:
    counts, meters, clock = Counts(), Meters(), ManualClock()
    register_staging(meters, counts, clock)
    told(counts, "lake", "main", 5)
    told(counts, "lake", "main", 7, sealed=True)
    told(counts, "lake", "side", 1, sealed=True)
    told(counts, "pond", "main", 2)
    assert shown(meters, "staging.rows") == {"lake": 13, "pond": 2}
    assert shown(meters, "staging.sealed_tokens") == {"lake": 1, "pond": 0}
    assert list(meters.samples("staging.branches")) == [({}, 3)]


def test_tombstones_and_listings_of_all_branches_of_a_repository_are_summed() -> None:
    counts, meters, clock = Counts(), Meters(), ManualClock()
    register_staging(meters, counts, clock)
    listings = (("lake", "main", 300, 100), ("lake", "side", 100, 100), ("pond", "main", 0, 0))
    for repository, branch, read, returned in listings:
        token = pb.StagedToken(
            repository_id=repository,
            branch_id=branch,
            token_id=f"{repository}/{branch}",
            rows=5,
            tombstones=2,
            listed_rows_read=read,
            listed_rows_returned=returned,
        )
        counts.told("a", pb.WatchStagingResponse(tokens=[token], start_id=b"1"), 1.0)
    assert shown(meters, "staging.tombstones") == {"lake": 4, "pond": 2}
    assert shown(meters, "staging.amplification") == {"lake": 2.0, "pond": 0.0}


def test_only_the_repositories_with_most_rows_are_shown() -> None:
    counts, meters, clock = Counts(), Meters(), ManualClock()
    register_staging(meters, counts, clock)
    for number in range(1, REPOSITORIES_MAX + 21):
        told(counts, f"r{number:03}", "main", number)
    found = shown(meters, "staging.rows")
    assert len(found) == REPOSITORIES_MAX
    assert min(found.values()) == 21
    assert meters.counter("telemetry.dropped_series", metric="staging.rows").value == 0


def test_the_sums_are_made_again_after_some_seconds() -> None:
    counts, meters, clock = Counts(), Meters(), ManualClock()
    register_staging(meters, counts, clock)
    assert shown(meters, "staging.rows") == {}
    told(counts, "lake", "main", 5)
    clock.advance(10)
    assert shown(meters, "staging.rows") == {"lake": 5}
