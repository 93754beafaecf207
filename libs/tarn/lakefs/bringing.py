"""Brings a repository of lakeFS into an installation: the history into the bucket, then a restore of its metadata.

The name and the namespace are taken before the first object is copied, by the beginning of a restore, so whoever may
not restore, or chose a name that is taken, learns it at once. Users see the repository when it is complete and
verified.
"""

from __future__ import annotations

import asyncio
import hashlib
import shutil
from collections.abc import Callable, Iterator
from contextlib import aclosing
from itertools import islice
from typing import Final

from tarn.client.graveler import GravelerClient
from tarn.core.clock import Clock, IdSource
from tarn.core.commit import Commit, commit_id_of
from tarn.core.dump import BranchLine, ExpiredLine, TagLine, from_line, to_line
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.expiry import Expiry
from tarn.core.ids import BranchId, TagId
from tarn.core.rules import Settings
from tarn.lakefs.importing import HistoryImport
from tarn.lakefs.state import ImportState
from tarn.rpc.wire.call import Call
from tarn.snapshot.files.manifest import SavedRepository
from tarn.snapshot.files.stored import StoredSnapshot
from tarn.snapshot.files.target import FolderTarget
from tarn.snapshot.files.work import RateLimiter, TransferOptions
from tarn.snapshot.repository.dumping import RepositoryDump
from tarn.snapshot.repository.transfer import Restored, Transfer, checked
from tarn_proto.graveler.v1.repository_service_pb2 import Repository

__all__ = ["Bringing"]

_LINES: Final = 5000
"""Lines of the dump that are written at a time."""
_PLACE: Final = "refs"
_INSTANCE: Final = "instance_uid"
_RULE: Final = "objects deleted in lakeFS"
"""The rule of commits of which objects were gone."""


class Bringing:
    """One repository that is brought over.

    Args:
        graveler: the server.
        call: returns the context of a new call.
        transfer: restores the metadata.
        history: writes the history.
        state: of the import.
        repository_id: the repository to make.
        namespace: its storage namespace.
        default_branch: its default branch; the dump has it.
        settings: its rules.
        clock: tells the time.
        ids: makes ids.
    """

    def __init__(
        self,
        graveler: GravelerClient,
        call: Callable[[], Call],
        transfer: Transfer,
        history: HistoryImport,
        state: ImportState,
        repository_id: str,
        namespace: str,
        default_branch: BranchId,
        settings: Settings,
        clock: Clock,
        ids: IdSource,
    ) -> None:
        self._graveler = graveler
        self._call = call
        self._transfer = transfer
        self._history = history
        self._state = state
        self._repository_id = repository_id
        self._namespace = namespace
        self._default_branch = default_branch
        self._settings = settings
        self._options = TransferOptions(clock, RateLimiter(clock))
        self._ids = ids
        self._restore_id = "lakefs-" + hashlib.sha256(namespace.encode()).hexdigest()[:40]

    async def run(self) -> Restored:
        """Writes what is missing, verifies it, and makes the repository visible. May be repeated at any point.

        Raises:
            TarnError: of the import, the verification, and the restore.
        """
        if (complete := await self._complete()) is not None:
            return Restored(repository=complete)
        await self._history.require_empty()
        if self._state.get(_INSTANCE):
            await self._begin()
        async with aclosing(self._history.write()) as commits:
            async for _ in commits:
                if not self._state.get(_INSTANCE):
                    await self._begin()
        await self._history.write_notes()
        await self._history.verify()
        self._history.progress.step = "restoring refs"
        dump = await self._written_dump()
        return await self._transfer.restore(self._repository_id, dump, restore_id=self._restore_id)

    async def _begin(self) -> None:
        """Takes the name and the namespace, which needs a commit there."""
        begun = await self._graveler.begin_restore(
            self._call(),
            self._repository_id,
            self._namespace,
            default_branch_id=self._default_branch,
            restore_id=self._restore_id,
        )
        self._state.set(_INSTANCE, begun.instance_uid)

    async def _complete(self) -> Repository | None:
        """Returns the repository if an earlier run has completed it, and its answer was lost."""
        if not self._state.get(_INSTANCE):
            return None
        try:
            found = await self._graveler.get_repository(self._call(), self._repository_id)
        except TarnError as error:
            if error.kind is Kind.NOT_FOUND:  # it is not visible yet
                return None
            raise
        if found.instance_uid == self._state.get(_INSTANCE):
            return found
        text = f"repository {self._repository_id} is another one by now; name a new one, and another folder by --work"
        raise TarnError(Kind.ALREADY_EXISTS, Reason.REPOSITORY_EXISTS, text)

    async def _written_dump(self) -> StoredSnapshot:
        place = self._state.folder / _PLACE
        await asyncio.to_thread(shutil.rmtree, place, ignore_errors=True)
        target = FolderTarget(place)
        dump = await RepositoryDump.begin(target, self._repository_id, self._ids, self._options)
        dumped = SavedRepository(
            self._repository_id,
            self._state.get(_INSTANCE),
            self._namespace,
            self._default_branch,
        )
        lines = self._lines()
        while some := list(islice(lines, _LINES)):
            await dump.append(some, dumped, "more")
        await dump.append([], dumped, "")
        await dump.finish()
        return await checked(target, self._options)

    def _lines(self) -> Iterator[str]:
        yield to_line(self._settings)
        for name, (commit_id, commit) in self._history.heads("branch"):
            yield to_line(BranchLine(BranchId(name), commit_id, commit.create_time_us, 0))
        for name, (commit_id, commit) in self._history.heads("tag"):
            yield to_line(TagLine(TagId(name), commit_id, commit.create_time_us))
        yield from self._state.lines()
        for line in self._state.lines(of_expired=True):
            expired = from_line(line)
            assert isinstance(expired, Commit), "the state has lines of commits"
            expiry = Expiry(_RULE, expired.create_time_us)
            yield to_line(ExpiredLine(commit_id_of(expired), expiry))
