"""The layers of a branch record: the staging token, the sealed tokens, then the committed listing.

Rows that were read are not yet an answer: tokens may be dropped and the record may change meanwhile.
`reading` (rule 2) and `staging` (rule 3) decide whether the rows count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tarn.block.committed import Committed
from tarn.core.branch import Branch, Token
from tarn.core.ids import CommitId, MetarangeId
from tarn.core.listing.newest import PathRows
from tarn.core.listing.pages import MayLeap, Page, PageRequest, leaping_page
from tarn.core.listing.spans import PathSpan
from tarn.kv.keys import PATHS_END, PATHS_START, after_prefix, path_key, paths_of
from tarn.kv.port import Kv, Partition
from tarn.kv.records import Repository
from tarn_graveler.branch.building import BuildOrder, keys_of
from tarn_graveler.branch.coverage import Coverage
from tarn_graveler.branch.leaps import LEAP_ROWS_MIN, Leaps
from tarn_graveler.records.branches import BranchName
from tarn_graveler.records.commits import Commits
from tarn_graveler.records.erased_lookups import ErasureLookups
from tarn_graveler.records.repositories import Repositories
from tarn_graveler.records.staging_events import StagingEvents

__all__ = ["LayerRow", "Layers"]

_NOTED_MIN = 64
"""Rows that one call must delete, so that a listing may leap over them without having read them."""
_NOTED_OF = 1000
"""At least one row of this many of a range: a note allocates a byte for each row, which a few rows are not worth."""


@dataclass(frozen=True, slots=True)
class LayerRow:
    """The newest row of a path.

    Attributes:
        packed: an entry or a tombstone; None if no layer has a row.
        depth: 0 for the staging token, n for the nth sealed token, -1 for the committed listing.
    """

    packed: bytes | None
    depth: int


class Layers:
    """Reads rows by a given branch record or commit."""

    def __init__(
        self,
        kv: Kv,
        repositories: Repositories,
        commits: Commits,
        committed: Committed,
        events: StagingEvents,
        leap_rows_min: int = LEAP_ROWS_MIN,
    ) -> None:
        self._events = events
        self._kv = kv
        self._repositories = repositories
        self._commits = commits
        self._committed = committed
        self._coverage = Coverage()
        self._leap_rows_min = leap_rows_min

    async def base_of(self, repository: Repository, branch: Branch) -> MetarangeId:
        """Returns the metarange beneath the tokens: the compacted one, or the commit's."""
        if branch.compacted_metarange_id is not None:
            return branch.compacted_metarange_id
        return await self.metarange_of(repository, branch.commit_id)

    async def head_beneath(self, repository: Repository, branch: Branch) -> MetarangeId | None:
        """Returns the listing of the commit if a compacted one lies over it, otherwise None."""
        if branch.compacted_metarange_id is None:
            return None
        return await self.metarange_of(repository, branch.commit_id)

    async def metarange_of(self, repository: Repository, commit_id: CommitId) -> MetarangeId:
        """Returns the listing of a commit."""
        return (await self._commits.get(repository, commit_id)).metarange_id

    async def find(
        self, name: BranchName, branch: Branch, paths: Sequence[str], *, depth_min: int = 0
    ) -> list[LayerRow]:
        """Finds the newest row of each path, layer by layer, newest first; skips layers above `depth_min`."""
        repository = name.repository
        keys = self._repositories.keys_of(repository)
        found: dict[str, LayerRow] = {}
        left = list(paths)
        for depth, token in enumerate(branch.tokens[depth_min:], depth_min):
            rows = await self._kv.get_many(
                keys.token(name.branch_id, token), [path_key(path) for path in left]
            )
            for path, row in zip(left, rows, strict=True):
                if row is not None:
                    found[path] = LayerRow(row.value, depth)
            left = [path for path in left if path not in found]
            if not left:
                break
        if left:
            base = await self.base_of(repository, branch)
            for path in left:
                packed = await self._committed.lookup(repository.storage_namespace, base, path)
                found[path] = LayerRow(packed, -1)
        return [found[path] for path in paths]

    async def find_one(
        self, name: BranchName, path: str, branch: Branch, *, depth_min: int = 0
    ) -> bytes | None:
        """Finds the newest row of one path: `find`, optimised for single lookups."""
        repository = name.repository
        keys = self._repositories.keys_of(repository)
        key = [path_key(path)]
        for token in branch.tokens[depth_min:]:
            (row,) = await self._kv.get_many(keys.token(name.branch_id, token), key)
            if row is not None:
                return row.value
        base = await self.base_of(repository, branch)
        return await self._committed.lookup(repository.storage_namespace, base, path)

    async def find_committed(
        self, repository: Repository, commit_id: CommitId, path: str
    ) -> bytes | None:
        """Returns the entry of a path in a commit; None if it has none."""
        metarange_id = await self.metarange_of(repository, commit_id)
        return await self._committed.lookup(repository.storage_namespace, metarange_id, path)

    async def page(
        self,
        name: BranchName,
        tokens: Sequence[Token],
        metarange_id: MetarangeId | None,
        request: PageRequest,
    ) -> Page:
        """Returns one page of the listing of tokens over a metarange, or of the tokens alone.

        Listings count for the compactor; pages of staged rows, which include tombstones, do not.
        """
        partitions = [self.partition(name, token) for token in tokens]
        namespace = name.repository.storage_namespace
        page, read = await self._page(namespace, partitions, metarange_id, request)
        if tokens and not request.with_tombstones:
            self._events.listed(tokens[0].token_id, read, len(page.paths))
        return page

    async def page_committed(
        self, repository: Repository, commit_id: CommitId, request: PageRequest
    ) -> Page:
        """Returns one page of the listing of a commit."""
        metarange_id = await self.metarange_of(repository, commit_id)
        page, _ = await self._page(repository.storage_namespace, (), metarange_id, request)
        return page

    async def _page(
        self,
        namespace: str,
        tokens: Sequence[Partition],
        metarange_id: MetarangeId | None,
        request: PageRequest,
    ) -> tuple[Page, int]:
        """Returns a page, and how many rows of all layers were read for it, without those that leaps passed."""
        read = 0
        merge = leaping_page(request, len(tokens), with_base=metarange_id is not None)
        leaps = None
        if metarange_id is not None:
            leaps = Leaps(
                self._kv,
                self._committed,
                self._coverage,
                namespace,
                tokens,
                metarange_id,
                request,
                self._leap_rows_min,
            )
        end = after_prefix(path_key(request.prefix)) if request.prefix.isascii() else PATHS_END
        try:
            wish = next(merge)
            while True:
                if isinstance(wish, MayLeap):
                    leap = None if leaps is None else await leaps.answer(wish)
                    read += 0 if leap is None else len(leap.rows[0])
                    wish = merge.send(leap)
                    continue
                if wish.layer < len(tokens):
                    start = path_key(wish.start)
                    before = end if wish.last is None else min(end, path_key(wish.last) + b"\0")
                    scanned = await self._kv.scan(tokens[wish.layer], start, before, wish.count)
                    rows: PathRows = (
                        paths_of([key for key, _ in scanned]),
                        [value for _, value in scanned],
                    )
                else:
                    assert metarange_id is not None, "no other layer is left"
                    rows = await self._committed.page(
                        namespace, metarange_id, wish.start, wish.count, request.prefix
                    )
                read += len(rows[0])
                wish = merge.send(rows)
        except StopIteration as done:
            page: Page = done.value
            return page, read

    def note_hidden(
        self,
        name: BranchName,
        token: Token,
        metarange_id: MetarangeId,
        paths: Sequence[str],
    ) -> None:
        """Notes that a token surely holds rows of some paths, so that listings need not read what these hide.

        Costs time and memory only for many paths. Never waits, and never fails.

        Args:
            name: the branch.
            token: the token. Its store acknowledged a row of each path: "surely holds" must be true for ever
                (`coverage`).
            metarange_id: the listing beneath, or any other one: the notes are about its ranges.
            paths: the paths, in any order.
        """
        if len(paths) < min(_NOTED_MIN, self._leap_rows_min):
            return
        namespace = name.repository.storage_namespace
        partition = self.partition(name, token)
        for info, rows in self._committed.held_places(namespace, metarange_id, sorted(paths)):
            is_known = self._coverage.of((partition,), info.range_id) is not None
            if is_known or len(rows) * _NOTED_OF >= info.count:
                self._coverage.learn(partition, info.range_id, info.count, rows)

    async def is_empty(self, name: BranchName, token: Token) -> bool:
        """Whether a token holds no staged row."""
        partition = self.partition(name, token)
        return not await self._kv.scan(partition, PATHS_START, PATHS_END, 1)

    async def has_rows(self, name: BranchName, token: Token, span: PathSpan) -> bool:
        """Whether a token holds a staged row of a path in a span."""
        return bool(await self._kv.scan(self.partition(name, token), *keys_of(span), 1))

    async def order(self, name: BranchName, record: Branch) -> BuildOrder:
        """Orders the listing of a record's sealed tokens over its base; their seal must be confirmed."""
        repository = name.repository
        return BuildOrder(
            repository.storage_namespace,
            await self.base_of(repository, record),
            tuple(self.partition(name, token) for token in record.sealed),
            await self.head_beneath(repository, record),
            commits=self._repositories.keys_of(repository).commits,
        )

    def erased(self, repository: Repository) -> ErasureLookups:
        """The rows of a repository's erased addresses."""
        return ErasureLookups(self._kv, self._repositories.keys_of(repository).commits)

    def partition(self, name: BranchName, token: Token) -> Partition:
        """Returns the partition that holds the rows of a token."""
        return self._repositories.keys_of(name.repository).token(name.branch_id, token)
