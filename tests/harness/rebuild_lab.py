"""A lake with a journal, the loss of its metadata store, and its rebuild into a new one."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from lake import MAIN, Lake, Replicas, create_repository
from tests.support.clock import RestlessClock, SeededIds

from tarn.core.ids import AccessKeyId, BranchId, TokenId, UserId, physical_path
from tarn.core.levels import ALL_FEATURES
from tarn.core.listing.breaks import BreakRule
from tarn.fsck.check import check
from tarn.fsck.finding import Severity
from tarn.fsck.progress import CheckProgress
from tarn.fsck.session import FsckOptions
from tarn.fsck.state import open_state
from tarn.journal.accounts import Accounts
from tarn.journal.epochs import newest_epoch
from tarn.journal.following import note_newest
from tarn.journal.reading import EpochReader
from tarn.journal.replayed import ReplayedJournal
from tarn.kv.auth_records import (
    Credential,
    Setup,
    User,
    encode_credential,
    encode_setup,
    encode_user,
)
from tarn.kv.embedded import open_embedded
from tarn.kv.keys import AuthKeys, InstallationKeys, RepositoryKeys
from tarn.kv.mem import MemKv
from tarn.kv.paging import rows_of
from tarn.kv.port import Kv
from tarn.kv.record_events import JournaledKv
from tarn.kv.record_kinds import Place, kind_of
from tarn.kv.records import Repository, decode_branch, decode_bucket
from tarn.snapshot.store import OpenStore, RateLimiter, TransferOptions
from tarn_graveler.assembly import Graveler
from tarn_graveler.config import open_committed
from tarn_graveler.rebuild.adding import add_repository
from tarn_graveler.rebuild.filling import fill_installation
from tarn_graveler.rebuild.listings import Show, show_nothing
from tarn_graveler.rebuild.report import RebuildReport, RepositoryReport
from tarn_graveler.rebuild.repository import Rebuilder
from tarn_graveler.records.branches import BranchName
from tarn_graveler.records.repositories import Repositories

__all__ = [
    "INSTALLATION",
    "NAMESPACE",
    "Died",
    "Life",
    "Mortal",
    "RebuildLab",
    "rebuild_lab",
    "records_of",
]

INSTALLATION = "test"
_NO_BLOCK = physical_path(bytes(16))
"""Objects of a lake all have this address, and no block."""
NAMESPACE = f"local://tarn-journal-{INSTALLATION}"


_WRITES = {"set_many", "set_if", "delete_many", "delete_if", "drop_partition", "put"}


class Died(BaseException):
    """The process is gone."""


class Life:
    """Counts the moments at which a process may die, and lets it die at one of them."""

    def __init__(self, die_at: int) -> None:
        self.moments = 0
        self.die_at = die_at

    def step(self) -> None:
        self.moments += 1
        if self.moments == self.die_at:
            raise Died


class Mortal:
    """A store whose process may die before and after each write: the write is then made, or not."""

    def __init__(self, store: Any, life: Life) -> None:
        self._store = store
        self._life = life

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if name not in _WRITES:
            return method

        async def write(*values: Any, **options: Any) -> Any:
            self._life.step()
            answer = method(*values, **options)
            result = await answer if inspect.isawaitable(answer) else answer
            self._life.step()
            return result

        return write


@dataclass
class RebuildLab:
    """A lake with a journal.

    Attributes:
        target: the store that is rebuilt.
    """

    replicas: Replicas
    lake: Lake
    folder: Path
    target: Any = field(default_factory=MemKv)
    attempts: int = 0

    async def drain(self, graveler: Graveler | None = None) -> None:
        """Makes a round of the drain."""
        drain = (graveler or self.lake.graveler).drain
        assert drain is not None
        while not await drain.round():
            self.replicas.clock.advance(61)

    async def rebuild(
        self,
        target: Any = None,
        *,
        blocks: Any = None,
        namespace: str = NAMESPACE,
        rule: BreakRule | None = None,
        ready: Sequence[ReplayedJournal] = (),
    ) -> RebuildReport:
        """Rebuilds into the target, or into another store; takes over journals that a job has replayed."""
        self.attempts += 1
        clock, ids = self.replicas.clock, SeededIds(self.replicas.clock, seed=900 + self.attempts)
        made = MemKv()
        options = TransferOptions(clock, RateLimiter(clock))
        place = OpenStore(
            self.target if target is None else target, INSTALLATION, "mem://", is_shared=False
        )
        async with open_committed(
            self.replicas.blocks, self.folder / f"rebuild{self.attempts}", rule=rule
        ) as committed:
            keys = InstallationKeys(INSTALLATION)
            bucket = self.replicas.blocks if blocks is None else blocks
            replayed = {each.namespace: each for each in ready}
            tools = Rebuilder(made, keys, bucket, committed, clock, ids, replayed)
            return await fill_installation(tools, made, place, ids, options, namespace)

    def new_target(self) -> None:
        """Forgets what was rebuilt."""
        self.target = MemKv()

    async def add(
        self,
        target: Any = None,
        *,
        blocks: Any = None,
        default: BranchId = MAIN,
        show: Show = show_nothing,
    ) -> RepositoryReport:
        """Adds the lake to the target, which stands for a store that was filled from a backup."""
        self.attempts += 1
        keys = InstallationKeys(INSTALLATION)
        await note_newest(self.target, keys, self.replicas.blocks, NAMESPACE)
        clock, ids = self.replicas.clock, SeededIds(self.replicas.clock, seed=900 + self.attempts)
        store = self.target if target is None else target
        kv = JournaledKv(store, INSTALLATION, clock, ids, ALL_FEATURES)
        bucket = self.replicas.blocks if blocks is None else blocks
        async with open_committed(bucket, self.folder / f"rebuild{self.attempts}") as committed:
            tools = Rebuilder(MemKv(), keys, bucket, committed, clock, ids)
            repositories = Repositories(kv, keys, clock, ids)
            namespace = self.lake.repository.storage_namespace
            name = self.lake.repository.repository_id
            adding = add_repository(tools, repositories, store, name, namespace, default, show)
            task = asyncio.ensure_future(adding)
            while not task.done():  # a claim waits until that of a dead attempt is certainly dead
                await asyncio.wait([task], timeout=0.005)
                if clock.sleepers:
                    clock.advance(1)
            return task.result()

    async def is_added(self) -> bool:
        """Whether users see the lake in the target."""
        keys = InstallationKeys(INSTALLATION)
        (found,) = await self.target.get_many(keys.graveler, [keys.repository("lake")])
        record = None if found is None else decode_bucket(found.value)
        return isinstance(record, Repository) and record.is_served

    @asynccontextmanager
    async def rebuilt(self) -> AsyncIterator[tuple[Graveler, Repository]]:
        """Yields a replica over the rebuilt store, and its repository."""
        folder = self.folder / f"rebuilt{self.attempts}"
        replicas = Replicas(folder, self.target, keeps_events=True)
        replicas.clock, replicas.blocks = self.replicas.clock, self.replicas.blocks
        replicas.count = 50 + self.attempts
        async with replicas.replica() as graveler:
            yield graveler, await graveler.repositories.get("lake")
        await replicas.tasks.close()

    async def add_user(self, user_id: str, access_key_id: str) -> None:
        """Writes the records of a user with a key, as auth does."""
        kv = self.lake.graveler.repositories.kv
        auth = AuthKeys(INSTALLATION)
        user = User(UserId(user_id), b"u" * 16, ("Developer",), 1)
        key = Credential(
            AccessKeyId(access_key_id), UserId(user_id), b"u" * 16, "of a test", 1, b"sealed", "k"
        )
        for name, value in (
            (auth.user(user_id), encode_user(user)),
            (auth.credential(access_key_id), encode_credential(key)),
            (auth.setup(), encode_setup(Setup(1, UserId(user_id)))),
        ):
            await kv.set_if(auth.partition, name, value, None)

    async def pass_files(self) -> list[str]:
        """The paths of the files of passes of the lake's journal, the oldest first."""
        blocks, namespace = self.replicas.blocks, self.lake.repository.storage_namespace
        epoch = await newest_epoch(blocks, namespace)
        assert epoch is not None
        names = await EpochReader(blocks, namespace, epoch, Accounts(1, 0)).names()
        return [name.path(epoch.folder) for name in sorted(names)]

    async def remove(self, namespace: str, path: str) -> None:
        """Removes a file of the bucket."""
        await self.replicas.blocks.delete_many(namespace, [path])

    async def fsck(self) -> list[tuple[str, str]]:
        """Returns what is lost or inconsistent in the rebuilt store, beside the blocks of the lake."""
        clock = RestlessClock(self.replicas.clock.now_us() + 2 * 86_400_000_000)
        state = open_state(self.folder / f"fsck{self.attempts}", "", clock.now_us())
        try:
            await check(
                installation_id=INSTALLATION,
                kv=self.target,
                blocks=self.replicas.blocks,
                state=state,
                options=FsckOptions(),
                clock=clock,
                progress=CheckProgress(),
            )
            return [
                (each.code.label, each.subject)
                for each in state.findings()
                if each.code.severity is not Severity.ORPHAN and each.subject != _NO_BLOCK
            ]
        finally:
            state.close()

    async def shown(self, graveler: Graveler, repository: Repository) -> dict[str, Any]:
        """Everything that users see of a repository: the entries of each branch and its changes, tags, and records."""
        found: dict[str, Any] = {"records": await records_of(graveler.repositories.kv, repository)}
        async for name, branch in graveler.iterators.branches(repository):
            entries = graveler.iterators.entries(repository, name)
            found[name] = {path: packed async for path, packed in entries}
            of = BranchName(repository, name)
            page = await graveler.diffing.uncommitted(of, prefix="", after="", limit=1000)
            changes = dict(zip(page.paths, page.rights, strict=True))
            found[f"{name}: changes"] = branch.commit_id, changes
        return found


