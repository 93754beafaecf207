"""A night of a journal: what was erased is gone from it, and only then there is a certificate that says so."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from journals import branch_record, record, row
from tests.support.clock import ManualClock, SeededIds

from tarn.block.mem import MemBlockStore
from tarn.block.port import BlockKey
from tarn.collection.erasure_files import (
    OBJECTS_SCHEMA,
    Certificate,
    ErasurePlan,
    encode_list,
    write_certificate,
    write_plan,
)
from tarn.collection.quarantine import Tally
from tarn.core.listing.run import addresses_of
from tarn.journal.compacting import InProcess
from tarn.journal.epochs import Epoch, EpochCause, begin_epoch, next_epoch
from tarn.journal.events import table_of
from tarn.journal.files import decode_base
from tarn.journal.retention import GRACE_US
from tarn.journal.writing import BranchPass, JournalWriter
from tarn_cli.__main__ import run
from tarn_cli.nightly_journal import Night, nightly

LAKE = "mem://lake"
HOUR = 3_600_000_000
DAY = 24 * HOUR
PLAN = "b" * 32
GONE, YOUNG, OTHER = (each * 16 for each in (b"g", b"y", b"o"))


def entry(address: bytes) -> bytes:
    return bytes(18) + address + bytes(34)


async def erased(blocks: MemBlockStore) -> None:
    """Plans an erasure of two blocks, one of which is too young, and certifies its run."""
    paths = [("x", GONE, True, False), ("y", YOUNG, True, True), ("z", OTHER, False, False)]
    rows = [
        {"path": path, "address": address, "size": 1, "matches": matches, "too_young": young}
        for path, address, matches, young in paths
    ]
    body, digest = encode_list(pa.Table.from_pylist(rows, schema=OBJECTS_SCHEMA))
    plan = ErasurePlan(
        PLAN, "lake", "x", 1, "admin", 1, digest, Tally(1, 1), Tally(1, 1), 2, 0, {}, {}, 0
    )
    await write_plan(blocks, LAKE, plan, body)
    await write_certificate(
        blocks, LAKE, Certificate(plan, "admin", 1, 2, Tally(1, 1), "c" * 32, "d" * 64, 0, "")
    )


async def test_a_certificate_follows_when_no_file_names_an_erased_block(tmp_path: Path) -> None:
    clock = ManualClock()
    blocks = MemBlockStore(clock)
    epoch = next_epoch(None, "e" * 32, EpochCause.ENABLED, HOUR)
    await begin_epoch(blocks, LAKE, epoch)
    writer = JournalWriter(blocks, LAKE, epoch, "a" * 32)
    rows = [
        record("branches/main", branch_record(["t1"], commit="d"), 5),
        row("x", entry(GONE), 1),
        row("y", entry(YOUNG), 1),
        row("z", entry(OTHER), 1),
    ]
    await writer.write(
        2 * HOUR, table_of(rows), [BranchPass("main", 5, ["t1"], ["t0"])], is_full=True
    )
    path = f"_tarn/erased/{PLAN}/journal.json"
    ids = SeededIds(clock)

    async def night() -> Night:
        def made(found: Epoch) -> InProcess:
            return InProcess(blocks, LAKE, found, ids, tmp_path / "runs")

        long = 100 * 365 * DAY
        return await nightly(blocks, LAKE, made, clock, keep_us=long, keep_epochs_us=long)

    first = await night()
    assert (first.certified, first.still_named) == ([], []), "nothing was erased"
    await erased(blocks)
    second = await night()
    assert (second.certified, second.still_named) == ([], [PLAN]), "in the files of before"
    clock.advance(GRACE_US / 1_000_000 + 1)
    third = await night()
    assert third.retired.replaced > 0
    assert (third.certified, third.still_named) == ([PLAN], [])
    told = json.loads(await blocks.read(BlockKey(LAKE, path)))
    assert (told["plan_id"], told["run_id"], told["blocks"]) == (PLAN, "c" * 32, 1)
    left = set()
    for each in await blocks.list_page(LAKE, "_tarn/journal/", "", 100):
        if each.path.endswith(".parquet"):
            table = decode_base(each.path, await blocks.read(BlockKey(LAKE, each.path)))
            left |= {*addresses_of(table.column("payload")).to_pylist()}
    assert {YOUNG, OTHER} < left
    assert GONE not in left
    fourth = await night()
    assert (fourth.compacted, fourth.certified) == (None, [])


async def test_a_file_that_cannot_be_read_may_name_it(tmp_path: Path) -> None:
    clock = ManualClock()
    blocks = MemBlockStore(clock)
    await begin_epoch(blocks, LAKE, next_epoch(None, "e" * 32, EpochCause.ENABLED, HOUR))
    await erased(blocks)
    stray = BlockKey(LAKE, f"_tarn/journal/{1:010d}-{'f' * 32}/base/{1:010d}.parquet")
    await blocks.put(stray, b"damaged")

    def made(found: Epoch) -> InProcess:
        return InProcess(blocks, LAKE, found, SeededIds(clock), tmp_path / "runs")

    found = await nightly(blocks, LAKE, made, clock, keep_us=DAY, keep_epochs_us=DAY)
    assert (found.certified, found.still_named) == ([], [PLAN])


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--master", "local[*]"), "go with --spark"),
        (("--spark", "--conf", "spark.driver.memory"), "--conf takes KEY=VALUE"),
        (("--keep-days", "-1"), "--keep-days"),
        (("--keep-epochs-days", "1"), "--keep-epochs-days"),
        (("--spark", "--master", "spark://127.0.0.1:7077"), "in a folder of this machine"),
    ],
)
def test_wrong_options_end_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], told: str
) -> None:
    (tmp_path / "blocks").mkdir()
    assert run(["journal", "compact", "--data-dir", str(tmp_path), *arguments]) == 2
    assert told in capsys.readouterr().err
