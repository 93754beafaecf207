"""The history of a repository in lakeFS: its dump, and what each commit changes."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final, TypeVar

from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import parse_new_branch_id, parse_new_tag_id
from tarn.lakefs.conversion import path_from
from tarn.lakefs.listings import Listings
from tarn.lakefs.records import PeerCommit, PeerEntry, commit_of, entry_of, pair_of, ref_of
from tarn.lakefs.source import Source
from tarn.lakefs.sstable import damaged
from tarn.lakefs.state import ImportState, PeerRef

__all__ = ["DumpIds", "ImportProgress", "PeerChange", "PeerHistory"]

_R = TypeVar("_R")

_BATCH: Final = 1000
"""Changes of one batch."""


@dataclass(frozen=True, slots=True)
class DumpIds:
    """The tables of a dump of refs, as `lakectl refs-dump` prints them."""

    commits: str
    branches: str
    tags: str

    @staticmethod
    def parse(text: str | bytes) -> DumpIds:
        """Reads the answer of lakeFS.

        Raises:
            TarnError: INVALID: it is another document.
        """
        try:
            fields = json.loads(text)
            names = ("commits_meta_range_id", "branches_meta_range_id", "tags_meta_range_id")
            found = [fields[name] for name in names]
            if not all(isinstance(each, str) for each in found):
                raise TypeError("an id is no text")
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            reason = (
                f"the dump of refs cannot be read ({error!r}); give what `lakectl refs-dump` prints"
            )
            raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, reason) from error
        return DumpIds(*found)


@dataclass(slots=True)
class ImportProgress:
    """How far an import is.

    Attributes:
        step: what it does now.
        commits_done, commits: of the history.
        objects, size_bytes: that were copied in this run; in a dry run, that were found.
        headers_left_out: entries whose metadata or content type no S3 answer can hold.
        gone: objects that are not there any more.
        unverified: copied objects whose checksum in lakeFS is not that of their content; only their size was compared.
    """

    step: str = "begin"
    commits_done: int = 0
    commits: int = 0
    objects: int = 0
    size_bytes: int = 0
    headers_left_out: int = 0
    gone: int = 0
    unverified: int = 0


@dataclass(frozen=True, slots=True)
class PeerChange:
    """What a commit changes at one path; None: there is no object before, or after."""

    path: str
    old: PeerEntry | None
    new: PeerEntry | None


class PeerHistory:
    """The history that is imported.

    Args:
        source: the storage namespace of the repository in lakeFS.
        state: of the import.
        progress: is kept up to date.
    """

    def __init__(self, source: Source, state: ImportState, progress: ImportProgress) -> None:
        self.source = source
        self.state = state
        self.progress = progress
        self._listings = Listings(source)

    async def load(self, dump: DumpIds) -> None:
        """Reads the dump of refs into the state, unless that was done.

        Raises:
            TarnError: CORRUPT: the dump is damaged, or lacks a commit; INVALID: Tarn cannot have a name.
        """
        state, text = self.state, json.dumps([dump.commits, dump.branches, dump.tags])
        if state.get("loaded") not in ("", text):
            reason = f"{state.folder} holds the import of another dump; finish it, or name another folder by --work"
            raise TarnError(Kind.FAILED_PRECONDITION, Reason.PRECONDITION_FAILED, reason)
        if not state.get("loaded"):
            self.progress.step = "reading the dump"
            state.clear_dump()
            for kind, metarange_id in (("branch", dump.branches), ("tag", dump.tags)):
                parse = parse_new_branch_id if kind == "branch" else parse_new_tag_id
                async for records in self._records(metarange_id):
                    refs = [_parsed(metarange_id, ref_of, record) for record in records]
                    state.add_refs(PeerRef(kind, parse(name), peer_id) for name, peer_id in refs)
            async for records in self._records(dump.commits):
                commits = [_parsed(dump.commits, commit_of, each) for each in records]
                rows = zip(commits, records, strict=True)
                state.add_commits((c.commit_id, c.generation, r, c.parents) for c, r in rows)
            if missing := state.find_wanted():
                raise damaged(f"dump {dump.commits}", f"it lacks commit {missing}")
            self._refuse_shared_names()
            state.set("loaded", text)
        self.progress.commits = state.count()
        self.progress.commits_done = state.count(done=True)

    def _refuse_shared_names(self) -> None:
        names = {each.name for each in self.state.refs("branch")}
        for each in self.state.refs("tag"):
            if each.name in names:
                text = (
                    f"{each.name} is a branch and a tag in lakeFS, and Tarn has one ref of a name; make the tag under "
                    "another name in lakeFS, delete it, and dump the refs again"
                )
                raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text)

    def require_branch(self, name: str) -> None:
        """Checks that the dump has a branch, before work begins that needs it.

        Raises:
            TarnError: BRANCH_NOT_FOUND.
        """
        names = [each.name for each in self.state.refs("branch")]
        if name not in names:
            some = ", ".join(names[:10]) or "none"
            text = f"the dump has no branch {name}; give --default-branch; the branches are: {some}"
            raise TarnError(Kind.NOT_FOUND, Reason.BRANCH_NOT_FOUND, text)

    async def _records(self, metarange_id: str) -> AsyncGenerator[list[bytes], None]:
        async with aclosing(self._listings.records_of(metarange_id)) as blocks:
            async for block in blocks:
                yield [_parsed(metarange_id, pair_of, value)[1] for _, value in block]

    async def count(self) -> None:
        """Walks through the history as an import does, and counts its objects, without a copy of any."""
        self.progress.step = "counting"
        for commit in self.pending():
            async with aclosing(self.changes(commit)) as batches:
                async for batch in batches:
                    entries = [each.new for each in batch if each.new is not None]
                    self.state.add_seen((each.address, each.size) for each in entries)
            self.progress.commits_done += 1
            self.progress.objects, self.progress.size_bytes = self.state.blocks_seen()

    def pending(self) -> Iterator[PeerCommit]:
        """Yields the wanted commits that are not written, parents first; they may be written meanwhile."""
        for record in self.state.pending():
            yield _parsed("a dump", commit_of, record)

    def commit(self, peer_id: str) -> PeerCommit:
        """Returns a commit of the dump."""
        return _parsed("a dump", commit_of, self.state.record(peer_id))

    def base_of(self, commit: PeerCommit) -> str:
        """Returns the listing of lakeFS that a commit's changes are relative to: that of its first parent."""
        if not commit.parents:
            return ""
        return self.commit(commit.parents[0]).metarange_id

    async def changes(self, commit: PeerCommit) -> AsyncGenerator[list[PeerChange], None]:
        """Yields what a commit changes in its first parent, in batches in order of the paths; the last may be empty."""
        batch: list[PeerChange] = []
        old_id, new_id = self.base_of(commit), commit.metarange_id
        async with aclosing(self._listings.changes(old_id, new_id)) as rows:
            async for key, old, new in rows:
                before = None if old is None else _parsed(old_id, entry_of, old)
                after = None if new is None else _parsed(new_id, entry_of, new)
                batch.append(PeerChange(path_from(key), before, after))
                if len(batch) == _BATCH:
                    yield batch
                    batch = []
        yield batch

    async def entries(self, metarange_id: str) -> AsyncGenerator[tuple[str, PeerEntry], None]:
        """Yields all objects of a listing in order of their paths."""
        async with aclosing(self._listings.records_of(metarange_id)) as blocks:
            async for block in blocks:
                for key, value in block:
                    record = _parsed(metarange_id, pair_of, value)[1]
                    yield path_from(key), _parsed(metarange_id, entry_of, record)


def _parsed(metarange_id: str, parse: Callable[[bytes], _R], data: bytes) -> _R:
    """Parses a record of a listing or dump; raises `TarnError` CORRUPT if it is damaged."""
    try:
        return parse(data)
    except ValueError as error:  # also of text that is not UTF-8
        raise damaged(f"listing {metarange_id}", str(error)) from error
