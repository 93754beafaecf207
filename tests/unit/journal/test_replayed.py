"""The result of a replay goes through a file, and what is damaged or of another kind is refused."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from tarn.core.errors import Kind, TarnError
from tarn.journal.accounts import BranchAccount, LostEvents, MissingFiles, Report
from tarn.journal.replayed import BuiltListing, ReplayedJournal, load_replayed, save_replayed

REPORT = Report(
    1,
    2,
    3,
    4,
    {"main": BranchAccount(1, 2, 3, is_unsettled=True)},
    (MissingFiles("a" * 32, 1, 2),),
    (("path", "why"),),
    ("unfinished",),
    (LostEvents("a" * 32, "main", "t", 5),),
)
REPLAYED = ReplayedJournal(
    namespace="local://lake",
    epoch=1,
    folder="1-a",
    files_sha256="0" * 64,
    report=REPORT,
    records=(("branches/main", b"\0\xff", 7),),
    entries=(("main", b"\xff"),),
    unreadable=(("dev", 2),),
    listings=(BuiltListing("main", 3, "a" * 64), BuiltListing("dev", 0, None, "why")),
)


def test_a_result_is_read_as_it_was_written_and_only_its_owner_may(tmp_path: Path) -> None:
    path = tmp_path / "lake.replayed"
    path.write_text("an earlier result")
    save_replayed(path, REPLAYED)
    found = load_replayed(path)
    assert found.sha256 == REPLAYED.digest()
    assert (found.records, found.entries, found.unreadable, found.listings) == (
        REPLAYED.records,
        REPLAYED.entries,
        REPLAYED.unreadable,
        REPLAYED.listings,
    )
    assert found.report == REPORT
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


def test_a_damaged_result_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "lake.replayed"
    save_replayed(path, REPLAYED)
    body = path.read_bytes()
    wrong = [
        body.replace(b'"branches/main"', b'"branches/mail"'),
        body.replace(b"tarn replayed journal", b"something else"),
        body.replace(b'"version":1', b'"version":2'),
        body[:-9],
        b"",
        b"[" * 100_000,
        b"\xff",
    ]
    for each in wrong:
        path.write_bytes(each)
        with pytest.raises(
            TarnError, match=r"lake.replayed.*run tarn_spark.rebuild again"
        ) as caught:
            load_replayed(path)
        assert caught.value.kind is Kind.CORRUPT
    path.unlink()
    with pytest.raises(TarnError, match="No such file") as caught:
        load_replayed(path)
    assert caught.value.kind is Kind.INVALID
