"""One night of a journal: compaction, retention, and the certificates of erasures about it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tarn.block.port import BlockStore
from tarn.collection.erasure_files import (
    JournalCertificate,
    uncertified_in_journal,
    write_journal_certificate,
)
from tarn.core.clock import Clock
from tarn.journal.compacting import Compacted, CompactionRows, compact
from tarn.journal.epochs import Epoch
from tarn.journal.retention import Retired, named_blocks, retire

__all__ = ["Night", "nightly"]


@dataclass(frozen=True, slots=True)
class Night:
    """What was done.

    Attributes:
        compacted: None: there was nothing to compact.
        retired: what was deleted.
        certified: plans whose blocks the journal does not name any more, from now on.
        still_named: plans whose blocks it still names: a later night takes them.
    """

    compacted: Compacted | None
    retired: Retired
    certified: Sequence[str]
    still_named: Sequence[str]


async def nightly(
    blocks: BlockStore,
    namespace: str,
    rows: Callable[[Epoch], CompactionRows],
    clock: Clock,
    *,
    keep_us: int,
    keep_epochs_us: int,
) -> Night:
    """Compacts a journal, deletes what no reader needs, and certifies erasures. May die, and be run again.

    Args:
        blocks: the store.
        namespace: of the journal.
        rows: see `compact`.
        clock: of this machine.
        keep_us: see `compact`.
        keep_epochs_us: see `retire`.

    Raises:
        TarnError: as `compact` and `retire`; CORRUPT: a file of an erasure is damaged.
    """
    erasures = [each async for each in uncertified_in_journal(blocks, namespace)]
    gone = {each for _, found in erasures for each in found.column("address").to_pylist()}
    done = await compact(blocks, namespace, rows, clock, keep_us=keep_us, erased=sorted(gone))
    retired = await retire(blocks, namespace, clock, keep_epochs_us=keep_epochs_us)
    if not erasures:
        return Night(done, retired, [], [])
    certified, still_named = [], []
    look_us = clock.now_us()
    named = await named_blocks(blocks, namespace, gone)
    for certificate, found in erasures:
        addresses, plan_id = found.column("address").to_pylist(), certificate.plan.plan_id
        if named.unreadable or not named.addresses.isdisjoint(addresses):
            still_named.append(plan_id)
            continue
        note = JournalCertificate(plan_id, certificate.run_id, len(addresses), look_us)
        await write_journal_certificate(blocks, namespace, note)
        certified.append(plan_id)
    return Night(done, retired, certified, still_named)
