"""Records of the journal's drain: the epoch that a repository continues, and how far events are drained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tarn.kv.keys import InstallationKeys
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
    "let_follow",
]


@dataclass(frozen=True, slots=True)
class EpochRecord:
    """The epoch that the journal of a repository continues in this store.

    Attributes:
        number: from 1.
        folder: its folder in the bucket.
        has_begun: whether its file is there. Until then this is an attempt, and nothing is drained.
        may_follow: there is no epoch yet, and one may begin after any that the bucket has: the store was filled with
            rows of another one, or its journal was off. Then there is no number and no folder.
    """

    number: int
    folder: str
    has_begun: bool = False
    may_follow: bool = False


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
    return EpochRecord(record.number, record.folder, record.has_begun, record.may_follow)


async def let_follow(kv: Kv, installation_id: str) -> None:
    """Ends the epoch of what belongs to no repository; another one may begin after any that the bucket has.

    A new store may not: if it stands in the place of one that was lost, its epoch would hide all that is in the bucket.

    Raises:
        TarnError: errors of the store.
    """
    keys = InstallationKeys(installation_id)
    row = Register(
        kv,
        keys.journal_state,
        keys.epoch(installation_id),
        decode_epoch,
        encode_epoch,
        "the epoch of the journal of the installation",
    )
    await row.change(lambda _: EpochRecord(0, "", may_follow=True))


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
