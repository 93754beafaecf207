"""Written mutations of the stores, of the core below them, and of the gateway's operations."""

from collections.abc import Sequence
from typing import Final

from tests.mutants.applying import Written

__all__ = ["STORES"]

STORES: Final[Sequence[Written]] = (
    # --- KV
    Written(
        "batch-loses-a-row",
        "tarn.kv.embedded.reader",
        "A full batch of a scan loses a row near its end.",
        "        finally:\n                cursor.close()\n",
        "        finally:\n                cursor.close()\n"
        "            if len(rows) == _BATCH_ROWS:\n"
        "                del rows[-2]\n",
    ),
    Written(
        "partition-never-appears",
        "tarn.kv.embedded.reader",
        "A reader remembers that a partition is not there, and misses it when it is made.",
        "            return self._partitions.find(partition)\n",
        "            self._none = getattr(self, '_none', set())\n"
        "            if partition.name in self._none:\n"
        "                return None\n"
        "            found = self._partitions.find(partition)\n"
        "            if found is None:\n"
        "                self._none.add(partition.name)\n"
        "            return found\n",
    ),
    Written(
        "answered-before-commit",
        "tarn.kv.embedded.transaction_writer",
        "Rows are acknowledged before the transaction that holds them is committed.",
        "                self._take_batch()\n",
        "                self._take_batch()\n"
        "                if all(type(one.action).__name__ == 'SetRows' for one in self._batch):\n"
        "                    self._answer(list(self._batch))\n",
    ),
    Written(
        "columns-lose-a-row",
        "tarn.kv.embedded.scans",
        "A full page of columns loses one of its rows.",
        "return pa.Table.from_batches(batches).cast(ROW_SCHEMA).combine_chunks().to_batches()[0]",
        "found = pa.Table.from_batches(batches).cast(ROW_SCHEMA).combine_chunks().to_batches()[0]\n"
        "        kept = [at for at in range(found.num_rows) if at != 7]\n"
        "        return found if found.num_rows < _PAGE_ROWS else found.take(kept)",
    ),
    Written(
        "buckets-merged-too-far",
        "tarn.kv.cassandra.partitions.buckets",
        "Rows of one bucket are told before smaller ones of another.",
        "until = min(shown) if shown else None",
        "until = max(shown) if shown else None",
    ),
    Written(
        "stamp-as-the-seen-one",
        "tarn.kv.cassandra.rows.timestamps",
        "A row gets the timestamp of the one that it replaces, so that the larger value wins.",
        "return max(self._last_us, seen_us + 1)",
        "return max(self._last_us, seen_us)",
    ),
    Written(
        "failure-taken-for-a-refusal",
        "tarn.kv.cassandra.cluster.outcomes",
        "A write that failed on a replica is told as surely not applied.",
        "    Unavailable,  # the coordinator counts",
        "    WriteFailure,\n    Unavailable,  # the coordinator counts",
    ),
    Written(
        "lease-from-the-answer",
        "tarn.kv.fence",
        "A lease counts from the answer of the read that grants it.",
        "began + LEASE_SECONDS)",
        "self._now() + LEASE_SECONDS)",
    ),
    # --- blocks
    Written(
        "last-range-forgotten",
        "tarn.block.applying",
        "A commit forgets the last range of a listing of many.",
        "await self._go_to(group, len(self._base.ranges))",
        "await self._go_to(group, len(self._base.ranges) - (len(self._base.ranges) > 6))",
    ),
    Written(
        "rest-of-a-range-forgotten",
        "tarn.block.applying",
        "The rows behind the last change of a range are forgotten.",
        "            rows, self._rest = self._rest, EMPTY_RUN\n"
        "            await self._writer.add_old(group, rows)\n",
        "            self._rest = EMPTY_RUN\n",
    ),
    Written(
        "part-not-durable",
        "tarn.block.local.uploads",
        "The folder of an uploaded part is not synced.",
        "            self._intake.tree.sync_dir(target[:-1])\n",
        "            pass\n",
    ),
    Written(
        "block-not-durable",
        "tarn.block.local.intake",
        "The folder of a large block is synced only when it was made for it.",
        "        try:\n            self.tree.sync_dir(target[:-1])\n",
        "        try:\n"
        "            if target[:-1] not in self.tree._known:\n"
        "                self.tree.sync_dir(target[:-1])\n",
    ),
    Written(
        "block-over-a-row",
        "tarn.block.local.group_writer",
        "A large block is placed under a key that a small one has.",
        "if not isinstance(request, _Link) or writer.has(request.namespace, request.path):",
        "if not isinstance(request, _Link):",
    ),
    # --- listings
    Written(
        "listing-ends-at-the-bound",
        "tarn.core.listing.pages",
        "A listing that reads as much as it may in one go ends there.",
        "            return lines.page(lines.last)\n        lasts",
        "            return lines.page(lines.last if lines.is_full else None)\n        lasts",
    ),
    # --- gateway
    Written(
        "copy-staged-twice",
        "tarn_gateway.operations.copying",
        "A copy without a condition is staged twice: a newer PUT between the two goes away.",
        "    await stage(backend, request, repository, branch, path, entry, block=block, condition=condition)\n",
        "    for _ in range(1 if condition else 2):\n"
        "        await stage(backend, request, repository, branch, path, entry, block=block, condition=condition)\n",
    ),
    Written(
        "block-discarded-in-doubt",
        "tarn.objects.writing",
        "The block of a PUT goes although its entry may have been staged.",
        "if block is not None and refused:",
        "if block is not None:",
    ),
    Written(
        "joined-block-not-compared",
        "tarn.objects.completing",
        "A block that another completion made is believed without comparing its bytes.",
        "        if joined.was_there:\n",
        "        if False:\n",
    ),
)
