"""The drain: events of all repositories become files in the bucket, and tokens are dropped only afterwards.

There are two ways to a pass. The *round* reads every branch of every repository, again and again, so that files are
never far behind. Before the cleaner drops a token, the *last scan* reads it and its branch. Rounds have a lease, which
avoids double work; nothing depends on it.

A repository whose bucket refuses files does not stop the others, nor does a branch whose row is damaged; its tokens
stay.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

import structlog

from tarn.aio.bounded_map import BoundedMap
from tarn.block.local.reserve import DiskReserve
from tarn.block.port import BlockStore
from tarn.core.clock import Clock, IdSource
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import BranchId
from tarn.core.levels import Feature, FeatureGate
from tarn.journal.epochs import Epoch, require_newest
from tarn.kv.drop_records import Drop
from tarn.kv.journal_records import DrainRecord, decode_drain, encode_drain
from tarn.kv.keys import InstallationKeys, RepositoryKeys, after_prefix
from tarn.kv.namespace_records import namespace_register
from tarn.kv.paging import rows_of
from tarn.kv.port import Kv
from tarn.kv.records import Repository, decode_bucket
from tarn.kv.register import Register
from tarn_graveler.journal.epochs import Epochs, JournalPlace
from tarn_graveler.journal.manifests import Manifests
from tarn_graveler.journal.passes import RepositoryPasses
from tarn_graveler.journal.pressure import WAITS_US, Pressure
from tarn_graveler.journal.records import RecordEvents
from tarn_graveler.journal.scanning import OverToken, branch_ids

__all__ = ["Drain", "DrainProgress", "DrainSettings"]

_LEASE_US: Final = 60_000_000
_LEVEL_SECONDS: Final = 60.0
"""After this, every replica knows that the store's feature level was raised."""
_BEHIND_MAX: Final = 1_000
"""Repositories that are told one by one to be behind; with more, all count as behind."""
_FULL_MAX: Final = 10_000
"""Repositories whose last full pass is remembered."""
_NAMED_MAX: Final = 20
"""Damaged branches of a repository that the log names."""
_PAGE: Final = 500
_REPOSITORIES: Final = InstallationKeys.repository("")

_log = structlog.get_logger()
_Decide = Callable[[DrainRecord], DrainRecord]


@dataclass(slots=True)
class DrainProgress:
    """How far the drain has come, as this replica knows it.

    Attributes:
        record: the newest one that was read or written.
        failed_passes: passes of this replica that ended with an error.
        last_scans: tokens whose last scan this replica has made.
        damaged: number of branches that the last passes of this replica could not read, by `RepositoryKeys.root`; under
            the empty name that of repositories whose records its last round could not read.
    """

    record: DrainRecord = field(default_factory=DrainRecord)
    failed_passes: int = 0
    last_scans: int = 0
    damaged: dict[str, int] = field(default_factory=dict)

    def lag_us(self, root: str, now_us: int) -> int:
        """How old the oldest change of a repository may be that is not in the bucket; 0 before the first look."""
        until_us = self.record.of(root)
        return max(0, now_us - until_us) if until_us else 0

    def greatest_lag_us(self, now_us: int) -> int:
        """The greatest `lag_us` of all repositories."""
        times = (self.record.drained_until_us, *self.record.behind.values())
        return max((max(0, now_us - us) for us in times if us), default=0)


@dataclass(frozen=True, slots=True)
class DrainSettings:
    """The settings of the drain.

    Attributes:
        namespace: of the journal of what belongs to no repository.
        poll_seconds: pause between two rounds.
        lag_seconds_max: from which lag on a repository takes no writes.
        undrained_max: bytes of undrained events of the installation from which on a repository that is behind takes no
            writes.
        reserve: what writes leave free on the disk of the store, for deletes, commits and their events; None: its disk
            is not known.
    """

    namespace: str
    poll_seconds: float = 10.0
    lag_seconds_max: float = 3_600.0
    undrained_max: int = 4 << 30
    reserve: DiskReserve | None = None


