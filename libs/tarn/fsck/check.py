"""Runs one check of an installation, from its first read to its last finding."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor

from tarn.block.port import ReadBlocks
from tarn.core.clock import Clock
from tarn.core.errors import Kind, Reason, TarnError
from tarn.fsck.blocks import Blocks
from tarn.fsck.confirming import Confirming, verify_data
from tarn.fsck.erased import check_erased
from tarn.fsck.finding import Code
from tarn.fsck.history import History
from tarn.fsck.installation import Installation
from tarn.fsck.listings import Listings
from tarn.fsck.names import check_names
from tarn.fsck.progress import CheckProgress
from tarn.fsck.reads import Reads
from tarn.fsck.references import References
from tarn.fsck.reflog import check_reflog
from tarn.fsck.session import FsckOptions, FsckSession, Lake
from tarn.fsck.staged import gather_staged
from tarn.fsck.state import State
from tarn.fsck.uploads import check_pulls, check_refs_partition, check_uploads, gather_uploads
from tarn.kv.keys import InstallationKeys
from tarn.kv.port import ReadKv
from tarn.kv.records import Repository

__all__ = ["check"]

_BLIND = (
    Code.COMMIT_MISSING,
    Code.COMMIT_ROW_DAMAGED,
    Code.METARANGE_MISSING,
    Code.METARANGE_DAMAGED,
    Code.RANGE_MISSING,
    Code.RANGE_DAMAGED,
    Code.RECORD_DAMAGED,
    Code.ENTRY_INVALID,
    Code.TOKEN_UNREADABLE,
)
"""Findings that hide references: with one of these, no object of the repository is called an orphan."""


async def check(
    *,
    installation_id: str,
    kv: ReadKv,
    blocks: ReadBlocks,
    state: State,
    options: FsckOptions,
    clock: Clock,
    progress: CheckProgress,
    executor: Executor | None = None,
) -> None:
    """Checks everything in scope; findings are in `state`.

    A check that was cancelled or killed continues where it stopped when it is called again with the same
    state.

    Raises:
        TarnError: REPOSITORY_NOT_FOUND, REF_NOT_FOUND for a scope that does not exist; errors of a store
            that cannot be read now.
    """
    loop = asyncio.get_running_loop()

    async def compute(work: Callable[[], object]) -> object:
        return await loop.run_in_executor(executor, work)

    reads = Reads(kv, blocks, clock, progress, options.requests_per_second)
    keys = InstallationKeys(installation_id)
    session = FsckSession(options, reads, state, progress, clock, keys, compute)
    try:
        await _Check(session).run()
    finally:
        state.save()


class _Check:
    def __init__(self, session: FsckSession) -> None:
        self._session = session
        self._state = session.state
        self._installation = Installation(session)

    async def run(self) -> None:
        options, installation = self._session.options, self._installation
        self._session.progress.begin("installation")
        if options.is_whole and not self._state.is_done("partitions"):
            await installation.list_partitions()
            self._state.done("partitions")
        repositories = await self._repositories()
        for repository in repositories:
            await self._repository(self._session.lake(repository))
        if options.is_whole:
            self._session.progress.begin("installation")
            await installation.check_auth()
            await installation.check_place()
            await installation.check_drops()
            await installation.check_namespaces()
            await installation.check_partitions()
        for repository in repositories:
            if not await self._session.is_alive(repository):
                self._state.forget_findings(repository.repository_id)
        self._state.finish()

    async def _repositories(self) -> list[Repository]:
        wanted = set(self._session.options.repositories)
        found = [
            repository
            async for repository in self._installation.repositories()
            if not wanted or repository.repository_id in wanted
        ]
        if missing := wanted - {repository.repository_id for repository in found}:
            text = f"repository {min(missing)} does not exist"
            raise TarnError(Kind.NOT_FOUND, Reason.REPOSITORY_NOT_FOUND, text)
        return found

    async def _repository(self, lake: Lake) -> None:
        """Checks one repository: gathers references in the order in which they move: uploads, tokens,
        commits.

        So a reference that moves meanwhile is found at least once. The second round handles copies in the
        opposite direction, and orphans in general.
        """
        step = f"repository {lake.uid}"
        if self._state.is_done(step):
            return
        is_whole = not lake.session.options.ref
        blocks, history = Blocks(lake), History(lake)
        if not is_whole:
            await self._require_ref(lake)
        else:
            await self._once(f"refs {lake.uid}", lambda: check_refs_partition(lake))
            await self._once(f"pulls {lake.uid}", lambda: check_pulls(lake))
            await self._once(f"names {lake.uid}", lambda: check_names(lake))
            await self._once(f"uploads {lake.uid}", lambda: check_uploads(lake))
            await self._once(f"reflog {lake.uid}", lambda: check_reflog(lake))
        await self._once(f"gathered 1 {lake.uid}", lambda: self._gather(lake, history, 1))
        if is_whole:
            await self._once(f"files {lake.uid}", blocks.list_metadata)
            await self._once(f"erased {lake.uid}", lambda: check_erased(lake))
        await self._once(f"joined {lake.uid}", blocks.join)
        if lake.session.options.verify_data:
            await self._once(f"data {lake.uid}", lambda: verify_data(lake))
        await Confirming(lake).run()
        if is_whole and not self._is_blind(lake):
            if blocks.has_candidates:
                await self._gather(lake, history, 2)
                blocks.clear_candidates()
            await history.find_unreachable()
            if not self._is_blind(lake):
                blocks.tell_orphans()
        self._state.done(step)

    async def _require_ref(self, lake: Lake) -> None:
        name = lake.session.options.ref_key
        if await lake.session.reads.get(lake.keys.refs, name.encode()) is None:
            text = f"ref {name} does not exist in repository {lake.repository.repository_id}"
            raise TarnError(Kind.NOT_FOUND, Reason.REF_NOT_FOUND, text)

    async def _once(self, step: str, work: Callable[[], Awaitable[None]]) -> None:
        if not self._state.is_done(step):
            await work()
            self._state.done(step)

    async def _gather(self, lake: Lake, history: History, round_number: int) -> None:
        references = References(lake.session.state, lake.uid, round_number)
        try:
            await gather_uploads(lake, references)
            await gather_staged(lake, references, round_number)
            await history.gather()
            await Listings(lake, references).gather()
        finally:
            references.flush()  # saved also when interrupted, so that it is not read again

    def _is_blind(self, lake: Lake) -> bool:
        """Whether an object that holds references cannot be read."""
        name = lake.repository.repository_id
        labels = [code.label for code in _BLIND]
        marks = ",".join("?" * len(labels))
        query = f"SELECT 1 FROM findings WHERE repository=? AND code IN ({marks}) LIMIT 1"  # noqa: S608 - only marks
        return bool(self._state.all(query, name, *labels))
