"""Parquet files as previews: columns with their statistics and the first rows, read by a child process.

`tarn_api.web.parquet_child` says why. One child runs at a time: it takes half a second of a processor, and reading an
object's page is all that it costs to start one.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from types import MappingProxyType
from typing import Final

import msgspec
import structlog

from tarn_api.web.parquet_child import OUTPUT_BYTES_MAX, ROWS_MAX

__all__ = ["Column", "Facts", "is_parquet", "parquet_of"]

_MAGIC: Final = b"PAR1"
_WHOLE_BYTES_MAX: Final = 8 * 1024 * 1024
"""Files up to this size are read as a whole, and show rows."""
_FOOTER_BYTES_MAX: Final = 1024 * 1024
_TAIL: Final = 8
"""Bytes behind the footer: its length, and the magic number."""
_SECONDS: Final = 10.0
_ENVIRONMENT: Final = MappingProxyType(
    {
        "ARROW_DEFAULT_MEMORY_POOL": "system",  # others reserve address space
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
)
_log = structlog.get_logger()

Read = Callable[[int, int], Awaitable[bytes]]
"""Reads bytes of an object: takes where they begin, and how many they are."""


class Column(msgspec.Struct, frozen=True):
    """A column of a file.

    Attributes:
        name: its path.
        kind: its type.
        nulls: values that are missing; None: the file does not tell.
        least: its smallest value; empty: the file does not tell.
        most: its greatest value.
    """

    name: str
    kind: str
    nulls: int | None
    least: str
    most: str


class Facts(msgspec.Struct, frozen=True):
    """What a page shows of a file.

    Attributes:
        rows: number of its rows.
        groups: number of its row groups.
        writer: the program that wrote it.
        column_count: number of its columns.
        columns: the first ones.
        head: names of the columns of `first`; empty without rows.
        first: the first rows.
    """

    rows: int
    groups: int
    writer: str
    column_count: int
    columns: list[Column]
    head: list[str] = []
    first: list[list[str]] = []

    @property
    def is_cut(self) -> bool:
        """Whether there are more rows."""
        return bool(self.head) and self.rows > ROWS_MAX


def is_parquet(begin: bytes) -> bool:
    """Whether an object with these first bytes is a Parquet file."""
    return begin.startswith(_MAGIC)


async def parquet_of(size: int, read: Read, reading: asyncio.Lock) -> Facts | None:
    """Returns what a Parquet file says; None: it is none, it exceeds the bounds, or another one is being read.

    Args:
        size: of the object in bytes.
        read: reads the object.
        reading: held while a file is read.
    """
    if size < len(_MAGIC) + _TAIL or reading.locked():
        return None
    await reading.acquire()
    is_held = True
    try:
        is_whole = size <= _WHOLE_BYTES_MAX
        if is_whole:
            body = await read(0, size)
        else:
            tail = await read(size - _TAIL, _TAIL)
            footer = int.from_bytes(tail[:4], "little")
            if footer > min(_FOOTER_BYTES_MAX, size - len(_MAGIC) - _TAIL):
                return None
            body = _MAGIC + await read(size - _TAIL - footer, footer + _TAIL)
        what = "rows" if is_whole else "about"
        work = asyncio.ensure_future(asyncio.to_thread(_facts_of, body, what))
        # Whoever goes leaves the child behind: the next one waits for its end.
        work.add_done_callback(lambda _: reading.release())
        is_held = False
        return await asyncio.shield(work)
    finally:
        if is_held:
            reading.release()


def _facts_of(body: bytes, what: str) -> Facts | None:
    """Runs the child. Its answer is a file in memory, whose size the child bounds before it reads a byte."""
    answer = os.memfd_create("parquet-preview")
    try:
        subprocess.run(  # noqa: S603 - no part of a request is in the command
            [sys.executable, "-I", "-m", "tarn_api.web.parquet_child", what],
            input=body,
            stdout=answer,
            stderr=subprocess.DEVNULL,
            env=dict(_ENVIRONMENT),
            timeout=_SECONDS,
            check=True,
        )
        return msgspec.json.decode(os.pread(answer, OUTPUT_BYTES_MAX, 0), type=Facts)
    except (subprocess.SubprocessError, msgspec.DecodeError, OSError) as error:
        _log.info("a parquet file could not be previewed", error=type(error).__name__)
        return None
    finally:
        os.close(answer)
