"""Guards of expiry (docs/design/retention.md), and plausible code without each.

Their seeds are played with retention rules and garbage collections (`python -m tests.sim --expire`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tests.support.faults.guards import Guard, Weakening
from tests.support.faults.modes import Mode

import tarn.core.expiry_plan
from tarn.core.expiry_plan import History
from tarn.core.ids import CommitId
from tarn.kv.keys import RepositoryKeys
from tarn.kv.records import Repository
from tarn_graveler.collection.roots import Roots, RootsPage
from tarn_graveler.records.expired import ExpiredCommits

__all__ = ["RARE_EXPIRY_GUARDS"]


async def _never_refuse(
    self: ExpiredCommits, repository: Repository, commit_ids: Iterable[CommitId]
) -> None:
    """Brings an expired commit back."""


async def _nothing(
    self: Roots, keys: RepositoryKeys, commit_ids: Sequence[CommitId], page: RootsPage
) -> None:
    """Leaves it to the rows of the commits which of them keep their objects."""


def _all_commits(history: History) -> Iterator[CommitId]:
    """Takes a commit that no branch has, yet, for one that a branch had."""
    yield from sorted(history.commits)


def _of(name: str, without: str, *weakenings: Weakening) -> Guard:
    return Guard(name, "14", "I9 I7", without, weakenings, runs=200, mode=Mode.EXPIRE)


RARE_EXPIRY_GUARDS: Sequence[Guard] = (
    _of(
        "look-for-expiry",
        "an operation takes entries of a commit that has expired",
        Weakening(ExpiredCommits, "refuse", _never_refuse),
    ),
    _of(
        "refs-are-roots",
        "a commit with an expired row loses its objects although a ref names it",
        Weakening(Roots, "_old_commits", _nothing),
    ),
    _of(
        "only-published-expire",
        "a commit expires whose operation has not moved its branch yet",
        Weakening(tarn.core.expiry_plan, "_published", _all_commits),
    ),
)
"""Guards for which no seed is recorded; `tests.sim.rare_guards` names the tests that detect their absence."""
