from tarn_compactor.counts import Counts
from tarn_compactor.policy import BranchView
from tarn_proto.graveler.v1 import staging_event_service_pb2 as pb

KEY = ("lake", "main")


def token(name: str = "t1", rows: int = 0, tombstones: int = 0, **more: object) -> pb.StagedToken:
    return pb.StagedToken(
        repository_id="lake",
        branch_id="main",
        token_id=name,
        rows=rows,
        tombstones=tombstones,
        size_bytes=10 * rows,
        **more,  # type: ignore[arg-type]  # fields of the message
    )


class ToldCounts:
    def __init__(self) -> None:
        self.counts = Counts()
        self.now = 1000.0

    def told(self, *tokens: pb.StagedToken, replica: str = "a", run: bytes = b"1") -> None:
        answer = pb.WatchStagingResponse(tokens=tokens, start_id=run)
        self.counts.told(replica, answer, self.now)

    def view(self) -> BranchView:
        return self.counts.view(KEY, self.now)

    def measured(
        self,
        *token_ids: str,
        rows: int,
        tombstones: int = 0,
        age_ms: int = 0,
        is_truncated: bool = False,
    ) -> None:
        answer = pb.MeasureStagingResponse(
            token_ids=token_ids,
            rows=rows,
            tombstones=tombstones,
            age_ms=age_ms,
            is_truncated=is_truncated,
        )
        self.counts.end_measurement(KEY, answer, self.now)


def test_totals_of_a_replica_are_not_added_twice() -> None:
    lab = ToldCounts()
    lab.told(token(rows=5, tombstones=2))
    lab.told(token(rows=5, tombstones=2))
    lab.told(token(rows=7, tombstones=3))
    view = lab.view()
    assert (view.rows, view.tombstones, view.size_bytes) == (7, 3, 70)


def test_replicas_are_added_up() -> None:
    lab = ToldCounts()
    lab.told(token(rows=5), replica="a")
    lab.told(token(rows=3), replica="b")
    assert lab.view().rows == 8


def test_a_replica_that_started_again_counts_on() -> None:
    lab = ToldCounts()
    lab.told(token(rows=5), run=b"1")
    lab.told(token(rows=3), run=b"2")
    lab.told(token(rows=4), run=b"2")
    assert lab.view().rows == 9


def test_a_token_that_the_replica_had_forgotten_counts_on() -> None:
    lab = ToldCounts()
    lab.told(token(rows=5))
    lab.told(token(rows=3))
    assert lab.view().rows == 8


def test_a_commit_takes_its_tokens_and_leaves_newer_ones() -> None:
    lab = ToldCounts()
    lab.told(token("t1", rows=5), token("t2", rows=3))
    lab.told(token("t1", rows=5, is_sealed=True), replica="b")
    assert lab.view().sealed_tokens == 1
    lab.told(token("t1", is_removed=True, is_committed=True), replica="b")
    assert (lab.view().rows, lab.view().sealed_tokens) == (3, 0)


def test_rows_that_are_told_after_their_removal_do_not_count() -> None:
    lab = ToldCounts()
    lab.told(token("t1", is_removed=True), replica="b")
    lab.told(token("t1", rows=5), replica="a")
    assert lab.view().rows == 0


def test_commits_are_timed() -> None:
    lab = ToldCounts()
    for name in ("t1", "t2"):
        lab.told(token(name, is_removed=True, is_committed=True), token(name + "x", rows=1))
        lab.told(token(name + "x", is_removed=True, is_committed=True))  # the same commit
        lab.now += 20
    view = lab.view()
    assert (view.since_commit_s, view.commit_interval_s) == (20.0, 20.0)


def test_a_compaction_is_no_commit() -> None:
    lab = ToldCounts()
    lab.told(token("t1", rows=5))
    lab.told(token("t1", rows=5, is_removed=True))
    assert lab.view() == BranchView()


def test_a_measurement_replaces_what_was_told() -> None:
    lab = ToldCounts()
    lab.told(token(rows=500))
    lab.counts.begin_measurement(KEY)
    assert lab.view().rows == 500
    lab.measured("t1", rows=20, age_ms=5000)
    assert (lab.view().rows, lab.view().age_s) == (20, 5.0)


def test_a_measurement_that_ended_at_its_limit_makes_no_branch_smaller() -> None:
    """Else a branch with a million rows counts as one with 100,000 after a replica has started again."""
    lab = ToldCounts()
    lab.told(token(rows=900_000, tombstones=50_000))
    lab.counts.begin_measurement(KEY)
    lab.told(token(rows=900_001, tombstones=50_000))
    lab.measured("t1", rows=100_000, is_truncated=True)
    assert (lab.view().rows, lab.view().tombstones) == (900_001, 50_000)
    assert not lab.view().is_truncated
    lab.told(token("t1", is_removed=True))
    assert lab.view() == BranchView()


def test_a_measurement_that_ended_at_its_limit_counts_if_no_more_was_told() -> None:
    lab = ToldCounts()
    lab.told(token(rows=5))
    lab.counts.begin_measurement(KEY)
    lab.measured("t1", rows=100_000, is_truncated=True)
    assert lab.view().rows == 100_000
    assert lab.view().is_truncated
    lab.told(token(rows=6))
    lab.counts.begin_measurement(KEY)
    lab.measured("t1", rows=100_000, is_truncated=True)
    assert lab.view().rows == 100_001


