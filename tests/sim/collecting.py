"""The times of a run with garbage collections, scaled so that many fit into half a minute (docs/design/collection.md).

All relations between the times of production hold here, too. So pauses of a few seconds are longer than each of
them, as a pause of a day is in production.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from tarn.core.collection import CollectionLimits

__all__ = ["Collecting", "draw_collecting"]

_SENDING_SECONDS = 0.4
_AHEAD_SECONDS = 0.02


@dataclass(frozen=True)
class Collecting:
    """The parameters of the collections of a run.

    Attributes:
        collectors: number of collector processes, each of which collects every repository.
        staging_seconds: age at which an address may not be staged any more.
        cutoff_seconds: age at which a block is judged.
        grace_seconds: time between a mark and its sweep.
        lease_seconds: time for which a run that died keeps others away.
        valid_seconds: age at which the block store refuses a deletion; 15 minutes in S3.
        batch_seconds: time for which a batch that was never ended stays open.
        crash_seconds: mean time between crashes of a collector; 0: none.
        late_rate: share of the deletions whose answer is lost, and which are applied late.
        refused_commit_rate: share of the commits whose row is refused, after their ranges were written.
        slow_seconds: longest delay of a request of a collector to the block store.
        pause_rate: of a collector; see `FaultProfile`.
        page_rows: rows of a page of roots.
        batch_blocks: blocks that are deleted together.
        skew_seconds: difference of two clocks, twice the greatest error of one.
    """

    collectors: int
    staging_seconds: float
    cutoff_seconds: float
    grace_seconds: float
    lease_seconds: float
    valid_seconds: float
    batch_seconds: float
    crash_seconds: float
    late_rate: float
    refused_commit_rate: float
    slow_seconds: float
    pause_rate: float
    page_rows: int
    batch_blocks: int
    skew_seconds: float

    @property
    def sending_seconds(self) -> float:
        """How long after the begin of a batch its deletions may be sent."""
        return _SENDING_SECONDS

    @property
    def reading_seconds(self) -> float:
        """How long a reader certainly finds the block of an entry that it has looked up."""
        return self.grace_seconds - self.skew_seconds

    @property
    def limits(self) -> CollectionLimits:
        """The limits of graveler's collections."""
        return CollectionLimits(
            staging_us=_us(self.staging_seconds),
            cutoff_us=_us(self.cutoff_seconds),
            grace_us=_us(self.grace_seconds),
            lease_us=_us(self.lease_seconds),
            batch_us=_us(self.batch_seconds),
            ahead_us=_us(self.skew_seconds + _AHEAD_SECONDS),
        )


def draw_collecting(
    seed: int, skew_seconds: float, drop_delay_seconds: float, *, is_brisk: bool, is_steady: bool
) -> Collecting:
    """Draws the collections of a seed, apart from everything else of its plan.

    Args:
        seed: the seed.
        skew_seconds: the greatest error of a clock.
        drop_delay_seconds: of the plan.
        is_brisk: whether the times are so short that many collections come to an end.
        is_steady: whether few objects change, and most builds fail half-way (`narrow.collections`).
    """
    rng = random.Random(f"collection {seed}")
    skew = 2 * skew_seconds
    staging = rng.choice([0.4, 0.8] if is_brisk else [1.0, 2.0])
    valid = rng.choice([0.2, 0.6])
    return Collecting(
        collectors=rng.choice([1, 2, 2]),
        staging_seconds=staging,
        cutoff_seconds=staging + 2 * skew + rng.choice([0.05, 0.3]),
        grace_seconds=skew + drop_delay_seconds + rng.choice([0.05, 0.3]),
        lease_seconds=rng.choice([0.6, 1.2]),
        valid_seconds=valid,
        batch_seconds=valid + _SENDING_SECONDS + 2 * skew + 0.05,
        crash_seconds=rng.choice([0.0, 2.0, 6.0]),
        late_rate=rng.choice([0.0, 0.1, 0.4]),
        refused_commit_rate=0.8 if is_steady else rng.choice([0.0, 0.5]),
        slow_seconds=rng.choice([0.1, 0.25]) if is_steady else 0.0,
        pause_rate=rng.choice([0.0, 0.003, 0.01]),
        page_rows=rng.choice([1, 2, 1000]),
        batch_blocks=rng.choice([1, 3, 1000]),
        skew_seconds=skew,
    )


def _us(seconds: float) -> int:
    return int(seconds * 1_000_000)