class _Journals:
    """The passes of this process, by repository: one at a time for each."""

    def __init__(self) -> None:
        self.passes: dict[str, RepositoryPasses] = {}
        self.locks: dict[str, asyncio.Lock] = {}

    def lock(self, root: str) -> asyncio.Lock:
        return self.locks.setdefault(root, asyncio.Lock())

    def keep(self, roots: Iterable[str]) -> None:
        """Forgets repositories that are gone."""
        known = set(roots)
        self.passes = {root: each for root, each in self.passes.items() if root in known}
        self.locks = {
            root: lock for root, lock in self.locks.items() if root in known or lock.locked()
        }


class Drain:
    """Drains the journals of an installation. Several replicas may do so.

    Args:
        kv: the store.
        keys: of the installation.
        blocks: gets the files.
        clock: times of passes and the lease.
        ids: makes the names of holders and folders.
        features: say whether replicas write events.
        settings: see there.
        pressure: counts the undrained events; by default of none.

    Attributes:
        progress: for metrics and for the refusal of writes.
        pressure: see there.
    """

    def __init__(
        self,
        kv: Kv,
        keys: InstallationKeys,
        blocks: BlockStore,
        clock: Clock,
        ids: IdSource,
        features: FeatureGate,
        settings: DrainSettings,
        pressure: Pressure | None = None,
    ) -> None:
        self._kv = kv
        self._keys = keys
        self._blocks = blocks
        self._clock = clock
        self._ids = ids
        self._features = features
        self._ready_at = 0.0
        self._settings = settings
        # A repository that is drained to less than this ago takes writes, whatever waits.
        self._writes_us = min(WAITS_US, settings.lag_seconds_max * 1_000_000)
        self._epochs = Epochs(kv, keys, blocks, clock, ids)
        self._holder = ""
        self._journals = _Journals()
        self._records = RecordEvents(kv, keys, clock)
        self._manifests = Manifests(blocks, clock)
        self._full: BoundedMap[str, float] = BoundedMap(_FULL_MAX)
        self._shared = JournalPlace(keys.installation_id, settings.namespace)
        self.progress = DrainProgress()
        self.pressure = pressure or Pressure(clock, settings.undrained_max)

    async def run(self) -> None:
        """Drains until cancelled; logs errors and repeats."""
        while True:
            try:
                await self.round()
            except TarnError as error:
                self.progress.failed_passes += 1
                _log.warning(
                    "the journal was not drained", reason=error.reason, error=error.message
                )
            await self._clock.sleep(self._settings.poll_seconds)

    # ---- rounds

    async def round(self) -> bool:
        """Drains all repositories, unless another replica does; returns whether it did.

        Raises:
            TarnError: errors of the store. Those of single repositories are logged, and noted in the record.
        """
        begin_us = self._clock.now_us()
        self._holder = self._holder or self._ids.nonce().hex()
        if not self._is_ready() or not await self._lease(begin_us):
            return False
        behind: dict[str, int] = {}
        self._records.begin(self.progress.record.first_hour)
        changed = await self._records.roots()
        roots: list[str] = []
        damaged: list[str] = []
        async for place in self._places(damaged):
            roots.append(place.root)
            if not await self._drained(place, has_records=place.root in changed):
                behind[place.root] = self.progress.record.of(place.root)
            else:
                await self._write_manifests(place)
            await self._renew()
        self._journals.keep(roots)
        self.progress.damaged = {
            root: count for root, count in self.progress.damaged.items() if root in roots
        }
        if damaged:
            self._tell_damaged_repositories(damaged)
        else:
            await self._records.finish(await self._records.of_dead(changed.difference(roots)))
        until_us = begin_us
        if len(behind) > _BEHIND_MAX:
            until_us, behind = min(behind.values()), {}
        ended = partial(
            replace,
            drained_until_us=until_us,
            behind=behind,
            first_hour=self._records.first_hour,
        )
        await self._change(lambda found: ended(found) if found.holder == self._holder else found)
        return True

    def _is_ready(self) -> bool:
        """Whether all replicas write events. An epoch that begins before has a base that lacks some rows."""
        if not self._features.allows(Feature.JOURNAL):
            self._ready_at = self._clock.monotonic() + _LEVEL_SECONDS
            return False
        return self._clock.monotonic() >= self._ready_at

    async def _drained(self, place: JournalPlace, *, has_records: bool) -> bool:
        """Drains one repository; returns whether that succeeded."""
        try:
            await self._pass(place, self._branches(place), {}, has_records=has_records)
        except TarnError as error:
            self.progress.failed_passes += 1
            _log.warning(
                "the journal of a repository was not drained",
                namespace=place.namespace,
                reason=error.reason,
                error=error.message,
            )
            return False
        return True

    async def _write_manifests(self, place: JournalPlace) -> None:
        """Writes the manifests of past days. An error is logged: nothing is lost without one."""
        passes = self._journals.passes.get(place.root)
        if passes is None:
            return
        try:
            await self._manifests.write_due(place, passes.epoch)
        except TarnError as error:
            _log.warning(
                "a past day of the journal has no manifest yet",
                namespace=place.namespace,
                reason=error.reason,
                error=error.message,
            )

    async def drain(self, place: JournalPlace, *, is_full: bool = False) -> Epoch | None:
        """Drains a repository: what was acknowledged before this call is in the bucket on return.

        Args:
            place: the repository.
            is_full: reads all events, whatever earlier passes have read.

        Returns:
            The epoch of its files; None: no replica writes events.

        Raises:
            TarnError: FAILED_PRECONDITION: its journal is of another store. CONFLICT: it was switched off meanwhile.
                UNAVAILABLE: some replicas may not write events yet. CORRUPT: some branches are damaged; the others are
                drained. Errors of the stores.
        """
        if not self._is_ready():
            if not self._features.allows(Feature.JOURNAL):
                return None  # no replica writes events, and no epoch has begun
            text = f"the journal begins {_LEVEL_SECONDS:.0f} s after the feature level was raised; try again then"
            raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, text)
        self._records.begin(self.progress.record.first_hour)
        passes = await self._pass(place, self._branches(place), {}, is_full=is_full)
        if damaged := passes.damaged:
            text = (
                f"some events of {place.namespace} are not in the bucket, because {_damage_text(damaged)}: "
                "nothing that needs them may be deleted; run `tarn fsck`"
            )
            raise TarnError(Kind.CORRUPT, Reason.DATA_CORRUPT, text)
        return passes.epoch

    async def before_deletion(self, repository: Repository | None, ended_at: float) -> None:
        """Returns when the events that ended references to blocks are in the bucket, so that these may be deleted.

        Otherwise a rebuild would name a block that is gone. The store may be one that was lost, and that a rebuild has
        followed: so its epoch must still be the newest one when the files are there. Then the rebuild finds them, as it
        looks for files again when its own epoch has begun (`tarn.journal.source.require_unchanged`).

        Args:
            repository: of the blocks; None: the events belong to no repository.
            ended_at: a time after the last of the references ended, on the monotonic clock.

        Raises:
            TarnError: as `drain`: nothing may be deleted.
        """
        place = self._shared if repository is None else self.place_of(repository)
        full_at = self._full.get(place.root)
        if full_at is not None and full_at > ended_at:
            return
        began_at = self._clock.monotonic()
        if (epoch := await self.drain(place, is_full=True)) is not None:
            await require_newest(self._blocks, place.namespace, epoch)
        self._full.put(place.root, began_at)

    async def note_newest(self, repository: Repository) -> None:
        """Notes for a repository that is being created which epoch its journal may follow (`Epochs.note_newest`).

        Before all replicas write events, nothing is noted.

        Args:
            repository: nobody sees it yet.
        """
        if self._is_ready():
            async with self._journals.lock(self._shared.root):
                await self._epochs.note_newest(self.place_of(repository), self._shared)

    async def _places(self, damaged: list[str]) -> AsyncIterator[JournalPlace]:
        """Yields where journals are. A repository whose row cannot be read has none; its name is added to `damaged`."""
        yield self._shared
        end = after_prefix(_REPOSITORIES)
        async for key, value in rows_of(self._kv, self._keys.graveler, _REPOSITORIES, end, _PAGE):
            try:
                found = decode_bucket(value)
            except TarnError as error:
                if error.kind is not Kind.CORRUPT:
                    raise
                damaged.append(key.removeprefix(_REPOSITORIES).decode())
                continue
            if isinstance(found, Repository) and not (found.is_deleted or found.is_pending):
                yield self.place_of(found)

    def place_of(self, repository: Repository) -> JournalPlace:
        """Where the journal of a repository is."""
        keys = self._keys.of_repository(repository.repository_id, repository.instance_uid)
        return JournalPlace(keys.root, repository.storage_namespace)

    async def _branches(self, place: JournalPlace) -> AsyncIterator[BranchId]:
        if place != self._shared:
            async for branch_id in branch_ids(self._kv, RepositoryKeys(place.root)):
                yield branch_id

    def require_drained(self, repository: Repository) -> None:
        """Does nothing unless a repository takes no more writes.

        Its files are far behind; or they are behind at all, and too many events of the installation wait for the
        bucket; or the disk of the store is known, and full.

        Raises:
            TarnError: EXHAUSTED, JOURNAL_BEHIND; UNAVAILABLE: the disk has no more than its reserve.
        """
        if (reserve := self._settings.reserve) is not None:
            reserve.check(f"write to repository {repository.repository_id}")
        now_us, record = self._clock.now_us(), self.progress.record
        if now_us - record.drained_until_us <= self._writes_us and not record.behind:
            return  # as nearly always
        lag_us = self.progress.lag_us(self.place_of(repository).root, now_us)
        pressure, why = self.pressure, ""
        is_full = lag_us > WAITS_US and pressure.total > pressure.size_max
        if lag_us <= self._settings.lag_seconds_max * 1_000_000 and not is_full:
            return
        name, seconds = repository.repository_id, lag_us // 1_000_000
        if is_full:
            why = (
                f", and {pressure.total >> 20} MiB of events wait for buckets, more than {pressure.size_max >> 20} MiB "
                "(journal.undrained_max)"
            )
        text = (
            f"repository {name} takes no writes now: its bucket has taken no files of the journal for {seconds} s"
            f"{why}. Deletes go on. The log of graveler says why (docs/operate/journal.md); nothing was done"
        )
        raise TarnError(
            Kind.EXHAUSTED, Reason.JOURNAL_BEHIND, text, repository=name, seconds=str(seconds)
        )

    # ---- last scans

    async def last_scans(self, drops: Sequence[Drop]) -> list[Drop]:
        """Makes the last scans of tokens that are over; returns those whose events are in the bucket now.

        A token whose data are being deleted with their repository has none.

        Args:
            drops: with `journal`; of any repositories.
        """
        by_place: dict[JournalPlace, list[Drop]] = {}
        if not self._is_ready():
            # Before the level is raised, there are no events; then, for a while, some replicas write none yet.
            return [] if self._features.allows(Feature.JOURNAL) else list(drops)
        for drop in drops:
            assert drop.journal is not None
            place = JournalPlace(drop.journal.root, drop.journal.storage_namespace)
            by_place.setdefault(place, []).append(drop)
        drained: list[Drop] = []
        for place, some in by_place.items():
            try:
                scanned = await self._last_scans(place, some)
            except TarnError as error:
                self.progress.failed_passes += 1
                _log.warning(
                    "tokens stay, because their events are not in the bucket",
                    namespace=place.namespace,
                    tokens=len(some),
                    reason=error.reason,
                    error=error.message,
                )
            else:
                drained += scanned
                self.progress.last_scans += len(scanned)
        return drained

    async def _last_scans(self, place: JournalPlace, drops: Sequence[Drop]) -> Sequence[Drop]:
        """Returns those whose branches could be read."""
        if await self._is_purged(place):
            return drops
        # A token may be announced several times.
        found: dict[BranchId, dict[str, OverToken]] = {}
        for drop in sorted(drops, key=_token_id):
            assert drop.journal is not None
            token = OverToken(drop.journal.token_id, drop.partition)
            found.setdefault(drop.journal.branch_id, {})[token.token_id] = token
        over = {branch_id: list(tokens.values()) for branch_id, tokens in found.items()}
        self._records.begin(self.progress.record.first_hour)
        passes = await self._pass(place, _each(sorted(over)), over, has_records=False)
        return [
            each
            for each in drops
            if each.journal and passes.has_drained(each.journal.branch_id, each.journal.token_id)
        ]

    async def _is_purged(self, place: JournalPlace) -> bool:
        """Whether all data of a namespace are being deleted, or are deleted: a file would stay for ever."""
        held = await namespace_register(self._kv, self._keys, place.namespace).read()
        if held is None or held.purge_begin_us == 0:
            return False
        keys = self._keys.of_repository(held.repository_id, held.instance_uid)
        return keys.root == place.root

    # ---- both

    async def _pass(
        self,
        place: JournalPlace,
        branches: AsyncIterator[BranchId],
        over: Mapping[BranchId, Sequence[OverToken]],
        *,
        has_records: bool = True,
        is_full: bool = False,
    ) -> RepositoryPasses:
        async with self._journals.lock(place.root):
            epoch = await self._epochs.current(place)
            passes = self._journals.passes.pop(place.root, None)
            if passes is None or passes.epoch != epoch:
                passes = RepositoryPasses(
                    self._kv, self._blocks, place, epoch, self._clock, self._ids
                )
            drained = await passes.run(
                branches,
                over,
                partial(self._records.of, place.root),
                has_records=has_records,
                is_full=is_full,
            )
            await self._epochs.require_continued(place, epoch)
            self._journals.passes[place.root] = passes  # only without an error
            self._tell_damaged(place, passes.damaged)
            try:
                await self._records.finish(drained)
            except TarnError as error:
                self.progress.failed_passes += 1
                _log.warning(
                    "events of records stay in the store, although they are in the bucket; the next pass removes them",
                    namespace=place.namespace,
                    reason=error.reason,
                    error=error.message,
                )
            return passes

    def _tell_damaged(self, place: JournalPlace, damaged: Mapping[BranchId, str]) -> None:
        self.progress.damaged.pop(place.root, None)
        if not damaged:
            return
        self.progress.damaged[place.root] = len(damaged)
        _log.warning(
            "branches are damaged in the store: their events stay there, and their tokens are not dropped",
            namespace=place.namespace,
            branches=sorted(damaged)[:_NAMED_MAX],
            count=len(damaged),
            error=_damage_text(damaged),
        )

    def _tell_damaged_repositories(self, names: Sequence[str]) -> None:
        """Their events and registrations stay: they would look like those of repositories that are gone."""
        self.progress.damaged[""] = len(names)
        _log.warning(
            "records of repositories are damaged: nothing of these is drained, and they take no calls",
            repositories=names[:_NAMED_MAX],
            count=len(names),
        )

    # ---- the record

    async def _lease(self, now_us: int) -> bool:
        """Takes the lease; returns False if another replica has it. Tells what this replica has written."""

        def decide(found: DrainRecord) -> DrainRecord:
            self.pressure.learn(found, self._holder)
            found = self.pressure.told(found, self._holder)
            if found.holder not in ("", self._holder) and now_us < found.lease_until_us:
                return found
            until_us = found.drained_until_us or now_us  # nothing was acknowledged before the first
            return replace(
                found,
                holder=self._holder,
                lease_until_us=now_us + _LEASE_US,
                drained_until_us=until_us,
            )

        return (await self._change(decide)).holder == self._holder

    async def _renew(self) -> None:
        now_us = self._clock.now_us()
        if self.progress.record.lease_until_us - now_us < _LEASE_US // 2:
            await self._lease(now_us)

    async def _change(self, decide: _Decide) -> DrainRecord:
        row = Register(
            self._kv,
            self._keys.journal_state,
            self._keys.DRAIN,
            decode_drain,
            encode_drain,
            "the record of the journal's drain",
        )
        self.progress.record = await row.change(decide)
        self.pressure.learn(self.progress.record, self._holder)
        return self.progress.record


def _damage_text(damaged: Mapping[BranchId, str]) -> str:
    name = min(damaged)
    more = f", and {len(damaged) - 1} more" if len(damaged) > 1 else ""
    return f"branch {name} is damaged ({damaged[name]}){more}"


def _token_id(drop: Drop) -> str:
    assert drop.journal is not None
    return drop.journal.token_id


async def _each(branches: Iterable[BranchId]) -> AsyncIterator[BranchId]:
    for branch_id in branches:
        yield branch_id
