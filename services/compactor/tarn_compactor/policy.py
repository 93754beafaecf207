"""Decides which branches are worth a compaction, and when. Pure functions: no time, no input or output."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

__all__ = ["BranchView", "History", "Thresholds", "excess", "pause_after_failures", "wait"]

_FAILURE_PAUSE_FIRST_S = 5.0
_FAILURE_PAUSE_MOST_S = 600.0
_REST_FACTOR = 5.0
"""A branch rests five times as long as its last compaction took, so compactions take a sixth of the time at most."""
_AMPLIFICATION = 2.0
"""Listings that read this many rows for each one that they return are slowed down by the rows that they skip."""


@dataclass(frozen=True, slots=True)
class Thresholds:
    """When a branch is due.

    Attributes:
        tombstones: tombstones from which a branch is due, if they also have the share.
        tombstone_share: their least share of the rows, 0 to 1.
        rows: rows from which a branch is due.
        size_bytes: bytes of rows from which it is due.
        sealed_tokens: sealed tokens from which it is due.
        age_s: a branch whose oldest row is older is due at a tenth of the other thresholds (not of sealed tokens), and
            if it has more rows than a measurement counts.
        interval_s: the shortest time between two compactions of a branch.
        commit_interval_s: a branch with two commits that are not farther apart is left alone until it stays without
            a commit for twice this time.
    """

    tombstones: int = 5_000
    tombstone_share: float = 0.1
    rows: int = 1_000_000
    size_bytes: int = 512 << 20
    sealed_tokens: int = 6
    age_s: float = 3600.0
    interval_s: float = 10.0
    commit_interval_s: float = 30.0


@dataclass(frozen=True, slots=True)
class BranchView:
    """The counts of a branch.

    Attributes:
        rows: rows of all tokens, tombstones included; overwritten paths may count repeatedly.
        age_s: time since the oldest row was noticed or written.
        listed_rows_read: rows that listings read since the last commit or compaction; older ones weigh less.
        listed_rows_returned: rows that they returned, likewise; 0: none is known.
        since_commit_s: time since the last commit that was noticed.
        commit_interval_s: time between the last two commits that were noticed.
        is_truncated: the numbers of rows, tombstones and bytes are lower bounds: the branch has more rows than a
            measurement counts.
    """

    rows: int = 0
    tombstones: int = 0
    size_bytes: int = 0
    sealed_tokens: int = 0
    age_s: float = 0.0
    listed_rows_read: float = 0.0
    listed_rows_returned: float = 0.0
    since_commit_s: float = inf
    commit_interval_s: float = inf
    is_truncated: bool = False

    @property
    def amplification(self) -> float:
        """Rows that listings read for each row that they returned; 0 if unknown."""
        return self.listed_rows_read / max(self.listed_rows_returned, 1.0)


@dataclass(frozen=True, slots=True)
class History:
    """The last compactions of a branch.

    Attributes:
        since_end_s: time since the last attempt ended.
        last_seconds: how long it took.
        failures: attempts in a row that failed.
    """

    since_end_s: float = inf
    last_seconds: float = 0.0
    failures: int = 0


def excess(view: BranchView, limits: Thresholds) -> str:
    """Returns which threshold a branch exceeds, in words; empty if none."""
    part = 0.1 if view.age_s >= limits.age_s else 1.0
    old = f" for {view.age_s:.0f} s" if part < 1 else ""
    if view.tombstones and view.tombstones >= limits.tombstones * part:
        share = view.tombstones / max(view.rows, 1)
        if share >= limits.tombstone_share or view.amplification >= _AMPLIFICATION:
            return f"{view.tombstones} tombstones, {100 * min(share, 1):.0f} % of the rows{old}"
    if view.rows and view.rows >= limits.rows * part:
        return f"{view.rows} rows{old}"
    if view.size_bytes and view.size_bytes >= limits.size_bytes * part:
        return f"{view.size_bytes} bytes of rows{old}"
    if view.is_truncated and part < 1:
        return f"more than {view.rows} rows{old}"
    if view.sealed_tokens >= limits.sealed_tokens:
        return f"{view.sealed_tokens} sealed tokens"
    return ""


def wait(view: BranchView, history: History, limits: Thresholds) -> tuple[float, str]:
    """Returns how long a branch that is due is left alone, in seconds, and why; 0 if it may be compacted now."""
    waits = [
        (pause_after_failures(history.failures) - history.since_end_s, "failed"),
        (
            max(limits.interval_s, _REST_FACTOR * history.last_seconds) - history.since_end_s,
            "compacted just now",
        ),
    ]
    # Sealed tokens that pile up under commits show that the commits fail.
    is_stuck = view.sealed_tokens >= limits.sealed_tokens
    if view.commit_interval_s <= limits.commit_interval_s and not is_stuck:
        quiet_s = 2 * limits.commit_interval_s
        waits.append((quiet_s - view.since_commit_s, "committed all the time"))
    longest = max(waits)
    return longest if longest[0] > 0 else (0.0, "")


def pause_after_failures(failures: int) -> float:
    """Returns the pause after a number of failures in a row, in seconds: doubled each time up to ten minutes."""
    if failures <= 0:
        return 0.0
    return min(_FAILURE_PAUSE_MOST_S, _FAILURE_PAUSE_FIRST_S * 2.0 ** min(failures - 1, 20))
