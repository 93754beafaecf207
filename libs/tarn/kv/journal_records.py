"""Records of the journal's drain: the epoch that a repository continues, and how far events are drained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from tarn.kv.keys import InstallationKeys, after_prefix
from tarn.kv.paging import rows_of
from tarn.kv.port import Kv
from tarn.kv.records import parse_record
from tarn.kv.register import Register
from tarn_proto.store.v1 import journal_drain_pb2 as pb

__all__ = [
    "DrainRecord",
    "EpochRecord",
    "Undrained",
    "decode_drain",
    "decode_epoch",
    "encode_drain",
    "encode_epoch",
    "epoch_row",
    "epoch_rows",
    "note_epochs",
]

_PAGE: Final = 1_000


@dataclass(frozen=True, slots=True)
class EpochRecord:
    """The epoch that the journal of a repository continues in this store.

    Attributes:
        number: from 1.
        folder: its folder in the bucket.
        has_begun: whether its file is there. Until then this is an attempt, and nothing is drained.
        may_follow: there is no epoch yet, since the store was filled with rows of another one, or its journal was off.
            Number and folder are those of the epoch that was the newest then; one may begin after that, and after no
            other. Number 0: there was none. No folder: whichever has the number.
        is_unknown: likewise, but the bucket could not be read then: none begins before a person has said after which.
    """

    number: int
    folder: str
    has_begun: bool = False
    may_follow: bool = False
    is_unknown: bool = False

    @property
    def is_note(self) -> bool:
        """Whether there is neither an epoch nor an attempt, but what is known of the one to follow."""
        return self.may_follow or self.is_unknown

    def as_note(self) -> EpochRecord:
        """What a store notes that goes on from this state without events, or is a copy of this one."""
        if self.is_note:
            return self
        if self.has_begun:
            return EpochRecord(self.number, self.folder, may_follow=True)
        return EpochRecord(self.number - 1, "", may_follow=True)

    def may_follow_epoch(self, number: int, folder: str) -> bool:
        """Whether an epoch may begin after this one of the bucket; 0: the bucket has none."""
        return self.may_follow and self.number == number and self.folder in ("", folder)


@dataclass(frozen=True, slots=True)
class Undrained:
    """Events of one process that may not be in the bucket.

    Attributes:
        holder: of the process; empty: of several.
        size: bytes of their keys and values.
        time_us: when it counted them, Unix microseconds.
    """

    holder: str
    size: int
    time_us: int


@dataclass(frozen=True, slots=True)
class DrainRecord:
    """Who drains, and how far it has come.

    Attributes:
        holder: 32 hex digits; empty: nobody has drained yet.
        lease_until_us: until then the others leave the work to the holder, Unix microseconds.
        drained_until_us: when the last round that reached its end began: what was acknowledged before is in the
            bucket. Unix microseconds.
        behind: the same of the repositories whose last pass failed, by `RepositoryKeys.root`.
        first_hour: hours since 1970 before it have no registrations left.
        undrained: what processes have written that may not be in the bucket.
    """

    holder: str = ""
    lease_until_us: int = 0
    drained_until_us: int = 0
    behind: Mapping[str, int] = field(default_factory=dict)
    first_hour: int = 0
    undrained: tuple[Undrained, ...] = ()

    def of(self, root: str) -> int:
        """Until when a repository is drained, Unix microseconds."""
        return self.behind.get(root, self.drained_until_us)


def encode_epoch(epoch: EpochRecord | None) -> bytes | None:
    """Encodes the epoch of a repository as a KV value; None stays None."""
    if epoch is None:
        return None
    record = pb.JournalEpochRecord(
        number=epoch.number,
        folder=epoch.folder,
        has_begun=epoch.has_begun,
        may_follow=epoch.may_follow,
        is_unknown=epoch.is_unknown,
    )
    return record.SerializeToString()


def decode_epoch(value: bytes | None) -> EpochRecord | None:
    """Decodes the epoch of a repository from a KV value; None stays None.

    Raises:
        TarnError: CORRUPT.
    """
    if value is None:
        return None
    record = parse_record(pb.JournalEpochRecord(), value)
    return EpochRecord(
        record.number, record.folder, record.has_begun, record.may_follow, record.is_unknown
    )


def epoch_row(kv: Kv, keys: InstallationKeys, root: str) -> Register[EpochRecord | None]:
    """The row of a journal's epoch.

    Args:
        kv: the store.
        keys: of the installation.
        root: `RepositoryKeys.root`; of what belongs to no repository, the id of the installation.
    """
    what = f"the epoch of the journal of {root}"
    return Register(kv, keys.journal_state, keys.epoch(root), decode_epoch, encode_epoch, what)


async def epoch_rows(kv: Kv, keys: InstallationKeys) -> dict[str, EpochRecord]:
    """Returns the epochs of all journals of a store, by root; that of what belongs to no repository is the last.

    Raises:
        TarnError: CORRUPT; errors of the store.
    """
    begin, end = keys.EPOCHS, after_prefix(keys.EPOCHS)
    found = {}
    async for key, value in rows_of(kv, keys.journal_state, begin, end, _PAGE):
        if (record := decode_epoch(value)) is not None:
            found[key.removeprefix(begin).decode()] = record
    if (shared := found.pop(keys.installation_id, None)) is not None:
        found[keys.installation_id] = shared
    return found


async def note_epochs(kv: Kv, keys: InstallationKeys, epochs: Mapping[str, EpochRecord]) -> None:
    """Notes for journals of a store which epochs they may follow, in this order.

    Args:
        kv: the store.
        keys: of the installation.
        epochs: by root, as of `epoch_rows`; what had begun has ended.

    Raises:
        TarnError: errors of the store.
    """
    for root, epoch in epochs.items():
        note = epoch.as_note()
        await epoch_row(kv, keys, root).change(lambda _, note=note: note)  # type: ignore[misc]


def encode_drain(drain: DrainRecord) -> bytes:
    """Encodes the state of the drain as a KV value."""
    behind = [
        pb.JournalBehind(root=root, drained_until_us=us)
        for root, us in sorted(drain.behind.items())
    ]
    return pb.JournalDrainRecord(
        holder=drain.holder,
        lease_until_us=drain.lease_until_us,
        drained_until_us=drain.drained_until_us,
        behind=behind,
        first_hour=drain.first_hour,
        undrained=[
            pb.JournalUndrained(holder=each.holder, size_bytes=each.size, time_us=each.time_us)
            for each in drain.undrained
        ],
    ).SerializeToString()


def decode_drain(value: bytes | None) -> DrainRecord:
    """Decodes the state of the drain from a KV value; None: nobody has drained yet.

    Raises:
        TarnError: CORRUPT.
    """
    record = parse_record(pb.JournalDrainRecord(), value or b"")
    behind = {each.root: each.drained_until_us for each in record.behind}
    times = record.lease_until_us, record.drained_until_us
    undrained = tuple(
        Undrained(each.holder, each.size_bytes, each.time_us) for each in record.undrained
    )
    return DrainRecord(record.holder, *times, behind, record.first_hour, undrained)
