"""Repositories: records in the installation's register partition.

A repository and its storage namespace are won as `claiming` describes: the record is placed as pending,
the row of the namespace stores its instance, and `publish` makes the record live. A creation that fails
half-way frees both; one that crashes leaves them to the next creation with that name or namespace. The
next creation first makes sure that the older one can never publish, so two *repositories* never share a
namespace, however slow a creator is. A slow creator may still write the files of its first commit (an
empty listing and the commit's object) to a namespace that it has lost: nothing refers to them, and
nothing is overwritten.

Once published, a namespace stays occupied for good: before the record of a deleted repository is removed,
the namespace is marked as final, because it still holds blocks. The same step marks it as doomed, if the
blocks are to be deleted, too (`tarn_graveler.records.purges`).

A repository's record may be cached although another replica deletes the repository: a deletion first
marks the record, then marks every branch by compare-and-set, then drops partitions. A writer's re-check
reads its branch record afresh and sees the mark, whatever its cached repository record says
(docs/design/kv.md).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

from tarn.aio.bounded_map import BoundedMap
from tarn.aio.ttl_cache import TtlCache
from tarn.core.clock import Clock, IdSource
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import BranchId, RepositoryId, parse_repository_id
from tarn.kv.keys import InstallationKeys, RepositoryKeys
from tarn.kv.namespace_records import (
    Namespace,
    decode_namespace,
    encode_namespace,
    namespace_register,
)
from tarn.kv.port import Kv, Versioned
from tarn.kv.records import BucketView, Repository, decode_bucket, encode_repository
from tarn.kv.register import Register, write_once
from tarn_graveler.records.claiming import Claim, Claiming, Holder, Plan, Stage, StoredClaim

__all__ = ["Repositories", "Reservation", "repository_not_found", "stored_claim"]

_CACHE_SECONDS = 5.0
_CACHED_MAX = 10_000
_NAMESPACE_BYTES_MAX = 512


def repository_not_found(repository_id: str) -> TarnError:
    """Returns the error for a repository that does not exist."""
    text = f"repository {repository_id} does not exist"
    return TarnError(Kind.NOT_FOUND, Reason.REPOSITORY_NOT_FOUND, text, repository=repository_id)


def _not_served(repository: Repository) -> TarnError:
    name = repository.repository_id
    if repository.is_deleted or repository.is_pending:
        return repository_not_found(name)
    text = f"repository {name} is being restored; it exists for users once its restore is finished"
    return TarnError(Kind.NOT_FOUND, Reason.REPOSITORY_NOT_FOUND, text, repository=name)


def _exists(repository_id: str, value: bytes) -> TarnError:
    text = f"repository {repository_id} already exists"
    if isinstance(decode_bucket(value), BucketView):
        text = f"the name {repository_id} belongs to a bucket view (tarn bucket list)"
    return TarnError(Kind.ALREADY_EXISTS, Reason.REPOSITORY_EXISTS, text, repository=repository_id)


def _purged(namespace: str) -> TarnError:
    text = (
        f"the data of storage namespace {namespace} are deleted, or are being deleted: its repository was deleted with "
        "its data, and the grace time is over; nothing can be restored from it"
    )
    return TarnError(Kind.ALREADY_EXISTS, Reason.REPOSITORY_EXISTS, text, namespace=namespace)


def stored_claim(value: bytes) -> StoredClaim:
    """Decodes the holder of a bucket name, a repository or a view, for the creation of another one."""
    found = decode_bucket(value)
    uid = found.uid if isinstance(found, BucketView) else found.instance_uid
    return StoredClaim(uid.encode(), Stage.PENDING if found.is_pending else Stage.LIVE)


@dataclass(frozen=True, slots=True)
class Reservation:
    """A repository that is being created, and the right to publish it."""

    repository: Repository
    claim: Claim


class Repositories:
    """Finds, creates and marks repositories.

    Attributes:
        kv: the store of their records.
        keys: of the installation.
    """

    def __init__(
        self,
        kv: Kv,
        keys: InstallationKeys,
        clock: Clock,
        ids: IdSource,
        namespace_prefix: str = "local://",
    ) -> None:
        self.kv = kv
        self.keys = keys
        self._clock = clock
        self._ids = ids
        self._namespace_prefix = namespace_prefix
        self._claiming = Claiming(kv, clock)
        self._cached: TtlCache[str, Repository] = TtlCache(clock, _CACHED_MAX)
        self._keys_of: BoundedMap[str, RepositoryKeys] = BoundedMap(_CACHED_MAX)
        self.misses = 0  # look-ups in `_cached` that found nothing
        self._when_forgotten: list[Callable[[], None]] = []

    @property
    def hits(self) -> int:
        """How often the cache of records had one."""
        return self._cached.hits

    def keys_of(self, repository: Repository) -> RepositoryKeys:
        """Returns the partitions of a repository."""
        uid = repository.instance_uid
        keys = self._keys_of.get(uid)
        if keys is None:
            keys = self.keys.of_repository(repository.repository_id, uid)
            self._keys_of.put(uid, keys)
        return keys

    async def get(self, repository_id: str) -> Repository:
        """Returns a repository; the record is at most five seconds old.

        Raises:
            TarnError: REPOSITORY_NOT_FOUND; INVALID_ARGUMENT for an invalid name.
        """
        found = self._cached.get(repository_id)
        if found is not None:
            return found
        self.misses += 1
        begin = self._clock.monotonic()
        repository = await self.read(parse_repository_id(repository_id))
        if not repository.is_served:
            raise _not_served(repository)
        self._cached.put(repository_id, repository, begin + _CACHE_SECONDS)
        return repository

    def forget(self, repository_id: str) -> None:
        """Drops a cached record that a caller found to be stale."""
        self._cached.pop(repository_id)
        for tell in self._when_forgotten:
            tell()

    def when_forgotten(self, tell: Callable[[], None]) -> None:
        """Has `tell` called each time that a cached record may be stale; not at the end of its time (`kept_until`)."""
        self._when_forgotten.append(tell)

    def kept_until(self, repository_id: str) -> float:
        """Returns until when `get` returns the cached record, on the monotonic clock; a time of the past for none."""
        return self._cached.end_of(repository_id)

    async def read(self, repository_id: RepositoryId, *, settle: bool = False) -> Repository:
        """Reads the current record, whether or not it is marked as deleted; `settle` as in `Kv.get_many`."""
        found = await self._register(repository_id).read(settle=settle)
        if found is None:
            self.forget(repository_id)
            raise repository_not_found(repository_id)
        return found

    async def require(self, repository: Repository) -> None:
        """Reads the record afresh and checks that this instance still exists, live, pending or in the same restore.

        Raises:
            TarnError: REPOSITORY_NOT_FOUND.
        """
        current = await self.read(repository.repository_id)
        # A late call of a restore must not write to a repository that users see by now.
        is_other_stage = current.restore_id != repository.restore_id
        if current.instance_uid != repository.instance_uid or current.is_deleted or is_other_stage:
            self.forget(repository.repository_id)
            raise repository_not_found(repository.repository_id)

    async def change(
        self,
        repository_id: RepositoryId,
        decide: Callable[[Repository], Repository],
        holds: Callable[[Repository], bool] | None = None,
    ) -> Repository:
        """Changes the record, also one that users do not see; returns it. Arguments as `Register.change`.

        Raises:
            TarnError: REPOSITORY_NOT_FOUND; as `Register.change`.
        """
        self.forget(repository_id)
        register = self._register(repository_id)

        def decided(current: Repository | None) -> Repository:
            if current is None:
                raise repository_not_found(repository_id)
            return decide(current)

        def shows(now: Repository | None) -> bool:
            return now is not None and holds is not None and holds(now)

        try:
            changed = await register.change(decided, None if holds is None else shows)
        finally:
            self.forget(repository_id)  # read again in the meantime
        assert changed is not None, "no decision removes the record"
        return changed

    def _register(self, repository_id: RepositoryId) -> Register[Repository | None]:
        return Register(
            self.kv,
            self.keys.graveler,
            self.keys.repository(repository_id),
            self._decoded,
            lambda record: None if record is None else encode_repository(record),
            f"the record of repository {repository_id}",
        )

    @staticmethod
    def _decoded(value: bytes | None) -> Repository | None:
        """The repository of a row; None also for a bucket view, which is no repository."""
        found = None if value is None else decode_bucket(value)
        return None if isinstance(found, BucketView) else found

    async def reserve(
        self,
        repository_id: RepositoryId,
        storage_namespace: str,
        default_branch: BranchId,
        restore_id: str = "",
        client_namespace: str = "",
    ) -> Reservation:
        """Places a pending record and wins its namespace; it is not visible before `publish`.

        A namespace serves one repository for good: two would collect each other's blocks as garbage. Only a restore
        (with a `restore_id`) may take that of a deleted repository, whose blocks it needs. So they are not doomed any
        more; once their deletion has begun, no repository takes it.

        Raises:
            TarnError: REPOSITORY_EXISTS if the name or the namespace is taken; UNAVAILABLE.
        """
        checked = self._namespace(storage_namespace) if storage_namespace else ""

        def record_of(uid: bytes) -> Repository:
            default = f"{self._namespace_prefix}{repository_id}-{uid[-8:].decode()}"
            namespace = checked or self._namespace(default)
            now = self._clock.now_us()
            return Repository(
                repository_id,
                uid.decode(),
                namespace,
                default_branch,
                now,
                restore_id=restore_id,
                client_namespace=client_namespace,
            )

        made: dict[bytes, Repository] = {}

        def encode(uid: bytes, is_pending: bool) -> bytes:
            repository = made.get(uid) or made.setdefault(uid, record_of(uid))
            return encode_repository(replace(repository, is_pending=is_pending))

        claim = await self._claiming.place(
            Plan(
                partition=self.keys.graveler,
                key=self.keys.repository(repository_id),
                what=f"repository {repository_id}",
                new_nonce=lambda: self._ids.uuid7().hex().encode(),
                encode=encode,
                look=stored_claim,
                exists=lambda value: _exists(repository_id, value),
            )
        )
        reservation = Reservation(made[claim.nonce], claim)
        try:
            await self._win_namespace(reservation)
        except TarnError:
            await self._claiming.withdraw(claim)
            raise
        return reservation

    @staticmethod
    def _namespace(wanted: str) -> str:
        if len(wanted.encode()) > _NAMESPACE_BYTES_MAX or "://" not in wanted:
            text = f"storage namespace {wanted[:80]!r} is not <scheme>://<name>"
            raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text)
        return wanted.rstrip("/")

    async def _win_namespace(self, reservation: Reservation) -> None:
        repository = reservation.repository
        namespace = repository.storage_namespace
        text = f"storage namespace {namespace} belongs to another repository"
        taken = TarnError(Kind.ALREADY_EXISTS, Reason.REPOSITORY_EXISTS, text)

        def holder_of(value: bytes) -> Holder:
            held = decode_namespace(value)
            if held.purge_begin_us:
                raise _purged(namespace)
            if held.is_final and not repository.restore_id:
                raise taken
            key = self.keys.repository(held.repository_id)
            return Holder(self.keys.graveler, key, held.instance_uid.encode(), stored_claim, taken)

        await self._claiming.win(
            reservation.claim,
            self.keys.graveler,
            self.keys.namespace(namespace),
            encode_namespace(
                # That of a restore holds blocks already: if the restore fails, no creation may take it.
                Namespace(
                    repository.repository_id,
                    repository.instance_uid,
                    is_final=bool(repository.restore_id),
                )
            ),
            holder_of,
        )

    async def publish(self, reservation: Reservation) -> None:
        """Makes a reserved repository visible.

        Raises:
            OutcomeUnknownError: it cannot be determined whether it was published.
            TarnError: REPOSITORY_EXISTS, UNAVAILABLE: not published; call `abandon`.
        """
        await self._claiming.finish(reservation.claim)

    async def abandon(self, reservation: Reservation) -> bool:
        """Gives up a repository that was not published, and its namespace.

        Returns whether it can never be published any more. If False, the next creation with that name or namespace
        takes over the remaining rows.
        """
        if not await self._claiming.withdraw(reservation.claim):
            return False
        repository = reservation.repository
        mine = Namespace(repository.repository_id, repository.instance_uid)
        # If it fails: its holder is dead, and the next creation that wants it finds this out.
        with suppress(TarnError):
            await namespace_register(self.kv, self.keys, repository.storage_namespace).change(
                lambda held: None if held == mine else held
            )
        return True

    async def set_cors(self, repository: Repository, cors_json: str) -> None:
        """Replaces the CORS rules of a repository's bucket.

        Raises:
            TarnError: REPOSITORY_NOT_FOUND, also for another one of the name; BUCKET_MOVED: other rules were set
                meanwhile; as `change`.
        """
        first: list[str] = []

        def decide(current: Repository) -> Repository:
            if not current.is_served or current.instance_uid != repository.instance_uid:
                raise repository_not_found(repository.repository_id)
            first.append(current.cors_json)
            # A second attempt must not bury rules of another caller: ours may be beneath them already.
            if current.cors_json not in (first[0], cors_json):
                name = repository.repository_id
                text = (
                    f"the CORS rules of {name} were changed meanwhile; look at them and try again"
                )
                raise TarnError(Kind.CONFLICT, Reason.BUCKET_MOVED, text, bucket=name)
            return replace(current, cors_json=cors_json)

        await self.change(repository.repository_id, decide)

    async def mark_deleted(self, repository: Repository) -> Repository:
        """First step of a deletion: marks the record; may be repeated.

        The name may have another repository by now, also after an attempt that marked the old one and whose answer was
        lost: that one stays.

        Raises:
            TarnError: REPOSITORY_NOT_FOUND; as `change`.
        """

        def mark(current: Repository) -> Repository:
            if current.is_pending or current.instance_uid != repository.instance_uid:
                raise repository_not_found(repository.repository_id)
            return replace(current, is_deleted=True)

        return await self.change(repository.repository_id, mark)

    async def close(self, repository: Repository) -> None:
        """Second step of a deletion: marks the partition of refs; may be repeated.

        A replica that has the repository cached does not see the mark of its record. It reads this row with each
        tag and each reflog, so that it does not take those of a deleted repository for those of a new one with
        the same name. Branches have marks of their own.

        Raises:
            TarnError: UNAVAILABLE, OUTCOME_UNKNOWN: it may be repeated.
        """
        refs = self.keys_of(repository).refs
        what = f"the mark of the refs of repository {repository.repository_id}"
        await write_once(self.kv, refs, RepositoryKeys.CLOSED, lambda: b"closed", what)

    def refuse_closed(self, repository: Repository, row: Versioned | None) -> None:
        """Checks the row `RepositoryKeys.CLOSED`, which the caller has read with the refs that it needs.

        Raises:
            TarnError: REPOSITORY_NOT_FOUND: the repository is deleted; its name may have another one by now.
        """
        if row is not None:
            self.forget(repository.repository_id)
            raise repository_not_found(repository.repository_id)

    async def remove(self, repository: Repository, grace_us: int | None = None) -> int:
        """Last step of a deletion: frees the name. The namespace stays occupied because it holds blocks.

        Args:
            repository: the marked repository.
            grace_us: time after which the blocks may be deleted; None: they stay.

        Returns:
            From when they may be deleted, Unix microseconds; 0: they stay.
        """
        current = await self.read(repository.repository_id)
        uid = repository.instance_uid
        if current.instance_uid != uid:
            return 0
        purge_after_us = await self._keep_namespace(current, grace_us)

        def gone(now: Repository | None) -> bool:
            return now is None or now.instance_uid != uid

        def removed(now: Repository | None) -> None:
            if gone(now):
                raise repository_not_found(repository.repository_id)

        await self._register(repository.repository_id).change(removed, gone)
        return purge_after_us

    async def _keep_namespace(self, repository: Repository, grace_us: int | None) -> int:
        """Marks the namespace as final: from now on its holder's record need not exist. With a grace time, dooms it."""

        def keep(held: Namespace | None) -> Namespace | None:
            # A row of another holder is damage, which `tarn fsck` reports; it is not overwritten.
            if held is None or held.instance_uid != repository.instance_uid:
                return held
            final = replace(held, is_final=True)
            if grace_us is not None and not held.doom_time_us:
                now_us = self._clock.now_us()
                final = replace(final, doom_time_us=now_us, purge_after_us=now_us + grace_us)
            return final

        register = namespace_register(self.kv, self.keys, repository.storage_namespace)
        kept = await register.change(keep)
        if kept is None or kept.instance_uid != repository.instance_uid:
            return 0
        return kept.purge_after_us
