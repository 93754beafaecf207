"""The roots of a collection: everything in a repository that refers to blocks, in an order that no reference escapes.

A reference moves forward only: from an upload to a staged row, from there to a compacted listing or a commit, and from
a head to a reflog. The pages come in that order (`_STAGES`), and each reads the store when it is asked for. So a
reference that has left the place of an earlier page is found in a later one. One that comes to a place that has been
read was either read before, elsewhere, or belongs to a block that is too young to be judged (rule 11 of
docs/design/protocol.md).

Every commit with a row is a root, whether or not a ref leads to it. An expired one is a root of its metarange and its
ranges only, unless a branch, a tag, a reflog or a pin names it, too: no rule overrules these. Refs that are being
created count (rule 14). Branches and tags are also read to check that their commits have rows: with a damaged history,
fewer roots would be found, and live blocks deleted.

The objects that were read lately come last. They are no roots, and only tell which objects of expired commits a rule
keeps.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tarn.core.clock import Clock
from tarn.core.entry import FLAG_EXTERNAL, FLAG_TOMBSTONE
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.head_change import HeadChange
from tarn.core.ids import CommitId
from tarn.core.retention import ObjectRules
from tarn.kv.commit_records import decode_commit
from tarn.kv.keys import COPIED, STAGED_UPLOADS, RepositoryKeys, after_prefix
from tarn.kv.port import Kv, Row
from tarn.kv.records import Repository, decode_branch, decode_head_change, decode_tag, parse_record
from tarn.kv.rules_records import decode_settings
from tarn_graveler.collection.staged_walk import check_staged_row, read_staged
from tarn_graveler.reads.coverage import ReadObjects, ReadsPage
from tarn_graveler.records.expired import ExpiredCommits
from tarn_graveler.records.repositories import Repositories
from tarn_proto.store.v1 import graveler_pb2 as pb

__all__ = ["Roots", "RootsPage"]

_MULTIPART: Final = b"multipart/"
_COMMITS: Final = RepositoryKeys.commit("")
_LOG: Final = RepositoryKeys.REFLOG
_ADDRESS: Final = slice(18, 34)  # of a packed entry, see `tarn.core.entry`
_ADDRESS_BYTES: Final = 16
_REFS_AT_ONCE: Final = 200
_STAGED_STEPS: Final = 64
"""Reads of staged rows, or of branch records, of one page, one after the other."""
_COMMITS_AT_ONCE: Final = 100
"""Rows of one scan. A commit has at most 128 KiB, so a scan holds at most 13 MB."""

Place = list[Any]
"""Where a page begins: the stage, and what that stage needs; JSON."""


@dataclass(slots=True)
class RootsPage:
    """A page of roots.

    Attributes:
        stage: the stage that the page belongs to.
        addresses: addresses of blocks; one may come more than once.
        metarange_ids: listings, each with all that it refers to, except for those in `emptied_ids`.
        emptied_ids: those of `metarange_ids` that this page needs without the objects: of expired commits. Another page
            may need them with the objects.
        keeping_ids: listings of heads that keep objects of expired commits, by rules of objects.
        written_since_us: objects of expired commits that were written since then are kept, microseconds since the
            epoch; 0: this page tells none.
        reads: the objects that were read lately, if a rule needs them.
        heads: the keys of the live branches of the page, each with its head.
        cursor: where the next page begins; empty after the last page.
    """

    stage: str
    addresses: list[bytes] = field(default_factory=list)
    metarange_ids: dict[str, None] = field(default_factory=dict)
    emptied_ids: dict[str, None] = field(default_factory=dict)
    keeping_ids: dict[str, None] = field(default_factory=dict)
    written_since_us: int = 0
    reads: ReadsPage = field(default_factory=ReadsPage)
    heads: list[tuple[bytes, CommitId]] = field(default_factory=list)
    cursor: str = ""


class Roots:
    """Reads the roots of repositories, page by page."""

    def __init__(
        self,
        kv: Kv,
        repositories: Repositories,
        expired: ExpiredCommits,
        reads: ReadObjects,
        clock: Clock,
    ) -> None:
        self._kv = kv
        self._reads = reads
        self._expired = expired
        self._repositories = repositories
        self._clock = clock

    async def page(self, repository: Repository, cursor: str, limit: int) -> RootsPage:
        """Returns the page at a cursor (empty: the first one), from up to `limit` rows.

        Raises:
            TarnError: CORRUPT: a record is damaged, or a ref names a commit without a row; REPOSITORY_NOT_FOUND: the
                deletion of the repository began before the page was read.
        """
        keys = self._repositories.keys_of(repository)
        place: Place = json.loads(cursor) if cursor else [_FIRST]
        stage = place[0]
        page = RootsPage(stage)
        following = await _STAGES[stage](self, repository, place, limit, page)
        # After the rows: a deletion of the repository removes rows only after it wrote this mark.
        wanted = [RepositoryKeys.CLOSED, RepositoryKeys.SETTINGS]
        closed, settings = await self._kv.get_many(keys.refs, wanted)
        self._repositories.refuse_closed(repository, closed)
        if settings is not None:
            await self._keep(keys, decode_settings(settings.value).retention.objects, page)
        if following is None:
            following = [_NEXT[stage]] if _NEXT[stage] else None
        if following is not None:
            page.cursor = json.dumps(following)
        return page

    # ---- uploads: their blocks, complete or not

    async def _uploads(
        self, repository: Repository, place: Place, limit: int, page: RootsPage
    ) -> Place | None:
        """Place: `[stage, key of the row of a day, last key of an upload]`."""
        keys = self._repositories.keys_of(repository)
        day_key, after = (place[1].encode(), place[2].encode()) if place[1:] else (b"", b"")
        if not after:
            start = day_key + b"\0" if day_key else keys.UPLOAD_DAYS
            days = await self._kv.scan(keys.refs, start, after_prefix(keys.UPLOAD_DAYS), 1)
            if not days:
                return None
            day_key = days[0][0]
        day = keys.day_of(day_key)
        if day is None:
            raise _corrupt(f"row {day_key!r} names no day of uploads")
        start = after + b"\0" if after else _MULTIPART
        rows = await self._kv.scan(keys.uploads(day), start, after_prefix(_MULTIPART), limit)
        for key, value in rows:
            record = parse_record(pb.UploadRecord(), value)
            linked = [record.linked_address] if record.linked_address else []
            for address in (record.address, *linked):
                if len(address) != _ADDRESS_BYTES:
                    raise _corrupt(f"upload {key!r} has an address of {len(address)} bytes")
                page.addresses.append(address)
        last = rows[-1][0].decode() if len(rows) == limit else ""
        return [page.stage, day_key.decode(), last]

    # ---- staged rows of all branches

    async def _staged(
        self, repository: Repository, place: Place, limit: int, page: RootsPage
    ) -> Place | None:
        """Place: `[stage, …]`, with the place of `read_staged`.

        A page takes several steps: most branches of a large repository have no staged rows, and each has two steps.
        """
        keys = self._repositories.keys_of(repository)
        at, rows = place[1:], 0
        for _ in range(_STAGED_STEPS):
            step = await read_staged(self._kv, keys, at, limit - rows)
            page.addresses += _addresses(step.rows, step.partition)
            if step.following is None:
                return None
            at, rows = step.following, rows + len(step.rows)
            if rows == limit:
                break
        return [page.stage, *at]

    # ---- compacted listings, and the commits of refs

    async def _branches(
        self, repository: Repository, place: Place, limit: int, page: RootsPage
    ) -> Place | None:
        """Place: `[stage, last branch]`."""
        keys = self._repositories.keys_of(repository)
        rows, following = await self._refs(keys, keys.branch(""), place, limit)
        heads, former = [], list[CommitId]()
        for key, value in rows:
            branch = decode_branch(value)
            former += _commits_of(branch.outbox)
            if branch.is_deleted:  # also while it is being created
                former.append(branch.commit_id)
                continue
            if branch.compacted_metarange_id is not None:
                page.metarange_ids[branch.compacted_metarange_id] = None
            for pin in branch.pins:
                page.metarange_ids[pin.metarange_id] = None
            heads.append((key, branch.commit_id))
        await self._old_commits(keys, former, page)
        await self._commits_of(keys, heads, page)
        page.heads = heads
        return following

    async def _keep(self, keys: RepositoryKeys, rules: ObjectRules, page: RootsPage) -> None:
        """Tells what keeps objects of expired commits."""
        page.written_since_us = rules.written_since_us(self._clock.now_us())
        wanted = {keys.branch(name) for name in rules.listed_on}
        keeping = [each for each in page.heads if each[0] in wanted]
        page.keeping_ids = await self._listings_of(keys, keeping)

    async def _tags(
        self, repository: Repository, place: Place, limit: int, page: RootsPage
    ) -> Place | None:
        """Place: `[stage, last tag]`."""
        keys = self._repositories.keys_of(repository)
        rows, following = await self._refs(keys, keys.tag(""), place, limit)
        tags = [(key, decode_tag(value)) for key, value in rows]
        named = [(key, tag.commit_id) for key, tag in tags if not tag.is_pending]
        await self._commits_of(keys, named, page)
        await self._old_commits(keys, [tag.commit_id for _, tag in tags if tag.is_pending], page)
        return following

    async def _reflogs(
        self, repository: Repository, place: Place, limit: int, page: RootsPage
    ) -> Place | None:
        """Place: `[stage, last key]`. Read after the branches, whose deletion leaves nothing but these rows."""
        keys = self._repositories.keys_of(repository)
        limit = min(limit, _REFS_AT_ONCE)
        start = place[1].encode() + b"\0" if place[1:] else _LOG
        rows = await self._kv.scan(keys.reflog, start, after_prefix(_LOG), limit)
        named = _commits_of([decode_head_change(value) for _, value in rows])
        await self._old_commits(keys, named, page)
        return [page.stage, rows[-1][0].decode()] if len(rows) == limit else None

    async def _refs(
        self, keys: RepositoryKeys, prefix: bytes, place: Place, limit: int
    ) -> tuple[list[Row], Place | None]:
        limit = min(limit, _REFS_AT_ONCE)
        after = place[1].encode() if place[1:] else b""
        start = prefix + after + b"\0" if after else prefix
        rows = await self._kv.scan(keys.refs, start, after_prefix(prefix), limit)
        if len(rows) < limit:
            return rows, None
        return rows, [place[0], rows[-1][0][len(prefix) :].decode()]

    async def _commits_of(
        self, keys: RepositoryKeys, named: Sequence[tuple[bytes, CommitId]], page: RootsPage
    ) -> None:
        """Adds the listings of the commits of refs, each of which must have a row."""
        page.metarange_ids |= await self._listings_of(keys, named)

    async def _listings_of(
        self, keys: RepositoryKeys, named: Sequence[tuple[bytes, CommitId]]
    ) -> dict[str, None]:
        listings: dict[str, None] = {}
        wanted = [keys.commit(commit_id) for _, commit_id in named]
        found = await self._kv.get_many(keys.commits, wanted) if wanted else []
        for (key, commit_id), row in zip(named, found, strict=True):
            if row is None:
                raise _corrupt(
                    f"{key.decode()} names commit {commit_id}, which has no row; nothing may be collected before the "
                    "repository is repaired: run `tarn fsck`"
                )
            listings[decode_commit(row.value).metarange_id] = None
        return listings

    async def _old_commits(
        self, keys: RepositoryKeys, commit_ids: Sequence[CommitId], page: RootsPage
    ) -> None:
        """Adds the listings of commits that something may bring back. One without a row cannot come back."""
        wanted = [keys.commit(each) for each in dict.fromkeys(commit_ids)]
        for row in await self._kv.get_many(keys.commits, wanted) if wanted else []:
            if row is not None:
                page.metarange_ids[decode_commit(row.value).metarange_id] = None

    # ---- all commits

    async def _all_commits(
        self, repository: Repository, place: Place, limit: int, page: RootsPage
    ) -> Place | None:
        """Place: `[stage, last commit]`."""
        keys = self._repositories.keys_of(repository)
        limit = min(limit, _COMMITS_AT_ONCE)
        start = _COMMITS + place[1].encode() + b"\0" if place[1:] else _COMMITS
        rows = await self._kv.scan(keys.commits, start, after_prefix(_COMMITS), limit)
        ids = [CommitId(key[len(_COMMITS) :].decode()) for key, _ in rows]
        expired = await self._expired.find(repository, ids)
        whole: set[str] = set()
        for commit_id, (_, value) in zip(ids, rows, strict=True):
            listing = decode_commit(value).metarange_id
            page.metarange_ids[listing] = None
            if commit_id not in expired:
                whole.add(listing)
        page.emptied_ids = {each: None for each in page.metarange_ids if each not in whole}
        if len(rows) < limit:
            return None
        return [page.stage, rows[-1][0][len(_COMMITS) :].decode()]

    # ---- objects that were read lately

    async def _read_lately(
        self, repository: Repository, place: Place, _: int, page: RootsPage
    ) -> Place | None:
        """Place: `[stage, since when, place in the journal]`. The rules of the first page count for all."""
        since_us, at = place[1:] or (0, [])
        if not since_us:
            keys = self._repositories.keys_of(repository)
            (found,) = await self._kv.get_many(keys.refs, [RepositoryKeys.SETTINGS])
            if found is None:
                return None
            rules = decode_settings(found.value).retention.objects
            since_us = rules.read_since_us(self._clock.now_us())
        if not since_us:
            return None
        page.reads = await self._reads.page(repository, since_us, at)
        following = page.reads.following
        return None if following is None else [page.stage, since_us, following]


_Stage = Callable[[Roots, Repository, Place, int, RootsPage], Awaitable[Place | None]]

_STAGES: Final[dict[str, _Stage]] = {
    "uploads": Roots._uploads,  # noqa: SLF001 - the table of this class
    "staged": Roots._staged,  # noqa: SLF001
    "branches": Roots._branches,  # noqa: SLF001
    "tags": Roots._tags,  # noqa: SLF001
    "reflogs": Roots._reflogs,  # noqa: SLF001
    "commits": Roots._all_commits,  # noqa: SLF001
    "reads": Roots._read_lately,  # noqa: SLF001
}
"""The stages in their order. A stage returns where its next page begins; None at its end."""
_NAMES = list(_STAGES)
_FIRST = _NAMES[0]
_NEXT = dict(zip(_NAMES, [*_NAMES[1:], ""], strict=True))


def _addresses(rows: Sequence[Row], partition: str) -> list[bytes]:
    """Returns the addresses of staged rows, except for tombstones, external addresses and notes."""
    addresses = []
    for key, value in rows:
        if key.startswith((STAGED_UPLOADS, COPIED)):
            continue
        check_staged_row(key, value, partition)
        if not value[1] & (FLAG_TOMBSTONE | FLAG_EXTERNAL):
            addresses.append(value[_ADDRESS])
    return addresses


def _commits_of(entries: Sequence[HeadChange]) -> list[CommitId]:
    both = [commit_id for each in entries for commit_id in (each.old_commit_id, each.new_commit_id)]
    return [commit_id for commit_id in both if commit_id is not None]


def _corrupt(text: str) -> TarnError:
    return TarnError(Kind.CORRUPT, Reason.DATA_CORRUPT, text)
