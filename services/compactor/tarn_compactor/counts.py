"""The counts of the staging tokens of all branches: sums of the replicas' reports, and measurements.

The replicas tell totals per token since their start. A total that is smaller than the last one is that of a new run of
the replica, or of a token that the replica had forgotten: all of it counts. Commits, merges, resets and compactions
name the tokens that they removed; the counts of these are dropped. Replicas tell out of order, so removed tokens are
remembered for a while.

The sums are estimates: a path that is overwritten counts again. A measurement replaces the sums of a branch. The
reports of replicas while it runs are added to it. So the order of two answers never makes a branch look smaller than it
is.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf

from tarn.aio.bounded_map import BoundedMap
from tarn_compactor.policy import BranchView
from tarn_proto.graveler.v1 import staging_event_service_pb2 as pb

__all__ = ["BRANCHES_MAX", "BranchKey", "Counts"]

BranchKey = tuple[str, str]
"""Repository and branch."""

BRANCHES_MAX = 20_000
"""Branches that are remembered; those that changed least recently are forgotten first."""
_TOTALS_MAX = 50_000
_REMOVED_MAX = 50_000
_ONE_COMMIT_SECONDS = 0.5
_COMMITS_SECONDS = 600.0
_AMPLIFICATION_ROWS = 2000
"""Listed rows after which older listings weigh half."""

_Totals = tuple[int, int, int, int, int]
"""Rows, tombstones, bytes, rows read and rows returned."""

_NONE: _Totals = (0, 0, 0, 0, 0)


@dataclass(slots=True)
class _Token:
    rows: int = 0
    tombstones: int = 0
    size_bytes: int = 0
    is_sealed: bool = False


@dataclass(slots=True)
class _Branch:
    """Counts of a branch.

    Attributes:
        tokens: the reports of the replicas since the last measurement, by token.
        measured: the last measurement; None if it is outdated.
        measured_tokens: the tokens that it covers.
        measured_at: when it ended, on the monotonic clock.
        measured_from: tokens with the reports from before the running measurement; None if none runs.
        since: when the oldest row was noticed, on the monotonic clock; None without rows.
        commits: times of the last two commits.
        rows_read: of listings, lately; `rows_returned` likewise.
    """

    tokens: dict[str, _Token] = field(default_factory=dict)
    measured: pb.MeasureStagingResponse | None = None
    measured_tokens: set[str] = field(default_factory=set)
    measured_at: float = -inf
    measured_from: dict[str, _Token] | None = None
    since: float | None = None
    commits: tuple[float, float] = (-inf, -inf)
    rows_read: float = 0.0
    rows_returned: float = 0.0


def _add_tokens(sums: dict[str, _Token], more: dict[str, _Token]) -> None:
    for token_id, token in more.items():
        kept = sums.setdefault(token_id, _Token())
        kept.rows += token.rows
        kept.tombstones += token.tombstones
        kept.size_bytes += token.size_bytes
        kept.is_sealed |= token.is_sealed


class Counts:
    """Counts of all branches that have uncommitted rows.

    Attributes:
        changed: branches whose counts changed since `take_changed`.
        unmeasured: branches that should be measured, because counts were lost.
        listed_rows_read: rows that listings of all branches read, as far as they were told.
        listed_rows_returned: items that they returned.
    """

    def __init__(self) -> None:
        self._branches: OrderedDict[BranchKey, _Branch] = OrderedDict()
        self._totals: BoundedMap[tuple[str, bytes, str], _Totals] = BoundedMap(_TOTALS_MAX)
        self._removed: BoundedMap[str, bool] = BoundedMap(_REMOVED_MAX)
        self.listed_rows_read = 0
        self.listed_rows_returned = 0
        self.changed: dict[BranchKey, None] = {}
        self.unmeasured: dict[BranchKey, None] = {}

    def __len__(self) -> int:
        return len(self._branches)

    def known(self) -> list[BranchKey]:
        """Returns the branches."""
        return list(self._branches)

    def take_changed(self) -> list[BranchKey]:
        """Returns the branches that changed since the last call."""
        changed = list(self.changed)
        self.changed.clear()
        return changed

    def told(self, replica: str, answer: pb.WatchStagingResponse, now: float) -> None:
        """Adds the answer of a replica; `now` is the monotonic time."""
        for each in answer.tokens:
            place = (replica, answer.start_id, each.token_id)
            totals = (
                each.rows,
                each.tombstones,
                each.size_bytes,
                each.listed_rows_read,
                each.listed_rows_returned,
            )
            last = self._totals.get(place) or _NONE
            if any(new < old for new, old in zip(totals, last, strict=True)):
                last = _NONE
            self._totals.put(place, totals)
            more = tuple(new - old for new, old in zip(totals, last, strict=True))
            self.listed_rows_read += more[3]
            self.listed_rows_returned += more[4]
            self._add(each, more, now)

    def _add(self, each: pb.StagedToken, more: tuple[int, ...], now: float) -> None:
        key = (each.repository_id, each.branch_id)
        if self._removed.get(each.token_id):
            return
        branch = self._branches.get(key)
        if each.is_removed:
            self._removed.put(each.token_id, True)
            if branch is not None:
                self._remove(key, branch, each, now)
            elif each.is_committed:
                self._committed(self._of(key), now)
            return
        if branch is None:
            branch = self._of(key)
        self._branches.move_to_end(key)
        token = branch.tokens.setdefault(each.token_id, _Token())
        rows, tombstones, size_bytes, read, returned = more
        token.rows += rows
        token.tombstones += tombstones
        token.size_bytes += size_bytes
        token.is_sealed |= each.is_sealed
        branch.rows_read += read
        branch.rows_returned += returned
        if branch.rows_read > _AMPLIFICATION_ROWS:
            branch.rows_read /= 2
            branch.rows_returned /= 2
        if branch.since is None and token.rows:
            branch.since = now
        self.changed[key] = None

    def _of(self, key: BranchKey) -> _Branch:
        branch = self._branches.get(key)
        if branch is None:
            if len(self._branches) >= BRANCHES_MAX:
                self.forget(next(iter(self._branches)))
            branch = self._branches[key] = _Branch()
        return branch

    def _remove(self, key: BranchKey, branch: _Branch, each: pb.StagedToken, now: float) -> None:
        branch.tokens.pop(each.token_id, None)
        if branch.measured_from is not None:
            branch.measured_from.pop(each.token_id, None)
        if each.token_id in branch.measured_tokens:
            branch.measured_tokens.discard(each.token_id)
            branch.measured = None  # the rows of this token were not counted by themselves
            if branch.measured_tokens:
                self.measure([key])  # rows of these tokens may be left
        if each.is_committed:
            self._committed(branch, now)
        branch.rows_read = branch.rows_returned = 0.0
        view = self.view(key, now)
        if not view.rows and branch.measured_from is None:
            branch.since = None
        elif branch.since is not None:
            branch.since = now  # the oldest rows are gone
        self.changed[key] = None

    @staticmethod
    def _committed(branch: _Branch, now: float) -> None:
        # A commit removes several tokens; each is told.
        if now - branch.commits[1] > _ONE_COMMIT_SECONDS:
            branch.commits = (branch.commits[1], now)

    def begin_measurement(self, key: BranchKey) -> None:
        """Called before a branch is measured; reports from now on are added to the measurement."""
        branch = self._of(key)
        self.unmeasured.pop(key, None)
        branch.measured_from = branch.tokens
        branch.tokens = {}

    def end_measurement(
        self, key: BranchKey, measured: pb.MeasureStagingResponse | None, now: float
    ) -> None:
        """Replaces the sums of a branch by a measurement.

        The sums stay if it failed (None), and if it ended at its limit, and the sums are greater.
        """
        branch = self._branches.get(key)
        if branch is None:
            return
        before, branch.measured_from = branch.measured_from or {}, None
        known = sum(token.rows for token in before.values())
        known += branch.measured.rows if branch.measured is not None else 0
        if measured is None or (measured.is_truncated and known > measured.rows):
            _add_tokens(before, branch.tokens)
            branch.tokens = before
            return
        branch.measured_at = now
        gone = [each for each in measured.token_ids if self._removed.get(each)]
        is_clean = not measured.rows and len(measured.token_ids) == 1
        branch.measured = None if gone or is_clean else measured
        branch.measured_tokens = set() if branch.measured is None else set(measured.token_ids)
        if gone:
            self.measure([key])  # a commit came in between
        branch.since = now - measured.age_ms / 1000 if measured.rows else None
        self.changed[key] = None

    def is_measured(self, key: BranchKey, since: float) -> bool:
        """Returns whether a measurement that ended after `since` is still that of the branch."""
        branch = self._branches.get(key)
        return branch is not None and branch.measured is not None and branch.measured_at > since

    def forget(self, key: BranchKey) -> None:
        """Forgets a branch: it was deleted."""
        self._branches.pop(key, None)
        self.changed.pop(key, None)
        self.unmeasured.pop(key, None)

    def measure(self, keys: Iterable[BranchKey]) -> None:
        """Asks for measurements of branches."""
        self.unmeasured.update(dict.fromkeys(keys))

    def measure_last(self, key: BranchKey) -> None:
        """Asks for a measurement of a branch after those of all others."""
        self.unmeasured.pop(key, None)
        self.unmeasured[key] = None

    def view(self, key: BranchKey, now: float) -> BranchView:
        """Returns the counts of a branch."""
        branch = self._branches.get(key)
        if branch is None:
            return BranchView()
        measured, parts = branch.measured, [branch.tokens, branch.measured_from or {}]
        tokens = [token for part in parts for token in part.values()]
        sealed = {each for part in parts for each, token in part.items() if token.is_sealed}
        if measured is not None:
            # All but the first, the staging token.
            sealed |= set(measured.token_ids[1:]) & branch.measured_tokens
        previous, last = branch.commits
        return BranchView(
            rows=sum(each.rows for each in tokens) + (measured.rows if measured else 0),
            tombstones=sum(each.tombstones for each in tokens)
            + (measured.tombstones if measured else 0),
            size_bytes=sum(each.size_bytes for each in tokens)
            + (measured.size_bytes if measured else 0),
            sealed_tokens=len(sealed),
            age_s=0.0 if branch.since is None else now - branch.since,
            listed_rows_read=branch.rows_read,
            listed_rows_returned=branch.rows_returned,
            since_commit_s=now - last,
            commit_interval_s=last - previous if previous > -inf else inf,
            is_truncated=measured is not None and measured.is_truncated,
        )

    def drop_empty(self, now: float) -> None:
        """Forgets branches without rows, except those that were committed lately."""
        for key, branch in list(self._branches.items()):
            is_empty = not branch.tokens and branch.measured is None
            is_quiet = now - branch.commits[1] > _COMMITS_SECONDS
            if is_empty and is_quiet and branch.measured_from is None:
                self._branches.pop(key)
