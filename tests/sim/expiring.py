"""Retention rules of a run: commits expire while clients work, and go back to them (docs/design/retention.md).

A day is a fraction of a second. The rules are those of the repository with merges; its reflogs end early, because what
they name does not expire.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tarn.core.ids import RepositoryId
from tarn.core.retention import parse_retention

if TYPE_CHECKING:
    from tests.sim.world import Replica

__all__ = ["Expiring", "draw_expiring", "set_rules"]


@dataclass(frozen=True)
class Expiring:
    """The retention rules of a run.

    Attributes:
        keep_commits: newest commits that each branch keeps.
        keep_days: days for which it keeps the others; None: none because of their age.
        detached_days: days for which commits of no branch are kept; None: for ever.
        day_seconds: length of a day.
        reflog_seconds: how long reflogs keep entries.
        read_cache_seconds: how long a replica may still read a commit that has expired.
    """

    keep_commits: int
    keep_days: int | None
    detached_days: int | None
    day_seconds: float
    reflog_seconds: float
    read_cache_seconds: float

    @property
    def rules(self) -> str:
        """The rules as JSON."""
        branch: dict[str, object] = {"match": "**", "keep_commits": self.keep_commits}
        if self.keep_days is not None:
            branch["keep_days"] = self.keep_days
        rules: dict[str, object] = {"branches": [branch]}
        if self.detached_days is not None:
            rules["detached"] = {"keep_days": self.detached_days}
        return json.dumps(rules)


def draw_expiring(seed: int) -> Expiring:
    """Draws the rules of a seed, apart from everything else of its plan."""
    rng = random.Random(f"expiry {seed}")
    return Expiring(
        keep_commits=rng.choice([1, 1, 2]),
        keep_days=rng.choice([None, None, 1]),
        detached_days=rng.choice([None, 1, 1]),
        day_seconds=rng.choice([0.2, 0.6]),
        reflog_seconds=rng.choice([0.1, 0.4]),
        read_cache_seconds=rng.choice([0.0, 0.05]),
    )


async def set_rules(replica: Replica, repository_id: str, expiring: Expiring) -> None:
    """Sets the rules of a repository."""
    graveler = replica.graveler
    repository = await graveler.repositories.get(RepositoryId(repository_id))
    rules = parse_retention(expiring.rules)
    await graveler.settings.change(repository, "", lambda now: replace(now, retention=rules))
