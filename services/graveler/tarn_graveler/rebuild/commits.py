"""Commits of a rebuild: they are objects of the bucket. Only events make refs; commit objects give content."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from tarn.block.port import BlockStore
from tarn.core.commit import Commit, commit_id_of
from tarn.core.dump import NoteLine, from_line
from tarn.core.ids import BranchId, CommitId, MetarangeId
from tarn.kv.commit_records import decode_commit, encode_commit
from tarn.kv.keys import RepositoryKeys
from tarn.kv.port import Kv, Row
from tarn.kv.records import Repository
from tarn_graveler.rebuild.rows import write_rows
from tarn_graveler.repository.recovering import Recovering

__all__ = ["KnownCommits", "rebuild_commits"]

_PAGE: Final = 1_000


@dataclass(slots=True)
class KnownCommits:
    """The commits of a namespace.

    Attributes:
        intact: ids of those that are there with all of their ancestors.
        damaged: paths of files that cannot be used.
        incomplete: number of commits that lack an ancestor, and are left out.
        notes: by branch, when which commit became its head; Unix microseconds.
    """

    kv: Kv
    keys: RepositoryKeys
    intact: set[bytes] = field(default_factory=set)
    damaged: list[str] = field(default_factory=list)
    incomplete: int = 0
    notes: dict[BranchId, list[tuple[int, CommitId]]] = field(default_factory=dict)

    def has(self, commit_id: CommitId) -> bool:
        """Whether a commit is there with all of its ancestors."""
        return bytes.fromhex(commit_id) in self.intact

    async def listing_of(self, commit_id: CommitId) -> MetarangeId:
        """Returns the listing of a commit that is there."""
        (found,) = await self.kv.get_many(self.keys.commits, [self.keys.commit(commit_id)])
        assert found is not None, "only intact commits are asked for"
        return decode_commit(found.value).metarange_id


async def rebuild_commits(
    kv: Kv, keys: RepositoryKeys, repository: Repository, blocks: BlockStore
) -> KnownCommits:
    """Writes the rows of all commits that are whole in the bucket, parents included.

    Args:
        kv: gets the rows.
        keys: of the repository.
        repository: its record.
        blocks: the store.

    Raises:
        TarnError: errors of the stores.
    """
    known = KnownCommits(kv, keys)
    parents: dict[bytes, tuple[bytes, ...]] = {}
    generations: list[tuple[int, bytes]] = []
    recovering = Recovering(blocks)
    cursor = ""
    while True:
        page = await recovering.page(repository, cursor, _PAGE)
        rows: list[Row] = []
        for line in page.lines:
            record = from_line(line)
            if isinstance(record, Commit):
                commit_id = commit_id_of(record)
                rows.append((keys.commit(commit_id), encode_commit(record)))
                place = bytes.fromhex(commit_id)
                parents[place] = tuple(bytes.fromhex(each) for each in record.parents)
                generations.append((record.generation, place))
            elif isinstance(record, NoteLine):
                note = record.time_us, record.commit_id
                known.notes.setdefault(record.branch_id, []).append(note)
        await write_rows(kv, keys.commits, rows)
        known.damaged += page.damaged
        cursor = page.cursor
        if not cursor:
            break
    await _leave_out(known, generations, parents)
    return known


async def _leave_out(
    known: KnownCommits,
    generations: list[tuple[int, bytes]],
    parents: Mapping[bytes, tuple[bytes, ...]],
) -> None:
    """Removes the rows of commits without all of their ancestors."""
    incomplete = []
    for _, place in sorted(generations):
        if all(parent in known.intact for parent in parents[place]):
            known.intact.add(place)
        else:
            incomplete.append(known.keys.commit(place.hex()))
    known.incomplete = len(incomplete)
    for at in range(0, len(incomplete), _PAGE):
        await known.kv.delete_many(known.keys.commits, incomplete[at : at + _PAGE])
