"""Files of events: what is written is read back, with equal bytes; damage is named, and takes no memory."""

from __future__ import annotations

import dataclasses
import random

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from journals import batch_of, branch_record, record, row

from tarn.core.errors import Kind, TarnError
from tarn.journal import files
from tarn.journal.events import (
    EVENT_SCHEMA,
    EventRow,
    event_row,
    operation_name,
    rows_of,
    table_of,
)
from tarn.journal.files import decode_base, decode_file, encode_base, encode_file
from tarn.journal.footer import (
    FOOTER_BYTES_MAX,
    FOOTER_KEY,
    BranchFooter,
    Footer,
    TokenFooter,
    decode_footer,
)
from tarn_proto.store.v1 import journal_pb2 as pb

PATH = "_tarn/journal/x.parquet"
ROWS = [
    record("branches/main", branch_record(["t0"]), 3),
    row("b", b"p" * 90, 2),
    row("a", b"", 1),
    row("ü\0", b"\xff\0", (1 << 63) - 1),
    record("tags/v1", b"tag", 0),
]
FOOTER = Footer(
    "tarn journal",
    1,
    2,
    "a" * 32,
    7,
    begin_time_us=5,
    records=2,
    drained_records=2,
    branches=(BranchFooter("main", 3, (TokenFooter("t0", 3, 3),)),),
)


def test_a_file_comes_back_with_equal_bytes() -> None:
    table = table_of(ROWS)
    body = encode_file(table, FOOTER)
    footer, found = decode_file(PATH, body)
    assert found.equals(table)
    assert msgspec.structs.replace(footer, sha256="") == FOOTER
    assert encode_file(table_of(ROWS[::-1]), FOOTER) == body
    assert sorted(rows_of(found), key=repr) == sorted(ROWS, key=repr)


def test_spark_and_others_read_it_without_a_plug_in() -> None:
    found = pq.read_table(pa.BufferReader(encode_file(table_of(ROWS), FOOTER)))
    assert found.schema.names == EVENT_SCHEMA.names
    assert found.column("key").to_pylist() == table_of(ROWS).column("key").to_pylist()


def test_slices_of_a_table_have_their_own_digest() -> None:
    table = table_of(ROWS)
    for start in range(len(table) + 1):
        body = encode_file(table.slice(start), FOOTER)
        assert decode_file(PATH, body)[1].equals(table.slice(start))


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("order", -1, "negative order"),
        ("key", "", "no key"),
        ("branch", "", "no branch"),
        ("branch", "ma\0in", "NUL"),
    ],
)
def test_rows_that_no_store_holds_are_refused(field: str, value: object, text: str) -> None:
    wrong = dataclasses.replace(row("a", b"p", 1), **{field: value})  # type: ignore[arg-type]
    with pytest.raises(TarnError, match=text) as caught:
        decode_base(PATH, encode_base(pa.Table.from_batches([batch_of([wrong])])))
    assert caught.value.kind is Kind.CORRUPT
    assert PATH in caught.value.message


@pytest.mark.parametrize(
    ("key", "branch"), [("branches/main", "other"), ("branches/main", ""), ("tags/v1", "main")]
)
def test_a_record_under_the_name_of_another_branch_is_refused(key: str, branch: str) -> None:
    wrong = dataclasses.replace(record(key, b"x", 1), branch=branch)
    with pytest.raises(TarnError, match="key of another one"):
        decode_base(PATH, encode_base(pa.Table.from_batches([batch_of([wrong])])))


def test_text_that_is_not_utf8_is_refused() -> None:
    table = table_of([row("a", b"p", 1)])
    place = table.schema.get_field_index("key")
    wrong = pa.array([b"\xff"], pa.binary()).view(pa.string())
    body = encode_base(table.set_column(place, EVENT_SCHEMA.field("key"), wrong))
    with pytest.raises(TarnError, match=PATH):
        decode_base(PATH, body)


