"""Moving a whole installation between stores, by way of files or directly, and proving that all of it is there.

ranges.py       rows of a partition from key to key, and their digest
layout.py       everything that a store holds
dump_format.py  the texts of a dump; parts.py its files of rows; dump_folder.py the folder
dumping.py      store → files
sources.py      what rows are read from: a store or a dump
copying.py      source → store
comparing.py    source and store: do they hold the same?
moving.py       whole transfers, with their fences
work.py         how much at once, how fast, how far
"""

from tarn.kv.transfer.comparing import Comparison, Difference, check_dump, compare
from tarn.kv.transfer.dump_folder import DumpFolder, read_dump
from tarn.kv.transfer.moving import (
    OpenStore,
    Transferred,
    dump,
    forget_agreed,
    load,
    migrate,
    reopen,
)
from tarn.kv.transfer.sources import DumpSource, Source, StoreSource
from tarn.kv.transfer.work import Progress, RateLimiter, TransferOptions

__all__ = [
    "Comparison",
    "Difference",
    "DumpFolder",
    "DumpSource",
    "TransferOptions",
    "RateLimiter",
    "OpenStore",
    "Progress",
    "Source",
    "StoreSource",
    "Transferred",
    "check_dump",
    "compare",
    "dump",
    "forget_agreed",
    "load",
    "migrate",
    "read_dump",
    "reopen",
]
