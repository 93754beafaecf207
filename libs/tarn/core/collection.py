"""The garbage collection of a repository: its record, and every decision about it (docs/design/collection.md).

The record says which run may work, and whether deletions of ranges and metaranges may be under way. Every change is a
compare-and-set of the whole record. Each function here takes the record as it is and returns the next one. Called again
on its own result, it changes nothing but the lease; so a change whose answer was lost is simply made again.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.moments import iso_seconds

__all__ = [
    "BATCH_IDS_MAX",
    "HOLD_SECONDS_MAX",
    "LIMITS",
    "LISTING_IDS_MAX",
    "NEVER",
    "Collection",
    "CollectionLimits",
    "Disturbance",
    "Phase",
    "Totals",
    "begin",
    "begin_batch",
    "check_listing_ids",
    "disturbance",
    "end",
    "end_batch",
    "hold",
    "renew",
    "require_run",
]

BATCH_IDS_MAX: Final = 500
"""Blocks of one batch of deletions: the record stays below 10 KiB."""
LISTING_IDS_MAX: Final = 1000
"""Listings that one call of a collector asks for."""
HOLD_SECONDS_MAX: Final = 7 * 86_400
_NOTE_CHARS_MAX: Final = 1000
_ID_BYTES: Final = 16
"""Bytes of a block's id that the record keeps. A false hit only makes a build wait."""
_RUN_ID = re.compile(r"[0-9a-f]{32}")
_BLOCK_ID = re.compile(r"[0-9a-f]{64}")
_HOUR_US = 3_600_000_000


class Phase(enum.StrEnum):
    """The work of a run."""

    IDLE = "idle"
    MARK = "mark"
    SWEEP = "sweep"


@dataclass(frozen=True, slots=True)
class CollectionLimits:
    """The times on which the safety of a collection rests. They are equal in all replicas of a version.

    Attributes:
        staging_us: an entry is staged only while its block's address is younger than this (rule 11).
        ahead_us: an entry is staged only if its block's address is from no later than this after now (rule 11).
            Otherwise a gateway whose clock is a day ahead would make addresses that stay young for too long. S3
            allows clocks to differ by as much.
        cutoff_us: blocks younger than this at the begin of a mark are not judged. Invariant: more than `staging_us`
            and all skew of clocks.
        grace_us: time between the end of a mark and its sweep. Invariant: more than the drop delay and the longest GET.
        lease_us: time for which a run that does not renew keeps others away.
        batch_us: time after which no deletion of a batch that was never ended can be under way. S3 refuses a request
            that was signed more than 15 minutes ago.
    """

    staging_us: int = 6 * _HOUR_US
    ahead_us: int = 900_000_000
    cutoff_us: int = 24 * _HOUR_US
    grace_us: int = 6 * _HOUR_US
    lease_us: int = 300_000_000
    batch_us: int = 1_200_000_000


LIMITS: Final = CollectionLimits()
"""The times of this version."""