def test_what_is_told_during_a_measurement_is_added() -> None:
    lab = ToldCounts()
    lab.told(token(rows=500))
    lab.counts.begin_measurement(KEY)
    lab.told(token(rows=503))
    lab.measured("t1", rows=20)
    assert lab.view().rows == 23


def test_a_failed_measurement_changes_nothing() -> None:
    lab = ToldCounts()
    lab.told(token(rows=500, tombstones=10))
    lab.counts.begin_measurement(KEY)
    lab.told(token(rows=503, tombstones=10))
    lab.counts.end_measurement(KEY, None, lab.now)
    assert (lab.view().rows, lab.view().tombstones) == (503, 10)


def test_a_commit_during_a_measurement_that_fails_takes_its_rows() -> None:
    lab = ToldCounts()
    lab.told(token("t1", rows=500))
    lab.counts.begin_measurement(KEY)
    lab.told(token("t1", rows=500, is_removed=True))
    lab.counts.end_measurement(KEY, None, lab.now)
    assert lab.view().rows == 0


def test_a_commit_ends_a_measurement_of_its_tokens() -> None:
    lab = ToldCounts()
    lab.counts.begin_measurement(KEY)
    lab.measured("t2", "t1", rows=20)
    assert (lab.view().rows, lab.view().sealed_tokens) == (20, 1)
    lab.told(token("t1", is_removed=True))
    lab.told(token("t2", is_removed=True))
    assert lab.view() == BranchView()


def test_a_measurement_of_which_a_part_was_removed_is_made_again() -> None:
    """A compaction removed the older token; how many of the rows are in the newer one is not known."""
    lab = ToldCounts()
    lab.counts.begin_measurement(KEY)
    lab.measured("t3", "t2", "t1", rows=20)
    lab.told(token("t1", is_removed=True))
    assert list(lab.counts.unmeasured) == [KEY]
    lab.counts.begin_measurement(KEY)
    lab.measured("t3", "t2", rows=15)
    assert lab.view().rows == 15


def test_a_measurement_that_a_commit_overtook_is_made_again() -> None:
    lab = ToldCounts()
    lab.counts.begin_measurement(KEY)
    lab.told(token("t1", is_removed=True))
    lab.measured("t2", "t1", rows=20)
    assert lab.view().rows == 0
    assert list(lab.counts.unmeasured) == [KEY]


def test_the_age_is_that_of_the_oldest_rows() -> None:
    lab = ToldCounts()
    lab.told(token("t1", rows=1))
    lab.now += 100
    lab.told(token("t2", rows=1))
    assert lab.view().age_s == 100.0
    lab.told(token("t1", is_removed=True))
    assert lab.view().age_s == 0.0


def test_listings_show_how_many_rows_they_read_for_one() -> None:
    lab = ToldCounts()
    lab.told(token(rows=1, listed_rows_read=100, listed_rows_returned=50))
    assert lab.view().amplification == 2.0
    lab.told(token(rows=1, listed_rows_read=200, listed_rows_returned=60))
    assert lab.view().amplification > 3.0
    assert (lab.counts.listed_rows_read, lab.counts.listed_rows_returned) == (200, 60)


def test_older_listings_weigh_less_but_change_no_ratio() -> None:
    lab = ToldCounts()
    for count in range(1, 30):
        read, returned = 1000 * count, 500 * count
        lab.told(token(rows=1, listed_rows_read=read, listed_rows_returned=returned))
        assert lab.view().amplification == 2.0
    lab.told(token(rows=1, listed_rows_read=32_000, listed_rows_returned=14_501))
    assert lab.view().amplification > 3.0


def test_the_age_begins_with_the_first_row_after_all_others_are_gone() -> None:
    lab = ToldCounts()
    lab.told(token("t1", rows=5))
    lab.now += 100
    assert lab.view().age_s == 100.0
    lab.told(token("t1", is_removed=True))
    lab.now += 100
    assert lab.view().age_s == 0.0
    lab.told(token("t2", rows=1))
    lab.now += 10
    assert lab.view().age_s == 10.0


def test_a_failed_measurement_loses_no_counts() -> None:
    lab = ToldCounts()
    lab.told(token(rows=5, tombstones=3))
    lab.counts.begin_measurement(KEY)
    lab.told(token(rows=9, tombstones=6, is_sealed=True))
    lab.counts.end_measurement(KEY, None, lab.now)
    view = lab.view()
    assert (view.rows, view.tombstones, view.size_bytes) == (9, 6, 90)
    assert view.sealed_tokens == 1


def test_empty_branches_are_forgotten() -> None:
    lab = ToldCounts()
    lab.told(token("t1", rows=1))
    lab.told(token("t1", is_removed=True))
    lab.counts.drop_empty(lab.now)
    assert len(lab.counts) == 0
    lab.told(token("t2", rows=1))
    lab.counts.drop_empty(lab.now)
    assert len(lab.counts) == 1


def test_branches_are_limited() -> None:
    """Those that changed least recently are forgotten."""
    lab = ToldCounts()
    import tarn_compactor.counts as module

    def tell(number: int, rows: int) -> None:
        each = token(f"t{number}", rows=rows)
        each.branch_id = f"b{number}"
        lab.told(each)

    for number in range(module.BRANCHES_MAX):
        tell(number, 1)
    tell(0, 2)
    for number in range(10):
        tell(module.BRANCHES_MAX + number, 1)
    assert len(lab.counts) == module.BRANCHES_MAX
    assert [lab.counts.view(("lake", f"b{n}"), lab.now).rows for n in (0, 1, 10, 11)] == [
        2,
        0,
        0,
        1,
    ]
