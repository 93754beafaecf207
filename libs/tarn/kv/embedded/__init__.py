"""The embedded store: one sqlite file, shared by the processes of one machine.

sql.py          every statement, pragma and table
files.py        checks of the file's folder; the lock on which writers queue
database.py     opens the file: checks, creation, connections
partitions.py   partition names to ids
transaction.py  what one write does inside a transaction
actions.py      the writes that can be queued
writer.py       the event loop's side of writing: a bounded queue
transaction_writer.py  the writer thread: turns queued writes into group writes
reader.py       reads on the event loop's thread, and bulk reads
reading.py      the port for a process that only reads (`tarn fsck`)
scans.py        bulk reads as Arrow, for a process that does nothing else with the store
store.py        `EmbeddedKv`, the port over these parts
"""

from tarn.kv.embedded.store import EmbeddedKv, EmbeddedLimits, open_embedded

__all__ = ["EmbeddedKv", "EmbeddedLimits", "open_embedded"]
