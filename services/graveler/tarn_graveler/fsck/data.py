"""`--verify-data`: reads every block whose entry has a plain MD5, each once."""

from __future__ import annotations

import numpy as np

from tarn.aio.parallel import for_each
from tarn_graveler.fsck.confirming import is_intact
from tarn_graveler.fsck.references import Records, SortedReferences, path_of_address
from tarn_graveler.fsck.session import Lake

__all__ = ["verify_data"]


async def verify_data(lake: Lake) -> None:
    """Marks blocks whose bytes have another MD5 as suspects. Continues after the last finished part."""
    state, progress = lake.session.state, lake.session.progress
    step = f"verified {lake.uid}"
    progress.begin(f"{lake.repository.repository_id}: verifying data")

    async def verify(record: Records) -> None:
        block = path_of_address(record["address"].item())
        size = int(record["size"])
        if not await is_intact(lake, block, size, record["md5"].tobytes()):
            state.change(
                "INSERT OR REPLACE INTO suspects VALUES (?, ?, ?, ?, 1)",
                lake.uid,
                int(record["source"]),
                block,
                size,
            )
        progress.done += 1

    for records in SortedReferences(state, lake.uid, 1, state.meta(step)).upto(None):
        plain = records[records["plain"]]
        _, first = np.unique(plain["address"], return_index=True)
        await for_each(plain[first], verify, lake.session.options.concurrency)
        state.set_meta(step, path_of_address(records["address"][-1]))
        state.save()
