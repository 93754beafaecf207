"""The embedded store: one sqlite file, shared by the processes of one machine.

sql.py          every statement, pragma and table
files.py        what must be true of the file's folder; the lock that writers queue on
database.py     opens the file: checks, creation, connections
failures.py     what a sqlite error means for the caller
partitions.py   partition names to ids
transaction.py  what one write does inside a transaction
actions.py      the writes that can be queued
writer.py       the writer thread and its group commit
reader.py       reads, inline and in bulk
reading.py      the port for a process that only looks
scans.py        bulk reads as Arrow, for a process that does nothing else with the store
store.py        `EmbeddedKv`, the port over these parts
"""

from tarn.kv.embedded.store import EmbeddedKv, EmbeddedLimits, open_embedded

__all__ = ["EmbeddedKv", "EmbeddedLimits", "open_embedded"]
