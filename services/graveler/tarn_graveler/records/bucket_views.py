"""Bucket views: bucket names that show a ref of a repository (docs/design/bucket-views.md).

A view has the row that a repository of its name would have, and is created in the same way, so a name belongs to one of
them. Whoever uses a view names the version that it read, and `confirm` confirms it by a read that is sent after that
request began. So a request that begins after `point` has answered never uses the old target, whatever is cached.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, replace

from tarn.aio.bounded_map import BoundedMap
from tarn.core.access.anonymous import reader_grant
from tarn.core.access.policy import Grant
from tarn.core.clock import Clock, IdSource
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import RepositoryId
from tarn.gate.permits import Begun
from tarn.kv.keys import InstallationKeys
from tarn.kv.port import Kv, Predicate, RowName, Versioned
from tarn.kv.records import BucketView, Repository, decode_bucket, encode_bucket_view
from tarn.kv.register import Register
from tarn_graveler.records.claiming import Claiming, Plan
from tarn_graveler.records.fresh_reads import Beside, FreshReads
from tarn_graveler.records.repositories import Repositories, stored_claim

__all__ = ["BucketViews", "bucket_not_found", "etag_of", "moved"]

_KNOWN_MAX = 10_000
_USE = re.compile(r"([a-z0-9-]{1,64}):([0-9a-f]{32}:[0-9]{1,18})")
"""How a call names the view that its caller resolved (`Call.bucket`): the bucket and the ETag of its version."""


def etag_of(view: BucketView) -> str:
    """Names one version of what a view shows: its life and its generation. A generation alone would mean two targets
    once the name is deleted and made again."""
    return f"{view.uid}:{view.generation}"


def bucket_not_found(bucket_id: str, why: str = "does not exist") -> TarnError:
    """Returns the error for a bucket view that does not exist, or shows nothing."""
    text = f"bucket view {bucket_id} {why}"
    return TarnError(Kind.NOT_FOUND, Reason.BUCKET_NOT_FOUND, text, bucket=bucket_id)


def moved(bucket_id: str) -> TarnError:
    """Returns the error for a bucket view that is not the one which its user has seen."""
    text = (
        f"bucket view {bucket_id} was changed meanwhile; nothing was done: look at it and try again"
    )
    return TarnError(Kind.CONFLICT, Reason.BUCKET_MOVED, text, bucket=bucket_id)


@dataclass(frozen=True, slots=True)
class _Known:
    """A decoded row."""

    value: bytes
    holder: Repository | BucketView


class _Use(Beside):
    """A name and a version of a view, as calls have them (`Call.bucket`), and the row of the name.

    Attributes:
        bucket_id: the name.
        etag: the version.
        confirmed: the version of the row that was last confirmed; None before.
        repository: what it showed then.
    """

    __slots__ = ("bucket_id", "confirmed", "etag", "repository")

    def __init__(self, row: RowName, bucket_id: str, etag: str) -> None:
        super().__init__(row)
        self.bucket_id = bucket_id
        self.etag = etag
        self.confirmed: Predicate | None = None
        self.repository: Repository | None = None


class BucketViews:
    """Creates, changes, resolves and confirms bucket views."""

    def __init__(
        self,
        kv: Kv,
        keys: InstallationKeys,
        repositories: Repositories,
        clock: Clock,
        ids: IdSource,
        reads: FreshReads,
    ) -> None:
        self._kv = kv
        self._keys = keys
        self._repositories = repositories
        self._clock = clock
        self._ids = ids
        self._claiming = Claiming(kv, clock)
        self._known: BoundedMap[str, _Known] = BoundedMap(_KNOWN_MAX)
        self._uses: BoundedMap[str, _Use] = BoundedMap(_KNOWN_MAX)
        self._reads = reads

    async def holder(self, bucket_id: str) -> Repository | BucketView | None:
        """Returns what a bucket name belongs to, by a read that is sent now: a repository, a view, or nothing.

        Those that are being created or deleted are nothing.

        Raises:
            TarnError: CORRUPT; errors of the store.
        """
        return self._decoded(bucket_id, await self._begin_read(bucket_id))

    def _begin_read(self, bucket_id: str) -> asyncio.Future[Versioned | None]:
        return self._reads.begin(self._keys.graveler, self._keys.repository(bucket_id))

    def _decoded(self, bucket_id: str, found: Versioned | None) -> Repository | BucketView | None:
        if found is None:
            return None
        known = self._known.get(bucket_id)
        if known is None or known.value != found.value:
            known = _Known(found.value, decode_bucket(found.value))
            self._known.put(bucket_id, known)
        holder = known.holder
        is_there = not holder.is_pending if isinstance(holder, BucketView) else holder.is_served
        return holder if is_there else None

    async def get(self, bucket_id: str) -> BucketView:
        """Returns a view, by a read that is sent now.

        Raises:
            TarnError: BUCKET_NOT_FOUND, also for a repository.
        """
        found = await self.holder(bucket_id)
        if not isinstance(found, BucketView):
            raise bucket_not_found(bucket_id)
        return found

    def begin_view(self, bucket: str) -> Begun:
        """Requests the row of the bucket view of a call (`Call.bucket`), by a read that is sent after this.

        Raises:
            TarnError: INVALID: it names none.
        """
        use = self._uses.get(bucket) or self._use(bucket)
        return self._reads.begin(*use.row)

    def begin_view_beside(self, bucket: str) -> Begun:
        """As `begin_view`, for a caller who is about to read other rows: all are one read, if the store can do that."""
        return self._reads.begin_beside(self._uses.get(bucket) or self._use(bucket))

    async def public_grant(self, bucket: str, begun: Begun) -> Grant:
        """Returns what anonymous requests may do through the view of a call (`tarn.gate.permits.RepositoryGate`).

        Args:
            bucket: `Call.bucket`.
            begun: what `begin_view` returned.

        Raises:
            TarnError: DENIED, ACCESS_DENIED: the row is no public-read view's; INVALID; errors of the store.
        """
        use = self._uses.get(bucket) or self._use(bucket)
        bucket_id = use.bucket_id
        view = self._decoded(bucket_id, await self._reads.found_beside(use, begun))
        if not isinstance(view, BucketView) or not view.is_public_read:
            text = f"anonymous requests may not use bucket {bucket_id}"
            raise TarnError(Kind.DENIED, Reason.ACCESS_DENIED, text, bucket=bucket_id)
        return reader_grant(view.repository_id, view.ref)

    def is_confirmed(self, bucket: str, repository: Repository, begun: Begun) -> bool:
        """Tells at once that the view of a call is confirmed, if its row was read beside another one since, and the
        same row and repository were confirmed before; otherwise `confirm` decides.

        Args:
            bucket: `Call.bucket`.
            repository: of the call, as its handler has it.
            begun: what `begin_view` returned.
        """
        use = self._uses.get(bucket)
        if use is None or use.repository is not repository or not isinstance(begun, int):
            return False
        return use.sent > begun and use.version == use.confirmed

    async def confirm(self, bucket: str, repository_id: str, begun: Begun) -> Repository:
        """Returns the repository of a call, if the row of its view is that of the view that the call names.

        From then on `Repositories.get` returns that repository, not an older one of its name.

        Args:
            bucket: `Call.bucket`.
            repository_id: the repository that the call names.
            begun: what `begin_view` returned.

        Raises:
            TarnError: BUCKET_MOVED: the view shows something else, or the name belongs to something else by now;
                BUCKET_NOT_FOUND: it is deleted, or its repository is; INVALID; errors of the store.
        """
        use = self._uses.get(bucket) or self._use(bucket)
        bucket_id, etag = use.bucket_id, use.etag
        found = await self._reads.found_beside(use, begun)
        view = self._decoded(bucket_id, found)
        if view is None:
            raise bucket_not_found(bucket_id)
        if not isinstance(view, BucketView) or etag_of(view) != etag:
            raise moved(bucket_id)
        if view.repository_id != repository_id:
            text = f"bucket view {bucket_id} shows repository {view.repository_id}, not {repository_id}"
            raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text, field="bucket")
        for _ in range(2):
            try:
                repository = await self._repositories.get(repository_id)
            except TarnError as error:
                if error.reason is not Reason.REPOSITORY_NOT_FOUND:
                    raise
                break
            if repository.instance_uid == view.repository_uid:
                assert found is not None, "there is a view"
                use.confirmed, use.repository = found.predicate, repository
                return repository
            self._repositories.forget(repository_id)  # perhaps an older one than that of the view
        raise bucket_not_found(bucket_id, f"shows repository {repository_id}, which was deleted")

    def _use(self, bucket: str) -> _Use:
        """Parses what a call names (`Call.bucket`)."""
        named = _USE.fullmatch(bucket)
        if named is None:
            text = f"{bucket[:80]!r} names no version of a bucket view"
            raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text, field="bucket")
        row = (self._keys.graveler, self._keys.repository(named[1]))
        use = _Use(row, named[1], named[2])
        self._uses.put(bucket, use)
        return use

    async def create(
        self,
        bucket_id: RepositoryId,
        repository: Repository,
        ref: str,
        *,
        is_public_read: bool = False,
    ) -> BucketView:
        """Creates a view.

        Raises:
            TarnError: BUCKET_EXISTS: the name belongs to a view or a repository; UNAVAILABLE: not created.
            OutcomeUnknownError: it cannot be determined whether it was created.
        """
        made: dict[bytes, BucketView] = {}

        def view_of(uid: bytes) -> BucketView:
            return BucketView(
                bucket_id,
                uid.decode(),
                repository.repository_id,
                repository.instance_uid,
                ref,
                1,
                self._clock.now_us(),
                self._ids.nonce(),
                is_public_read=is_public_read,
            )

        def encode(uid: bytes, is_pending: bool) -> bytes:
            view = made.get(uid) or made.setdefault(uid, view_of(uid))
            return encode_bucket_view(replace(view, is_pending=is_pending))

        def exists(value: bytes) -> TarnError:
            what = "bucket view" if isinstance(decode_bucket(value), BucketView) else "repository"
            text = f"the name {bucket_id} belongs to a {what}"
            return TarnError(Kind.ALREADY_EXISTS, Reason.BUCKET_EXISTS, text, bucket=bucket_id)

        claim = await self._claiming.place(
            Plan(
                partition=self._keys.graveler,
                key=self._keys.repository(bucket_id),
                what=f"bucket view {bucket_id}",
                new_nonce=lambda: self._ids.uuid7().hex().encode(),
                encode=encode,
                look=stored_claim,
                exists=exists,
            )
        )
        try:
            await self._claiming.finish(claim)
        except TarnError as error:
            if error.kind is not Kind.UNKNOWN_OUTCOME:
                await self._claiming.withdraw(claim)
            raise
        self._repositories.forget(bucket_id)
        return made[claim.nonce]

    async def point(
        self, bucket_id: RepositoryId, repository: Repository, ref: str, etag: str = ""
    ) -> BucketView:
        """Has a view show something else, from the answer on for every request that begins after it.

        Args:
            bucket_id: the view.
            repository: what it will show.
            ref: likewise.
            etag: the version that the caller has seen; empty: whichever there is.

        Raises:
            TarnError: BUCKET_NOT_FOUND; BUCKET_MOVED: it has another version; UNAVAILABLE: not changed.
            OutcomeUnknownError: it cannot be determined whether it was changed.
        """
        change_id = self._ids.nonce()

        def decide(now: BucketView | None) -> BucketView:
            view = _expected(bucket_id, now, etag)
            return replace(
                view,
                repository_id=repository.repository_id,
                repository_uid=repository.instance_uid,
                ref=ref,
                generation=view.generation + 1,
                change_id=change_id,
            )

        def is_ours(now: BucketView | None) -> bool:
            return now is not None and now.change_id == change_id

        pointed = await self._register(bucket_id).change(decide, is_ours)
        assert pointed is not None, "no decision removes the view"
        return pointed

    async def set_cors(self, bucket_id: RepositoryId, cors_json: str) -> None:
        """Replaces the CORS rules of a view. Its version stays: what it shows does not change.

        Raises:
            TarnError: BUCKET_NOT_FOUND; BUCKET_MOVED: other rules were set meanwhile, or the name was made again;
                UNAVAILABLE: not changed.
            OutcomeUnknownError: it cannot be determined whether they were changed.
        """
        first: list[BucketView] = []

        def decide(now: BucketView | None) -> BucketView:
            view = _expected(bucket_id, now, "")
            first.append(view)
            # A second attempt must not bury rules of another caller: ours may be beneath them already.
            if view.uid != first[0].uid or view.cors_json not in (first[0].cors_json, cors_json):
                raise moved(bucket_id)
            return replace(view, cors_json=cors_json)

        await self._register(bucket_id).change(decide)

    async def set_public_read(self, seen: BucketView, is_public_read: bool) -> BucketView:
        """Lets anonymous requests read what a view shows, or ends that: for every request that begins after the answer.
        Its version stays: what it shows does not change.

        Args:
            seen: the view that the caller decided about; if it shows something else by now, nothing is changed.
            is_public_read: whether they may.

        Raises:
            TarnError: BUCKET_NOT_FOUND; BUCKET_MOVED: the view was changed meanwhile; UNAVAILABLE: not changed.
            OutcomeUnknownError: it cannot be determined whether it was changed.
        """
        change_id = self._ids.nonce()

        def decide(now: BucketView | None) -> BucketView:
            view = _expected(seen.bucket_id, now, etag_of(seen))
            if view.change_id != seen.change_id:
                # A second attempt must not undo a change of another caller: ours may be beneath it already.
                raise moved(seen.bucket_id)
            if view.is_public_read == is_public_read:
                return view
            return replace(view, is_public_read=is_public_read, change_id=change_id)

        def is_ours(now: BucketView | None) -> bool:
            return now is not None and now.change_id == change_id

        changed = await self._register(seen.bucket_id).change(decide, is_ours)
        assert changed is not None, "no decision removes the view"
        return changed

    async def delete(self, bucket_id: RepositoryId, etag: str = "") -> None:
        """Deletes a view; what it shows stays. Arguments and errors as `point`."""
        doomed: set[str] = set()

        def decide(now: BucketView | None) -> None:
            doomed.add(_expected(bucket_id, now, etag).uid)

        def is_gone(now: BucketView | None) -> bool:
            return now is None or now.uid not in doomed

        await self._register(bucket_id).change(decide, is_gone)

    def _register(self, bucket_id: RepositoryId) -> Register[BucketView | None]:
        def decode(value: bytes | None) -> BucketView | None:
            found = None if value is None else decode_bucket(value)
            return found if isinstance(found, BucketView) and not found.is_pending else None

        return Register(
            self._kv,
            self._keys.graveler,
            self._keys.repository(bucket_id),
            decode,
            lambda view: None if view is None else encode_bucket_view(view),
            f"bucket view {bucket_id}",
        )


def _expected(bucket_id: str, now: BucketView | None, etag: str) -> BucketView:
    """Returns the view that a change is about."""
    if now is None:
        raise bucket_not_found(bucket_id)
    if etag and etag_of(now) != etag:
        raise moved(bucket_id)
    return now
