"""Moves a whole installation between stores, through files or directly, and proves that the copy is complete.

ranges.py       ranges of a partition's rows, and their digests
layout.py       everything that a store holds
dump_format.py  the index and the manifest of a dump; parts.py: its files of rows; dump_folder.py: the folder
dumping.py      store → files
sources.py      the sources of rows: a store or a dump
copying.py      source → store
comparing.py    compares a source with a store
moving.py       whole transfers, with their fences
work.py         concurrency, rate limit and progress
"""

from tarn.snapshot.files.work import RateLimiter, TransferOptions, TransferProgress
from tarn.snapshot.store.comparing import Comparison, Difference, check_dump, compare
from tarn.snapshot.store.dump_folder import DumpFolder, read_dump
from tarn.snapshot.store.moving import (
    OpenStore,
    Transferred,
    dump,
    fill,
    forget_agreed,
    load,
    migrate,
    reopen,
)
from tarn.snapshot.store.sources import DumpSource, Source, StoreSource, Unit

__all__ = [
    "Comparison",
    "Difference",
    "DumpFolder",
    "DumpSource",
    "TransferOptions",
    "RateLimiter",
    "OpenStore",
    "TransferProgress",
    "Source",
    "StoreSource",
    "Transferred",
    "Unit",
    "check_dump",
    "compare",
    "dump",
    "fill",
    "forget_agreed",
    "load",
    "migrate",
    "read_dump",
    "reopen",
]
