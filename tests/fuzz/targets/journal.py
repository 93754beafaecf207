"""Files of the journal: in bounded memory, they are read and written again with equal rows, or refused by name."""

from __future__ import annotations

import json
import random

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from tests.fuzz.targets.parquet import mutations_of
from tests.support.fuzz.target import PropertyError, Target

from tarn.core.errors import Kind, TarnError
from tarn.journal.days import decode_manifest
from tarn.journal.epochs import decode_epoch
from tarn.journal.events import EVENT_SCHEMA
from tarn.journal.files import FILE_LIMITS, decode_file, digest_of, encode_file
from tarn.journal.footer import FOOTER_KEY, BranchFooter, Footer, TokenFooter

__all__ = ["TARGET"]

_PATH = "_tarn/journal/file-of-this-test"
_FOOTER = Footer("tarn journal", 1, 1, "a" * 32, 2)


def _check(data: bytes) -> str:
    try:
        if data.startswith(b"{"):
            return _text(data)
        return _events(data)
    except TarnError as error:
        if error.kind is not Kind.CORRUPT or "_tarn/journal/" not in error.message:
            raise PropertyError(f"damage is reported as {error!r}") from error
        raise


def _text(data: bytes) -> str:
    if b"tarn journal day" in data:
        day = decode_manifest("folder", "2026-11-29", data)
        again = msgspec.json.encode(day)
        if decode_manifest("folder", "2026-11-29", again) != day:
            raise PropertyError("a manifest comes back changed")
        return f"{min(3, len(day.files))} files"
    epoch = decode_epoch(1, data)
    if decode_epoch(1, msgspec.json.encode(epoch)) != epoch:
        raise PropertyError("an epoch comes back changed")
    return f"{epoch.cause} {min(3, len(epoch.base))}"


def _events(data: bytes) -> str:
    footer, table = decode_file(_PATH, data)
    if table.nbytes > 2 * FILE_LIMITS.size_bytes or len(table) > FILE_LIMITS.rows:
        raise PropertyError(f"{len(table)} rows of {table.nbytes} bytes are more than the limits")
    if table.nbytes < 1 << 20:
        again, found = decode_file(_PATH, encode_file(table, footer))
        if again.sha256 != footer.sha256 or not found.equals(table):
            raise PropertyError("a file comes back changed")
    return f"{min(len(table), 3)} rows, {min(3, len(footer.branches))} branches"


def _value(rng: random.Random, field: pa.Field) -> object:
    if field.name == "event_id":
        return rng.randbytes(16)
    if pa.types.is_integer(field.type):
        return rng.choice((0, 1, -1, (1 << 63) - 1, rng.getrandbits(40)))
    if pa.types.is_string(field.type):
        return rng.choice(("", "main", "t0", "branches/main", "ü", "a\0b"))
    return rng.choice((b"", b"p", rng.randbytes(9), b"x" * rng.choice((300, 70_000))))


def _footed(rng: random.Random, data: bytes) -> bytes:
    """Makes a file whose footer is right, or almost."""
    count = rng.randint(0, 4)
    columns = [
        pa.array([_value(rng, field) for _ in range(count)], field.type) for field in EVENT_SCHEMA
    ]
    table = pa.Table.from_arrays(columns, schema=EVENT_SCHEMA)
    tokens = tuple(TokenFooter(each, 1, 1) for each in rng.sample(("t0", "t1", ""), 2))
    branches = tuple(BranchFooter(each, 1, tokens) for each in rng.sample(("main", "a"), 2))
    footer = msgspec.structs.replace(
        _FOOTER, branches=branches[: rng.randint(0, 2)], is_last=rng.random() < 0.7
    )
    if rng.random() < 0.9:
        footer = msgspec.structs.replace(footer, sha256=digest_of(table, footer))
    about = footer.encoded()
    if rng.random() < 0.3:
        about = _json(rng, about)
    sink = pa.BufferOutputStream()
    pq.write_table(table.replace_schema_metadata({FOOTER_KEY: about}), sink)
    made: bytes = sink.getvalue().to_pybytes()
    return made


def _json(rng: random.Random, data: bytes) -> bytes:
    """Changes a value of a JSON object."""
    try:
        found = json.loads(data)
        name = rng.choice(sorted(found))
        found[name] = rng.choice((None, -1, 1 << 70, "", "\ud800", [], {}, [[]], True, found[name]))
        return json.dumps(found).encode()
    except (ValueError, TypeError, LookupError, RecursionError):
        return data


TARGET = Target(
    "journal",
    _check,
    refusals=(TarnError,),
    traced=(
        "tarn.journal.files",
        "tarn.journal.footer",
        "tarn.journal.epochs",
        "tarn.core.parquet",
    ),
    mutations=(*mutations_of(EVENT_SCHEMA, _value), _footed, _footed, _json),
    tokens=(b"PAR1", b"tarn.journal", b'"is_last":false', b"[[[["),
    input_bytes_max=64 * 1024,
    memory_bytes=512 << 20,
    cpu_s=4.0,
)
