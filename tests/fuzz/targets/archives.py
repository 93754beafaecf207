"""Files of snapshots: any bytes are damaged, or come back equal when they are written again.

The first byte says what the rest is.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable

from tests.support.fuzz.target import PropertyError, Target

from tarn.core.dump import from_line, to_line
from tarn.core.errors import Kind, TarnError
from tarn.core.listing.changed_paths import ChangedPaths
from tarn.kv.port import Partition, PartitionKind
from tarn.snapshot.files.chunks import Chunker
from tarn.snapshot.files.content import pack, unpack
from tarn.snapshot.files.manifest import Manifest, decode_index, encode_index

__all__ = ["TARGET"]

_PARTITIONS = tuple(Partition(name, PartitionKind.PLAIN) for name in ("", "test/a", "é" * 99, "\n"))
_REFUSALS = (Kind.CORRUPT, Kind.FAILED_PRECONDITION, Kind.INVALID)


def _index(data: bytes) -> str:
    lines = decode_index(unpack(data, "i"), "i")
    again = [line for text in encode_index(lines) for line in decode_index(text, "i")]
    if again != lines:
        raise PropertyError("an index changes by being written again")
    return f"{min(len(lines), 3)} lines"


def _text(data: bytes) -> str:
    text = unpack(data, "t")
    if unpack(pack(text), "t") != text:
        raise PropertyError("a text changes by being written again")
    return "text"


def _manifest(data: bytes) -> str:
    found = Manifest.decode(data)
    if Manifest.decode(found.encode()) != found:
        raise PropertyError(f"another manifest comes back than {found}")
    return f"manifest of {found.scope.value}"


def _line(data: bytes) -> str:
    found = from_line(data.decode(errors="replace"))
    if from_line(to_line(found)) != found:
        raise PropertyError(f"another line comes back than {found}")
    return type(found).__name__


def _changed(data: bytes) -> str:
    found = ChangedPaths.decode(data)
    again = ChangedPaths.decode(found.encode())
    if again.form is not found.form or again.paths != found.paths:
        raise PropertyError("changed paths change by being written again")
    return found.form.name


_KINDS: tuple[Callable[[bytes], str], ...] = (
    _index,
    _text,
    _manifest,
    _line,
    _changed,
)


def _check(data: bytes) -> str:
    if not data:
        return "empty"
    try:
        return _KINDS[data[0] % len(_KINDS)](data[1:])
    except TarnError as error:
        if error.kind not in _REFUSALS:
            raise PropertyError(f"damage is reported as {error!r}") from error
        raise


def _packed(rng: random.Random, data: bytes) -> bytes:
    """Compresses lines or rows anew, and lies about their size at times."""
    text = rng.choice((data[1:], b"[]," * rng.choice((9, 50_000)), b"[" * rng.choice((9, 90_000))))
    chunker = Chunker(rng.choice(_PARTITIONS))
    chunker.add(b"k", text[:99])
    chunk = chunker.finish()
    body = pack(rng.choice((text, chunk.text, *encode_index([chunk.range]))))
    if rng.random() < 0.3:
        body = rng.choice((0, 9, 1 << 20, 1 << 40)).to_bytes(8, "little") + body[8:]
    return bytes([rng.choice((0, 1))]) + body


def _json(rng: random.Random, data: bytes) -> bytes:
    """Changes a value of a JSON object."""
    try:
        found = json.loads(data[1:])
        name = rng.choice(sorted(found))
        found[name] = rng.choice((None, -1, 1 << 70, "", "\ud800", [], {}, [[]], True, found[name]))
        return data[:1] + json.dumps(found).encode()
    except (ValueError, TypeError, LookupError, RecursionError):
        return data


TARGET = Target(
    "archives",
    _check,
    refusals=(TarnError,),
    traced=(
        "tarn.snapshot.files.chunks",
        "tarn.snapshot.files.content",
        "tarn.snapshot.files.manifest",
        "tarn.core.dump",
        "tarn.core.listing.changed_paths",
    ),
    mutations=(_packed, _json, _json),
    input_bytes_max=128 * 1024,
    memory_bytes=128 << 20,
    cpu_s=4.0,
)