def _with_footer(body: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    table = table_of(ROWS).replace_schema_metadata({FOOTER_KEY: body})
    pq.write_table(table, sink)
    made: bytes = sink.getvalue().to_pybytes()
    return made


@pytest.mark.parametrize(
    "footer",
    [
        b"",
        b"{}",
        b"[" * 100_000,
        b"\xff",
        FOOTER.encoded().replace(b'"version":1', b'"version":2'),
        FOOTER.encoded().replace(b'"number":7', b'"number":-7'),
        FOOTER.encoded().replace(b'"drained":3', b'"drained":99999999999999999999'),
        FOOTER.encoded(),  # without the SHA-256
        b" " * (FOOTER_BYTES_MAX + 1),
        msgspec.structs.replace(FOOTER, is_last=False).encoded(),
        msgspec.structs.replace(FOOTER, branches=FOOTER.branches * 2).encoded(),
        msgspec.structs.replace(
            FOOTER, branches=(BranchFooter("main", 3, (TokenFooter("t0", 3, 3),) * 2),)
        ).encoded(),
    ],
)
def test_a_wrong_footer_is_named(footer: bytes) -> None:
    with pytest.raises(TarnError, match=PATH) as caught:
        decode_file(PATH, _with_footer(footer))
    assert caught.value.kind is Kind.CORRUPT


def test_a_footer_of_a_newer_release_may_have_more_fields() -> None:
    more = FOOTER.encoded().replace(b'"number":7', b'"number":7,"novel":{"a":[1]}')
    assert decode_footer(more) == FOOTER


def test_any_changed_byte_is_noticed_or_changes_nothing() -> None:
    """Parquet has no checksum of its own; bytes that nobody reads may change."""
    table = table_of(ROWS)
    body = encode_file(table, FOOTER)
    rng = random.Random(1)
    noticed = 0
    for _ in range(300):
        at = rng.randrange(len(body))
        damaged = body[:at] + bytes((body[at] ^ (1 << rng.randrange(8)),)) + body[at + 1 :]
        try:
            footer, found = decode_file(PATH, damaged)
        except TarnError as error:
            noticed += error.kind is Kind.CORRUPT
        else:
            assert found.equals(table)
            assert msgspec.structs.replace(footer, sha256="") == FOOTER
    assert noticed > 100


def test_a_file_that_decompresses_to_too_much_is_refused() -> None:
    """A few kilobytes with 160 MiB of payloads: one long text, again and again."""
    one = table_of([row("a", b"x" * (1 << 20), 1)])
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, EVENT_SCHEMA, compression="zstd", use_dictionary=True) as writer:
        for _ in range(2):
            writer.write_table(pa.concat_tables([one] * 80))
    body = sink.getvalue().to_pybytes()
    assert len(body) < 1 << 20
    before = pa.total_allocated_bytes()
    with pytest.raises(TarnError, match=PATH):
        decode_base(PATH, body)
    assert pa.total_allocated_bytes() - before < 1 << 20


def test_files_are_bounded_when_they_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "FILE_ROWS", 4)
    with pytest.raises(TarnError, match="5 rows") as caught:
        encode_file(table_of(ROWS), FOOTER)
    assert caught.value.kind is Kind.EXHAUSTED
    many = tuple(BranchFooter(f"b{at:06}", 1, ()) for at in range(20_000))
    with pytest.raises(TarnError, match="20000 branches"):
        encode_file(table_of([]), msgspec.structs.replace(FOOTER, branches=many))


def test_a_footer_that_no_reader_takes_is_not_written() -> None:
    token = TokenFooter("t0", 0, 0)
    twice = msgspec.structs.replace(FOOTER, branches=(BranchFooter("main", 3, (token, token)),))
    with pytest.raises(TarnError, match="twice") as raised:
        encode_file(table_of(ROWS), twice)
    assert raised.value.kind is Kind.INVALID


def test_an_event_keeps_the_id_of_its_first_attempt() -> None:
    event = pb.JournalEvent(
        time_us=1,
        operation=pb.JOURNAL_OPERATION_COMPLETE_UPLOAD,
        key="a",
        payload=b"p",
        event_id=b"f" * 16,
    )
    found = event_row(b"k" * 16, event, branch="main", token="t", order=4)
    assert (found.event_id, found.operation, found.order) == (b"f" * 16, "complete-upload", 4)
    event.event_id = b""
    assert event_row(b"k" * 16, event, branch="main", token="t", order=4).event_id == b"k" * 16
    assert operation_name(999) == "operation-999"


@pytest.mark.parametrize("wrong", [{"event_id": b"short"}, {"order": -1}, {"order": 1 << 63}])
def test_events_without_a_right_id_or_order_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(TarnError):
        table_of([dataclasses.replace(row("a", b"p", 1), **wrong)])  # type: ignore[arg-type]


def test_columns_are_those_of_rows() -> None:
    assert [field.name for field in dataclasses.fields(EventRow)] == EVENT_SCHEMA.names
