"""Lookups for copies by reference: they note the address before a copy stages it again.

Without online deletion an entry of a staging token may be copied as it was found. With it, the entry may be overwritten
and its block deleted before the copy is staged. So the address is noted in its token, *and then read again*. If the
entry is still there, the note was durable before any write that replaces the entry was acknowledged. So the replica
that judges the replaced row sees the note (docs/design/online-deletion.md).
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence

from tarn.aio.batcher import Batcher
from tarn.aio.task_set import TaskSet
from tarn.core.branch import Branch, Token, TokenKind
from tarn.core.entry import address_of, is_tombstone
from tarn.core.errors import Kind, Reason, TarnError
from tarn.kv.keys import copied_note
from tarn.kv.port import Group, Kv, Partition
from tarn.kv.records import Repository
from tarn_graveler.branch.layers import LayerRow, Layers
from tarn_graveler.branch.reading import Reading, entry_not_found
from tarn_graveler.records.branches import BranchName
from tarn_graveler.refs.resolving import OnCommit, Refs

__all__ = ["CopySources"]

_TRIES = 8
"""An attempt fails only if the entry is replaced between its two reads."""


class CopySources:
    """Finds entries that may be copied by reference.

    Args:
        is_noted: whether copies are noted, because blocks are deleted online.
    """

    def __init__(
        self,
        kv: Kv,
        refs: Refs,
        reading: Reading,
        layers: Layers,
        tasks: TaskSet,
        *,
        is_noted: bool,
    ) -> None:
        self._kv = kv
        self._refs = refs
        self._reading = reading
        self._layers = layers
        self._is_noted = is_noted
        self._notes: Batcher[Partition, bytes, None] = Batcher(self._write_notes, tasks)

    async def _write_notes(
        self, partition: Partition, addresses: Sequence[bytes]
    ) -> Sequence[Exception | None]:
        keys = [copied_note(address) for address in dict.fromkeys(addresses)]
        errors = await self._kv.set_many(partition, [Group(key, ((key, b""),)) for key in keys])
        of_key = dict(zip(keys, errors, strict=True))
        return [of_key[copied_note(address)] for address in addresses]

    async def find(self, repository: Repository, ref: str, path: str) -> bytes:
        """Returns the packed entry of a path on a ref. Its address may be staged again while it is young (rule 11).

        Raises:
            TarnError: REF_NOT_FOUND, BRANCH_NOT_FOUND, ENTRY_NOT_FOUND; UNAVAILABLE if the entry was replaced between
                the reads of all attempts; the store's errors.
        """
        if not self._is_noted:
            return await self._reading.lookup(repository, ref, path)

        def of_branch(name: BranchName) -> Awaitable[bytes]:
            return self._noted(name, ref, path)

        def of_commit(_: OnCommit) -> Awaitable[bytes]:
            # An entry that a commit holds is never deleted online.
            return self._reading.lookup(repository, ref, path)

        return await self._refs.read(repository, ref, of_branch, of_commit)

    async def _noted(self, name: BranchName, ref: str, path: str) -> bytes:
        noted: bytes | None = None
        for _ in range(_TRIES):
            found, token = await self._newest(name, path)
            if found.packed is None or is_tombstone(found.packed):
                raise entry_not_found(name.repository, ref, path)
            address = address_of(found.packed)
            if address is None or address == noted or token is None:
                return found.packed
            await self._notes.submit(self._layers.partition(name, token), address)
            noted = address
        text = f"{path} of {ref} was overwritten {_TRIES} times while it was read; try again"
        raise TarnError(Kind.UNAVAILABLE, Reason.TOO_MANY_RETRIES, text)

    async def _newest(self, name: BranchName, path: str) -> tuple[LayerRow, Token | None]:
        """Returns the newest row of a path by rule 2, and its token if it may be private: if it is in a staging token
        without registers. The newest row of a sealed token or a listing was not replaced before the seal.
        """

        async def read(branch: Branch) -> tuple[LayerRow, Token | None]:
            (found,) = await self._layers.find(name, branch, [path])
            return (
                found,
                branch.staging
                if found.depth == 0 and branch.staging.kind is TokenKind.PLAIN
                else None,
            )

        return await self._reading.by_record(name, read)
