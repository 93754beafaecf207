"""Doomed namespaces: the data of repositories that were deleted with them (docs/design/erase.md).

The row of a namespace says that its data are doomed, from when they may be deleted, and whether that has begun. Two
phases, as in a collection:

- *The mark* is written with the last step of the repository's deletion. A restore replaces the row,
  and with it the mark.
- *The purge* begins by a compare-and-set of the row, after the grace time. From then on no restore takes the namespace.
  So a restore and a purge exclude each other: each replaces the version of the row that it has judged.

A namespace never serves another repository, so a late deletion, or one that is made twice, meets nothing that is live.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from tarn.core.clock import Clock
from tarn.core.collection import CollectionLimits
from tarn.core.errors import Kind, Reason, TarnError
from tarn.kv.keys import InstallationKeys, after_prefix
from tarn.kv.namespace_records import Namespace, decode_namespace, namespace_register
from tarn.kv.port import Kv
from tarn.kv.records import BucketView, decode_bucket
from tarn.kv.register import Register

__all__ = ["GRACE_DEFAULT_S", "GRACE_MAX_S", "Purges"]

GRACE_DEFAULT_S: Final = 7 * 86_400
GRACE_MAX_S: Final = 365 * 86_400
_PREFIX: Final = InstallationKeys.namespace("")
_REPOSITORIES: Final = InstallationKeys.repository("")
_SCAN_ROWS: Final = 1000


class Purges:
    """Lists and changes the rows of doomed namespaces."""

    def __init__(
        self, kv: Kv, keys: InstallationKeys, clock: Clock, limits: CollectionLimits
    ) -> None:
        self._kv = kv
        self._keys = keys
        self._clock = clock
        self._limits = limits

    def grace_us(self, seconds: int) -> int:
        """Returns a grace time in microseconds, after a check.

        Args:
            seconds: the grace time; 0: the default.

        Raises:
            TarnError: INVALID: shorter than the grace time of a collection, or longer than a year.
        """
        grace_us = (seconds or GRACE_DEFAULT_S) * 1_000_000
        if not self._limits.grace_us <= grace_us <= GRACE_MAX_S * 1_000_000:
            least = self._limits.grace_us // 1_000_000
            text = f"a grace time of {seconds} s: it must be {least} s to {GRACE_MAX_S} s"
            raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text, field="grace")
        return grace_us

    async def page(self, after: str, limit: int) -> tuple[list[tuple[str, Namespace]], str]:
        """Returns the doomed ones among up to `limit` namespaces after a name, and the last name; empty at the end.

        Raises:
            TarnError: CORRUPT: a row is damaged.
        """
        start = InstallationKeys.namespace(after) + b"\0" if after else _PREFIX
        rows = await self._kv.scan(self._keys.graveler, start, after_prefix(_PREFIX), limit)
        named = [(key[len(_PREFIX) :].decode(), decode_namespace(value)) for key, value in rows]
        return [each for each in named if each[1].doom_time_us], (
            named[-1][0] if len(rows) == limit else ""
        )

    async def begin(self, storage_namespace: str, instance_uid: str) -> Namespace:
        """Begins a purge, or confirms one that has begun; returns the row.

        Raises:
            TarnError: NAMESPACE_NOT_DOOMED, COLLECTION_TOO_EARLY; CORRUPT: a repository uses the namespace;
                TOO_MANY_RETRIES; OUTCOME_UNKNOWN.
        """

        def decide(held: Namespace) -> Namespace:
            self._require(storage_namespace, held, instance_uid)
            if held.purge_begin_us:
                return held
            now_us = self._clock.now_us()
            if now_us < held.purge_after_us:
                text = (
                    f"the grace time of the deleted repository {held.repository_id} in {storage_namespace} is not "
                    f"over: its data may be deleted in {(held.purge_after_us - now_us) // 1_000_000} s"
                )
                raise TarnError(Kind.FAILED_PRECONDITION, Reason.COLLECTION_TOO_EARLY, text)
            return replace(held, purge_begin_us=now_us)

        decide(_held(storage_namespace, await self._register(storage_namespace).read(settle=True)))
        await self._refuse_used(storage_namespace)
        return await self._change(storage_namespace, decide)

    async def end(
        self, storage_namespace: str, instance_uid: str, count: int, size_bytes: int
    ) -> Namespace:
        """Notes that a purge is complete; returns the row. A repetition changes nothing.

        Raises:
            TarnError: NAMESPACE_NOT_DOOMED: no purge has begun; TOO_MANY_RETRIES; OUTCOME_UNKNOWN.
        """

        def decide(held: Namespace) -> Namespace:
            self._require(storage_namespace, held, instance_uid)
            if not held.purge_begin_us:
                raise _not_doomed(storage_namespace, "no deletion of its data has begun")
            if held.purge_end_us:
                return held
            return replace(
                held,
                purge_end_us=self._clock.now_us(),
                purged_count=count,
                purged_bytes=size_bytes,
            )

        return await self._change(storage_namespace, decide)

    async def spare(self, storage_namespace: str) -> None:
        """Keeps the data of a doomed namespace.

        Raises:
            TarnError: NAMESPACE_NOT_DOOMED: nothing is to be deleted, or the deletion has begun; TOO_MANY_RETRIES;
                OUTCOME_UNKNOWN.
        """
        is_ours = False

        def decide(held: Namespace) -> Namespace:
            nonlocal is_ours
            if not held.doom_time_us and is_ours:  # its own change, whose answer was lost
                return held
            self._require(storage_namespace, held, held.instance_uid)
            if held.purge_begin_us:
                raise _not_doomed(storage_namespace, "the deletion of its data has begun")
            is_ours = True
            return replace(held, doom_time_us=0, purge_after_us=0)

        await self._change(storage_namespace, decide)

    @staticmethod
    def _require(storage_namespace: str, held: Namespace, instance_uid: str) -> None:
        if not held.doom_time_us:
            why = "its repository was not deleted with its data, or was restored since"
            raise _not_doomed(storage_namespace, why)
        if held.instance_uid != instance_uid:
            raise _not_doomed(storage_namespace, "it belongs to another repository by now")

    async def _refuse_used(self, storage_namespace: str) -> None:
        """Refuses to purge a namespace that a repository uses, even if the row of the namespace names another one: a
        safety net against damage.

        One that is being created has not won the namespace, or has replaced the row.
        """
        start = _REPOSITORIES
        while rows := await self._kv.scan(
            self._keys.graveler, start, after_prefix(_REPOSITORIES), _SCAN_ROWS
        ):
            for _, value in rows:
                found = decode_bucket(value)
                if isinstance(found, BucketView):
                    continue
                is_used = not (found.is_deleted or found.is_pending)
                if is_used and found.storage_namespace == storage_namespace:
                    text = (
                        f"repository {found.repository_id} uses the storage namespace {storage_namespace}, whose data "
                        "are to be deleted; nothing was deleted. Run tarn fsck, and tarn gc spare"
                    )
                    raise TarnError(Kind.CORRUPT, Reason.DATA_CORRUPT, text)
            start = rows[-1][0] + b"\0"

    async def _change(
        self, storage_namespace: str, decide: Callable[[Namespace], Namespace]
    ) -> Namespace:
        changed = await self._register(storage_namespace).change(
            lambda held: decide(_held(storage_namespace, held))
        )
        return _held(storage_namespace, changed)

    def _register(self, storage_namespace: str) -> Register[Namespace | None]:
        return namespace_register(self._kv, self._keys, storage_namespace)


def _held(storage_namespace: str, held: Namespace | None) -> Namespace:
    """Returns the owner of a namespace that has one."""
    if held is None:
        raise _not_doomed(storage_namespace, "it belongs to no repository")
    return held


def _not_doomed(storage_namespace: str, why: str) -> TarnError:
    text = f"the data of storage namespace {storage_namespace} are not to be deleted: {why}"
    return TarnError(
        Kind.FAILED_PRECONDITION,
        Reason.NAMESPACE_NOT_DOOMED,
        text,
        namespace=storage_namespace,
    )