@dataclass(frozen=True, slots=True)
class Totals:
    """The counts of a run; see `CollectionTotals` of the proto.

    Attributes:
        unknown_fields: fields of the record that only newer replicas know (`tarn.kv.unknown_fields`).
    """

    run_id: str
    begin_us: int = 0
    end_us: int = 0
    live_count: int = 0
    live_bytes: int = 0
    candidate_count: int = 0
    candidate_bytes: int = 0
    deleted_count: int = 0
    deleted_bytes: int = 0
    failed_count: int = 0
    note: str = ""
    unknown_fields: bytes = field(default=b"", compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Collection:
    """The collection record. Times are microseconds since the epoch; 0 for none.

    Attributes:
        phase: the work of the run.
        run_id: the run; empty if there is none.
        begin_us: when it began.
        lease_until_us: until when no other run may begin.
        cutoff_us: of the run.
        mark_run_id: the last complete mark that is not swept; empty if there is none.
        mark_end_us: when that mark ended.
        mark_cutoff_us: its cutoff.
        hold_until_us: until when no run may work.
        sweep_count: number of sweeps that ever began. Invariant: never decreases.
        fence_count: number of batches that ever began. Invariant: never decreases.
        batch_until_us: when the deletions of the open batch are certainly over; 0: no batch is open.
        batch: the first 16 bytes of the id of each block of the open batch.
        erase_run_id: the run, if it is an erasure. An older release keeps it when the run ends, so it may name an
            earlier one; see `is_erasure`.
        last_mark: the counts of the last complete mark.
        last_sweep: the counts of the last complete sweep.
        unknown_fields: fields of the record that only newer replicas know (`tarn.kv.unknown_fields`).
    """

    phase: Phase = Phase.IDLE
    run_id: str = ""
    begin_us: int = 0
    lease_until_us: int = 0
    cutoff_us: int = 0
    mark_run_id: str = ""
    mark_end_us: int = 0
    mark_cutoff_us: int = 0
    hold_until_us: int = 0
    sweep_count: int = 0
    fence_count: int = 0
    batch_until_us: int = 0
    batch: frozenset[bytes] = frozenset()
    erase_run_id: str = ""
    last_mark: Totals | None = None
    last_sweep: Totals | None = None
    unknown_fields: bytes = field(default=b"", compare=False, repr=False)

    @property
    def is_erasure(self) -> bool:
        """Whether the run is an erasure: a mark that never completes."""
        return bool(self.run_id) and self.erase_run_id == self.run_id

    @property
    def work(self) -> str:
        """The name of the run's work, for people."""
        return "erasure" if self.is_erasure else self.phase.value

    def is_batch_open(self, now_us: int) -> bool:
        """Whether deletions of ranges or metaranges may be under way."""
        return now_us < self.batch_until_us

    def may_delete(self, block_ids: Sequence[str], now_us: int) -> bool:
        """Whether the open batch may delete one of these blocks."""
        return self.is_batch_open(now_us) and not self.batch.isdisjoint(map(_short, block_ids))


class Disturbance(enum.Enum):
    """The effect that a collection may have had on a build (rule 13)."""

    NONE = "none"
    """No sweep takes a block of it: each one that has begun finds these young, each later one finds them referenced."""
    BATCH = "batch"
    """A batch of deletions overlapped it, and may have taken blocks. Those that are there when it has ended stay."""
    SWEEP = "sweep"
    """A sweep began meanwhile. It may have read the roots too early to see the build, and its blocks may be old."""


def disturbance(
    before: Collection, after: Collection, block_ids: Sequence[str], now_us: int
) -> Disturbance:
    """Returns what may have happened to the blocks of a build.

    Args:
        before: the record as it was read before the build.
        after: the record as it was read after the blocks of the build were durable, and roots referred to them.
        block_ids: the blocks that the build wrote, or found by their content.
        now_us: the time of the first read. An open batch counts as open as long as it was open then.
    """
    if before.sweep_count != after.sweep_count:
        return Disturbance.SWEEP
    known = {each.fence_count for each in (before, after) if each.batch_until_us}
    unseen = set(range(before.fence_count + 1, after.fence_count + 1)) - known
    if unseen or before.may_delete(block_ids, now_us) or after.may_delete(block_ids, now_us):
        return Disturbance.BATCH
    return Disturbance.NONE


NEVER: Final = Collection()
"""The record of a repository that never had a collection."""


def _short(block_id: str) -> bytes:
    return bytes.fromhex(block_id[: 2 * _ID_BYTES])


def begin(
    current: Collection,
    run_id: str,
    phase: Phase,
    mark_run_id: str,
    now_us: int,
    limits: CollectionLimits,
    *,
    is_erasure: bool = False,
) -> Collection:
    """Begins a run, continues one, or takes over from one whose lease has ended.

    Raises:
        TarnError: INVALID; COLLECTION_HELD, COLLECTION_RUNNING, COLLECTION_NO_MARK, COLLECTION_TOO_EARLY.
    """
    _check_id("run_id", run_id, _RUN_ID)
    if phase is Phase.IDLE:
        raise _invalid("phase", "a run is a mark or a sweep")
    if is_erasure and phase is not Phase.MARK:
        raise _invalid("is_erasure", "an erasure is a mark")
    _refuse_hold(current, now_us)
    if current.run_id == run_id:
        if current.phase is not phase or (
            phase is Phase.SWEEP and mark_run_id != current.mark_run_id
        ):
            raise _invalid("run_id", f"run {run_id} is another {current.work}; choose a new id")
        # An older replica may have begun it, which does not know erasures.
        erase_run_id = run_id if is_erasure else current.erase_run_id
        return replace(current, lease_until_us=now_us + limits.lease_us, erase_run_id=erase_run_id)
    if current.phase is not Phase.IDLE and now_us < current.lease_until_us:
        text = (
            f"{current.work} {current.run_id} is running, or its process died less than "
            f"{limits.lease_us // 1_000_000} s ago; try again after its lease has ended"
        )
        raise _running(text, current)
    begun = replace(
        current,
        phase=phase,
        run_id=run_id,
        begin_us=now_us,
        lease_until_us=now_us + limits.lease_us,
        erase_run_id=run_id if is_erasure else "",
    )
    if phase is Phase.MARK:
        return replace(begun, cutoff_us=now_us - limits.cutoff_us)
    if not mark_run_id or mark_run_id != current.mark_run_id:
        text = (
            f"the mark {mark_run_id or '(none)'} cannot be swept: the last complete one that is not swept yet is "
            f"{current.mark_run_id or '(none)'}"
        )
        raise TarnError(
            Kind.FAILED_PRECONDITION,
            Reason.COLLECTION_NO_MARK,
            text,
            mark_run_id=current.mark_run_id,
        )
    not_before_us = current.mark_end_us + limits.grace_us
    if now_us < not_before_us:
        left = (not_before_us - now_us) // 60_000_000 + 1
        text = f"the mark {mark_run_id} may be swept in {left} minutes: readers may still use the blocks that it found"
        raise TarnError(
            Kind.FAILED_PRECONDITION,
            Reason.COLLECTION_TOO_EARLY,
            text,
            not_before_us=str(not_before_us),
        )
    return replace(begun, cutoff_us=current.mark_cutoff_us, sweep_count=current.sweep_count + 1)


def require_run(
    current: Collection, run_id: str, now_us: int, phase: Phase | None = None
) -> Collection:
    """Returns the record if a run may work now.

    Raises:
        TarnError: COLLECTION_LOST: it is not the record's run, or its lease has ended; COLLECTION_HELD; INVALID: it is
            in another phase.
    """
    if not run_id or current.run_id != run_id or now_us >= current.lease_until_us:
        raise _lost(run_id)
    _refuse_hold(current, now_us)
    if phase is not None and current.phase is not phase:
        raise _invalid("run_id", f"run {run_id} is a {current.phase}, not a {phase}")
    return current


def renew(current: Collection, run_id: str, now_us: int, limits: CollectionLimits) -> Collection:
    """Renews the lease of a run. Raises as `require_run`."""
    require_run(current, run_id, now_us)
    return replace(current, lease_until_us=now_us + limits.lease_us)


def check_listing_ids(listing_ids: Sequence[str]) -> None:
    """Checks the ids of listings that a collector misses.

    Raises:
        TarnError: INVALID: there are more than `LISTING_IDS_MAX`, or one is malformed.
    """
    if len(listing_ids) > LISTING_IDS_MAX:
        text = f"a call names at most {LISTING_IDS_MAX} listings, not {len(listing_ids)}"
        raise _invalid("metarange_ids", text)
    for listing_id in listing_ids:
        _check_id("metarange_ids", listing_id, _BLOCK_ID)


def begin_batch(
    current: Collection,
    run_id: str,
    block_ids: Sequence[str],
    now_us: int,
    limits: CollectionLimits,
) -> Collection:
    """Begins a batch of deletions of ranges and metaranges.

    Raises:
        TarnError: as `require_run`; INVALID for the ids; COLLECTION_RUNNING while another batch is open.
    """
    if not 0 < len(block_ids) <= BATCH_IDS_MAX:
        raise _invalid(
            "block_ids", f"a batch has 1 to {BATCH_IDS_MAX} blocks, not {len(block_ids)}"
        )
    for block_id in block_ids:
        _check_id("block_ids", block_id, _BLOCK_ID)
    require_run(current, run_id, now_us, Phase.SWEEP)
    batch = frozenset(map(_short, block_ids))
    if current.is_batch_open(now_us):
        if current.batch == batch:
            return current
        until = iso_seconds(current.batch_until_us + 999_999)  # not before its end
        text = (
            "a batch of deletions, begun by an earlier sweep, was never ended: a deletion may still be under way until "
            f"{until}. Nothing was deleted now; run the sweep again after that time"
        )
        raise _running(text, current)
    return replace(
        current,
        fence_count=current.fence_count + 1,
        batch_until_us=now_us + limits.batch_us,
        batch=batch,
        lease_until_us=now_us + limits.lease_us,
    )


def end_batch(
    current: Collection, run_id: str, now_us: int, limits: CollectionLimits
) -> Collection:
    """Ends the open batch. Raises as `require_run`, but a hold does not hinder it."""
    require_run(replace(current, hold_until_us=0), run_id, now_us, Phase.SWEEP)
    return replace(
        current,
        batch_until_us=0,
        batch=frozenset(),
        lease_until_us=now_us + limits.lease_us,
    )


def end(
    current: Collection, run_id: str, totals: Totals, now_us: int, *, is_complete: bool
) -> Collection:
    """Ends a run. Only a complete mark can be swept, and only once.

    Raises:
        TarnError: COLLECTION_LOST: it is not the record's run, or its lease has ended; INVALID: it is complete with an
            open batch, is an erasure that cannot be complete, or its note is too long.
    """
    done = {each.run_id for each in (current.last_mark, current.last_sweep) if each is not None}
    if current.run_id != run_id and run_id in done:
        return current  # an earlier call ended it
    if len(totals.note) > _NOTE_CHARS_MAX:
        raise _invalid("note", f"a note has at most {_NOTE_CHARS_MAX} characters")
    if not run_id or current.run_id != run_id or (is_complete and now_us >= current.lease_until_us):
        raise _lost(run_id)
    ended = replace(
        current,
        phase=Phase.IDLE,
        run_id="",
        begin_us=0,
        lease_until_us=0,
        cutoff_us=0,
        erase_run_id="",
    )
    if not is_complete:
        return ended
    if current.is_erasure:
        raise _invalid(
            "is_complete", "an erasure cannot be ended as complete, because no sweep may follow it"
        )
    if current.is_batch_open(now_us):
        raise _invalid("is_complete", "the last batch of deletions was not ended; end it first")
    totals = replace(totals, run_id=run_id, begin_us=current.begin_us, end_us=now_us)
    if current.phase is Phase.MARK:
        return replace(
            ended,
            mark_run_id=run_id,
            mark_end_us=now_us,
            mark_cutoff_us=current.cutoff_us,
            last_mark=totals,
        )
    return replace(ended, mark_run_id="", mark_end_us=0, mark_cutoff_us=0, last_sweep=totals)


def hold(current: Collection, seconds: int, now_us: int) -> Collection:
    """Lets no run work for a time; 0 ends that.

    Raises:
        TarnError: INVALID: the time is negative or longer than 7 days.
    """
    if not 0 <= seconds <= HOLD_SECONDS_MAX:
        raise _invalid("hold", f"a hold lasts 0 to {HOLD_SECONDS_MAX} seconds, not {seconds}")
    return replace(current, hold_until_us=now_us + seconds * 1_000_000 if seconds else 0)


def _refuse_hold(current: Collection, now_us: int) -> None:
    if now_us < current.hold_until_us:
        minutes = (current.hold_until_us - now_us) // 60_000_000 + 1
        text = f"collections of this repository are held for {minutes} more minutes; release the hold, or wait"
        raise TarnError(
            Kind.FAILED_PRECONDITION,
            Reason.COLLECTION_HELD,
            text,
            hold_until_us=str(current.hold_until_us),
        )


def _running(text: str, current: Collection) -> TarnError:
    until_us = max(current.lease_until_us, current.batch_until_us)
    return TarnError(
        Kind.FAILED_PRECONDITION,
        Reason.COLLECTION_RUNNING,
        text,
        run_id=current.run_id,
        until_us=str(until_us),
    )


def _lost(run_id: str) -> TarnError:
    text = f"run {run_id[:64]} has ended, or its lease has; it must delete nothing more. Begin it again"
    return TarnError(Kind.FAILED_PRECONDITION, Reason.COLLECTION_LOST, text, run_id=run_id[:64])


def _check_id(field: str, value: str, form: re.Pattern[str]) -> None:
    if not form.fullmatch(value):
        digits = 32 if form is _RUN_ID else 64
        raise _invalid(field, f"{value[:80]!r} is not an id of {digits} lower-case hex digits")


def _invalid(field: str, text: str) -> TarnError:
    return TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text, field=field)
