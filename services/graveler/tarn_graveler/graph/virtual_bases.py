"""The base of a merge: the listing of the merge base, or the fold of several merge bases.

Several merge bases are folded one after the other, greatest generation first: into the first one, the second is merged,
with the merge bases of both as base; into the result the third, with the merge bases of the first two and the third as
base; and so on. If a pair has several merge bases, these are folded first. `tarn.core.listing.virtual` evaluates
the fold, which is a list of listings and steps. It follows from the commits alone, so every replica gets the same one
for both orders of the two commits; nothing of it is stored.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from tarn.aio.lru_cache import LruCache
from tarn.block.merging import MergeBaseListing
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import CommitId, MetarangeId
from tarn.core.listing.virtual import FoldStep, VirtualBase
from tarn.kv.records import Repository
from tarn_graveler.graph.merge_base import ReadCommits, merge_bases
from tarn_graveler.graph.read_ahead import ReadAhead
from tarn_graveler.records.commits import Commits

__all__ = ["BASES_MAX", "LEVELS_MAX", "NESTED_MAX", "MergeBases", "fold_of"]

BASES_MAX = 32
"""Most merge bases of two commits. A merge reads the ranges in which they differ, of all of them."""
LEVELS_MAX = 4
"""Folds within folds. Beyond, the base of a pair is not known, so all paths in which the pair differs are undecided:
more conflicts, and never another content."""
NESTED_MAX = 32
"""Merges that all nested folds of one base may need together; beyond, as beyond `LEVELS_MAX`."""
_CACHED_MAX = 4096
"""Listings and steps of all remembered folds."""


class MergeBases:
    """Finds merge bases, and remembers folds."""

    def __init__(self, commits: Commits) -> None:
        self._commits = commits
        self._ahead = ReadAhead(commits)
        # Keyed by repository too: commits of another repository must not be found here.
        self._folds: LruCache[tuple[str, tuple[CommitId, ...]], VirtualBase] = LruCache(
            _CACHED_MAX, size_of=lambda fold: len(fold.listings) + len(fold.steps)
        )

    async def of(
        self, repository: Repository, left: CommitId, right: CommitId
    ) -> tuple[CommitId, ...]:
        """Returns the merge bases of two commits, greatest generation first; empty for unrelated histories.

        Raises:
            TarnError: TOO_MANY_MERGE_BASES; as `merge_bases`.
        """
        with self._ahead.search(repository) as read:
            found = await merge_bases(read, [left], [right], limit=BASES_MAX)
        if len(found) > BASES_MAX:
            raise _too_many(left, right)
        return found

    async def listing(
        self, repository: Repository, bases: tuple[CommitId, ...]
    ) -> MergeBaseListing:
        """Returns the base of a merge from the merge bases of its sides, as `of` returns them."""
        if not bases:
            return None
        if len(bases) == 1:
            return (await self._commits.get(repository, bases[0])).metarange_id
        key = (repository.instance_uid, bases)
        fold = self._folds.get(key)
        if fold is None:
            fold = await fold_of(partial(self._commits.get_many, repository), bases)
            self._folds.put(key, fold)
        return fold


async def fold_of(read: ReadCommits, bases: tuple[CommitId, ...]) -> VirtualBase:
    """Returns the fold of at least two merge bases.

    Raises:
        TarnError: as `merge_bases`.
    """
    return await _Folding(read).of(bases)


@dataclass(frozen=True, slots=True)
class _Node:
    """A listing, or the result of a step: the number of either."""

    number: int
    is_step: bool


class _Folding:
    """Makes one fold. An instance is used once."""

    def __init__(self, read: ReadCommits) -> None:
        self._read = read
        self._listings: dict[CommitId | None, _Node] = {}
        self._steps: list[tuple[_Node | None, _Node, _Node]] = []
        self._made: dict[tuple[int, tuple[CommitId, ...]], _Node] = {}
        self._nested_left = NESTED_MAX

    async def of(self, bases: tuple[CommitId, ...]) -> VirtualBase:
        await self._fold(bases, 1)
        ids = [each for each in self._listings if each is not None]
        commits = dict(zip(ids, await self._read(ids), strict=True))
        listings: list[MetarangeId | None] = [
            None if each is None else commits[each].metarange_id for each in self._listings
        ]

        def place(node: _Node) -> int:
            return node.number + (len(listings) if node.is_step else 0)

        return VirtualBase(
            tuple(listings),
            tuple(
                FoldStep(None if base is None else place(base), place(left), place(right))
                for base, left, right in self._steps
            ),
        )

    async def _fold(self, commits: tuple[CommitId, ...], level: int) -> _Node:
        node = self._listing(commits[0])
        for count in range(1, len(commits)):
            key = (level, commits[: count + 1])
            made = self._made.get(key)
            if made is None:
                base = await self._base(commits[:count], commits[count], level)
                made = _Node(len(self._steps), is_step=True)
                self._steps.append((base, node, self._listing(commits[count])))
                self._made[key] = made
            node = made
        return node

    async def _base(self, lefts: tuple[CommitId, ...], right: CommitId, level: int) -> _Node | None:
        """Returns the base of the merge of a commit into the fold of others; None if it is not to be known."""
        bases = await merge_bases(self._read, lefts, [right], limit=BASES_MAX)
        if len(bases) < 2:
            return self._listing(bases[0] if bases else None)
        merges = len(bases) - 1
        if level == LEVELS_MAX or len(bases) > BASES_MAX or merges > self._nested_left:
            return None
        self._nested_left -= merges
        return await self._fold(bases, level + 1)

    def _listing(self, commit: CommitId | None) -> _Node:
        return self._listings.setdefault(commit, _Node(len(self._listings), is_step=False))


def _too_many(left: CommitId, right: CommitId) -> TarnError:
    text = (
        f"commits {left} and {right} have more than {BASES_MAX} merge bases: their histories have merged that many "
        "commits independently of each other. Merge an older commit of the source first, then the rest"
    )
    reason = Reason.TOO_MANY_MERGE_BASES
    return TarnError(Kind.FAILED_PRECONDITION, reason, text, left=left, right=right)