async def records_of(kv: Kv, repository: Repository) -> dict[str, Any]:
    """All records that a rebuild makes: of the installation, and of a repository. Branches without their layers."""
    installation = InstallationKeys(INSTALLATION)
    keys = installation.of_repository(repository.repository_id, repository.instance_uid)
    partitions = {
        Place.GRAVELER: installation.graveler,
        Place.AUTH: AuthKeys(INSTALLATION).partition,
        Place.REFS: keys.refs,
        Place.COMMITS: keys.commits,
        Place.PULLS: keys.pulls,
    }
    found: dict[str, Any] = {}
    for place, partition in partitions.items():
        async for key, value in rows_of(kv, partition, b"", None, 1000):
            if kind_of(place, key).is_journaled or key.startswith(b"commits/"):
                found[key.decode()] = _told(key, value)
    return {key: value for key, value in found.items() if value is not None}


def _told(key: bytes, value: bytes) -> Any:
    if key.startswith((AuthKeys.credential(""), AuthKeys.setup())):
        return None
    if key == RepositoryKeys.COLLECTION:  # held, with counters ahead
        return None
    if key.startswith(RepositoryKeys.branch("")):
        branch = decode_branch(value)
        return replace(
            branch,
            staging=replace(branch.staging, token_id=TokenId(""), create_time_us=0),
            sealed=(),
            compacted_metarange_id=None,
            compaction_start_time_us=0,
            pins=(),
        )
    return value


@asynccontextmanager
async def rebuild_lab(folder: Path, blocks: Any = None) -> AsyncIterator[RebuildLab]:
    """Makes a lake with a journal over an embedded store; blocks are in memory, or those of the caller."""
    kv = await open_embedded(folder / "kv.db", durability="os")
    replicas = Replicas(folder, kv, keeps_events=True)
    if blocks is not None:
        replicas.blocks = blocks
    async with replicas.replica() as graveler:
        repository = await create_repository(graveler)
        lake = Lake(graveler, repository, replicas.kv, replicas.clock, replicas.meters)
        lab = RebuildLab(replicas, lake, folder)
        await lab.drain()
        yield lab
    await replicas.tasks.close()
    await replicas.kv.close()
