"""Reads of a branch: rule 2 of docs/design/protocol.md, executable in tests/models/branch_writes.py.

The layers are read by a cached record while a fresh read of the record runs in parallel. The answer
counts if the fresh record has the same layers and both reads together took less than the drop delay: no
token that the record names can have been dropped meanwhile, because drops wait the drop delay (rule 5).
Otherwise the layers are read again by the fresh record, without a third read of the record. This takes
one round trip and cannot livelock.

A store that reads at once (`ReadsAtOnce`) leaves nothing to gain by a parallel read: there the record is read first,
and the layers by it. The record and the row of a path in its newest token are one read of one moment. A row that it
finds is the newest one at that moment, so it needs no further check.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

from tarn.aio.futures import ignore_outcome
from tarn.core.branch import Branch
from tarn.core.clock import Clock
from tarn.core.entry import is_tombstone
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.listing.pages import Page, PageRequest
from tarn.kv.keys import path_key
from tarn.kv.port import Versioned
from tarn.kv.records import Repository
from tarn_graveler.branch.kept_objects import KeptObjects
from tarn_graveler.branch.layers import Layers
from tarn_graveler.records.branches import Branches, BranchName
from tarn_graveler.records.expired import ExpiredCommits
from tarn_graveler.refs.resolving import OnCommit, Refs

__all__ = ["Reading", "entry_not_found"]

_TRIES = 4

R = TypeVar("R")
_Read = tuple[Branch, Versioned | None]
"""A record, and the row of a path in its newest token, as of one moment."""


def entry_not_found(repository: Repository, ref: str, path: str) -> TarnError:
    """Returns the error for a path without an entry."""
    text = f"{path} does not exist in {repository.repository_id}/{ref}"
    return TarnError(Kind.NOT_FOUND, Reason.ENTRY_NOT_FOUND, text, ref=ref)


class Reading:
    """Looks up and lists entries of any ref.

    Args:
        read_seconds_max: how long a token that left a record can still be read, in seconds: the drop
            delay less the clock skew of two replicas, because their wall clocks time the drop.
    """

    def __init__(
        self,
        refs: Refs,
        branches: Branches,
        layers: Layers,
        expired: ExpiredCommits,
        kept: KeptObjects,
        clock: Clock,
        read_seconds_max: float,
    ) -> None:
        self._refs = refs
        self._branches = branches
        self._layers = layers
        self._expired = expired
        self._kept = kept
        self._clock = clock
        self._now = clock.monotonic
        self._read_seconds_max = read_seconds_max

    async def by_record(self, name: BranchName, read: Callable[[Branch], Awaitable[R]]) -> R:
        """Runs a read of layers by a record that satisfies rule 2.

        Raises:
            TarnError: BRANCH_NOT_FOUND; UNAVAILABLE when each attempt took longer than the drop delay.
        """
        begin = self._clock.monotonic()
        cached = self._branches.cached(name)
        if cached is None or self._branches.reads_at_once:
            record = (await self._branches.fresh(name)).branch
        else:
            fresh = self._branches.begin_fresh(name)
            try:
                answer = await read(cached)
            except TarnError as error:
                # With a stale record any row may be missing; the fresh record decides.
                record = self._branches.accept(name, await fresh).branch
                if record.same_layers(cached):
                    raise error from None
            except BaseException:
                # Cancelled: the parallel read continues; its error, if any, is ignored.
                ignore_outcome(fresh)
                raise
            else:
                record = self._branches.accept(name, await fresh).branch
                in_time = self._clock.monotonic() - begin < self._read_seconds_max
                if record.same_layers(cached) and in_time:
                    return answer
        for _ in range(_TRIES):
            if self._clock.monotonic() - begin >= self._read_seconds_max:
                begin = self._clock.monotonic()
                record = (await self._branches.fresh(name)).branch
            answer = await read(record)
            if self._clock.monotonic() - begin < self._read_seconds_max:
                return answer
        text = (
            f"each read of branch {name.branch_id} took longer than {self._read_seconds_max} s; "
            "try again"
        )
        raise TarnError(Kind.UNAVAILABLE, Reason.TOO_MANY_RETRIES, text)

    async def lookup(self, repository: Repository, ref: str, path: str) -> bytes:
        """Returns the packed entry of a path on a ref.

        Raises:
            TarnError: REF_NOT_FOUND, BRANCH_NOT_FOUND, ENTRY_NOT_FOUND; EXPIRED_COMMIT, unless a rule of objects keeps
                this one.
        """
        branches, begin = self._branches, self._now()
        read: _Read | None = None
        if branches.reads_at_once:
            # The fast path: a branch that this process knows by this name, and that is there now, is what the ref
            # stands for, so the ref is not resolved. The general path below finds the same.
            place = repository.instance_uid, ref
            read = await branches.at_once(place, path_key(path), begin)
        if read is not None and (row := read[1]) is not None:
            packed: bytes | None = row.value
        else:
            packed = await self._find(repository, ref, path, read, begin)
        if packed is None or is_tombstone(packed):
            raise entry_not_found(repository, ref, path)
        return packed

    async def _find(
        self, repository: Repository, ref: str, path: str, read: _Read | None, begin: float
    ) -> bytes | None:
        """Finds the newest row of a path of any ref.

        Args:
            repository: of the ref.
            ref: see `Refs.resolve`.
            path: of the entry.
            read: what `Branches.at_once` found for this call; None if it was not asked, or did not know.
            begin: when it was asked.
        """

        def of_branch(name: BranchName) -> Awaitable[bytes | None]:
            if self._branches.reads_at_once:
                return self._find_at_once(name, path, read, begin)
            return self.by_record(name, partial(self._layers.find_one, name, path))

        def of_commit(found: OnCommit) -> Awaitable[bytes | None]:
            return self._find_committed(repository, found, path)

        return await self._refs.read(repository, ref, of_branch, of_commit)

    async def _find_at_once(
        self, name: BranchName, path: str, read: _Read | None, begin: float
    ) -> bytes | None:
        """Finds the newest row of a path, as `by_record` does, by one read if this process knows the record."""
        if read is None:
            begin = self._now()
            place = name.repository.instance_uid, name.branch_id
            read = await self._branches.at_once(place, path_key(path))
        if read is not None:
            record, row = read
            if row is not None:
                return row.value
            found = await self._layers.find_one(name, path, record, depth_min=1)
            if self._now() - begin < self._read_seconds_max:
                return found
        return await self.by_record(name, partial(self._layers.find_one, name, path))

    async def _find_committed(
        self, repository: Repository, found: OnCommit, path: str
    ) -> bytes | None:
        try:
            await self._refuse_expired(repository, found)
        except TarnError as error:
            if error.reason is not Reason.EXPIRED_COMMIT:
                raise
            packed = await self._layers.find_committed(repository, found.commit_id, path)
            if packed is None or not await self._kept.keeps(repository, path, packed):
                raise error from None
            return packed
        return await self._layers.find_committed(repository, found.commit_id, path)

    async def _refuse_expired(self, repository: Repository, found: OnCommit) -> None:
        """Refuses a commit without objects. Those of the head of a branch and of a tag are there."""
        if not found.is_kept:
            await self._expired.refuse_read(repository, found.commit_id)

    async def page(self, repository: Repository, ref: str, request: PageRequest) -> Page:
        """Returns one page of a ref's listing; each page is read independently of the others.

        Raises:
            TarnError: REF_NOT_FOUND, BRANCH_NOT_FOUND, EXPIRED_COMMIT.
        """

        async def of_branch(name: BranchName) -> Page:
            async def read(branch: Branch) -> Page:
                base = await self._layers.base_of(repository, branch)
                return await self._layers.page(name, branch.tokens, base, request)

            return await self.by_record(name, read)

        async def of_commit(found: OnCommit) -> Page:
            await self._refuse_expired(repository, found)
            return await self._layers.page_committed(repository, found.commit_id, request)

        return await self._refs.read(repository, ref, of_branch, of_commit)
