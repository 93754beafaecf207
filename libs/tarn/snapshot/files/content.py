"""Files that are named by their content: chunks of rows, and the index of a snapshot.

Equal texts are stored once, however many snapshots hold them, and a reader checks every file by its name. All have one
bound: a reader takes no more memory than the largest text that Tarn writes, whatever a stranger put into the file.
"""

from __future__ import annotations

import asyncio
import hashlib
import struct
from typing import Final

import pyarrow as pa

from tarn.core.errors import Kind, Reason, TarnError
from tarn.kv.port import KEY_BYTES_MAX, VALUE_BYTES_MAX
from tarn.snapshot.files.target import Target

__all__ = [
    "CONTENT",
    "FILE_BYTES_MAX",
    "TEXT_BYTES",
    "TEXT_ROWS",
    "content_file",
    "corrupt_error",
    "digest_of_text",
    "pack",
    "read_content",
    "unpack",
    "write_content",
]

CONTENT: Final = "content"
"""The folder of these files in a target."""
TEXT_BYTES: Final = 4 << 20
"""A text ends with the row or line that reaches this size."""
TEXT_ROWS: Final = 16_384
"""A text has at most so many rows or lines."""
_TEXT_BYTES_MAX: Final = TEXT_BYTES + TEXT_ROWS * 8 + KEY_BYTES_MAX + VALUE_BYTES_MAX + 8192
FILE_BYTES_MAX: Final = _TEXT_BYTES_MAX + (_TEXT_BYTES_MAX >> 6)
"""Size of the largest file: compression makes some texts longer."""
_SIZE: Final = struct.Struct("<Q")
_CODEC: Final = "zstd"


def corrupt_error(text: str) -> TarnError:
    """The error for a snapshot that is damaged, or for files that are not one."""
    return TarnError(Kind.CORRUPT, Reason.DATA_CORRUPT, text)


def digest_of_text(text: bytes) -> str:
    """The SHA-256 of a text, in hex."""
    return hashlib.sha256(text).hexdigest()


def content_file(digest: str) -> str:
    """The name of the file of a text in the target."""
    return f"{CONTENT}/{digest[:2]}/{digest}.zst"


async def write_content(target: Target, text: bytes, digest: str) -> int:
    """Writes a text, if the target lacks it. Returns the size of the new file, 0 if there is one already.

    Raises:
        TarnError: of the target. OSError: the target cannot be written.
    """
    name = content_file(digest)
    if await target.has(name):
        return 0
    data = await asyncio.to_thread(pack, text)
    await target.put(name, data)
    return len(data)


async def read_content(target: Target, digest: str) -> bytes:
    """Returns a text.

    Raises:
        TarnError: CORRUPT: it is missing, damaged, or has another digest. Also the target's errors.
    """
    name = content_file(digest)
    try:
        data = await target.read(name, FILE_BYTES_MAX)
    except TarnError as error:
        if error.kind is not Kind.NOT_FOUND:
            raise
        raise corrupt_error(f"{name} is missing in {target.about}; use another copy") from error
    return await asyncio.to_thread(unpack, data, name, digest)


def pack(text: bytes) -> bytes:
    """Compresses a file: the size of its text as u64, little-endian, then one zstd frame."""
    packed: bytes = pa.compress(text, codec=_CODEC, asbytes=True)
    return _SIZE.pack(len(text)) + packed


def unpack(data: bytes, about: str, digest: str = "") -> bytes:
    """Decompresses a file. A text that is too long is refused before memory is taken.

    Args:
        data: the file.
        about: its name, for errors.
        digest: of the text; empty: any.

    Raises:
        TarnError: CORRUPT.
    """
    if len(data) < _SIZE.size:
        raise corrupt_error(f"{about} has {len(data)} bytes: it was cut off")
    (size,) = _SIZE.unpack_from(data)
    if size > _TEXT_BYTES_MAX:
        raise corrupt_error(f"{about} claims to hold {size} bytes, more than {_TEXT_BYTES_MAX}")
    try:
        text: bytes = pa.decompress(data[_SIZE.size :], size, codec=_CODEC, asbytes=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise corrupt_error(f"{about} cannot be decompressed: {error}") from error
    if digest and digest_of_text(text) != digest:
        text_ = f"{about} was changed: its content does not have the digest in its name"
        raise corrupt_error(text_)
    return text
