"""Moves a whole installation between stores, through files or directly, and proves that the copy is complete.

layout.py     everything that a store holds
dumping.py    store → chunks
sources.py    the sources of rows: a store or a snapshot
renaming.py   a source whose staging tokens have new names
copying.py    source → store
comparing.py  compares a source with a store
moving.py     whole transfers, with their fences
"""

from tarn.snapshot.files.work import RateLimiter, TransferOptions, TransferProgress
from tarn.snapshot.store.comparing import Comparison, Difference, compare
from tarn.snapshot.store.moving import (
    OpenStore,
    Transferred,
    check_empty,
    closed,
    dump,
    fill,
    forget_agreed,
    load,
    migrate,
    reopen,
)
from tarn.snapshot.store.sources import Piece, SnapshotSource, Source, StoreSource, Unit

__all__ = [
    "Comparison",
    "Difference",
    "OpenStore",
    "Piece",
    "RateLimiter",
    "SnapshotSource",
    "Source",
    "StoreSource",
    "TransferOptions",
    "TransferProgress",
    "Transferred",
    "Unit",
    "check_empty",
    "closed",
    "compare",
    "dump",
    "fill",
    "forget_agreed",
    "load",
    "migrate",
    "reopen",
]
