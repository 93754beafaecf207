"""The local block store after a power failure: acknowledged blocks are complete, and no block is partial.

Leaving out any sync breaks the promise, which shows that the test detects it. See docs/design/crash.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
from tests.crash.block_story import BlockRun, BlockStory
from tests.crash.examine import (
    FIRST_FAILURE,
    SEED,
    Plan,
    broken_promises,
    contents,
    fast_folder,
    is_missed,
    library,
)
from tests.support.crash.disk import Disk
from tests.support.crash.loss import rebuild_all
from tests.support.crash.recorder import recording
from tests.support.crash.trace import Trace

from tarn.block.local import small

Durability = Literal["fsync", "os"]

_ROUNDS = 80
"""So many that each place in the code which syncs does so several times, whatever groups the threads form."""
_NOT_NEEDED_FOR_FSYNC = (
    # These sync a file that holds nothing yet; the sync of the first transaction covers them.
    "sqlite journal < block.local.small:create_small",
    "sqlite log's frames < block.local.small:create_small",
    "sqlite log's header < block.local.small:create_small",
    # sqlite syncs the folder with its log, and Tarn syncs it again (see test_kv_embedded.py).
    "block.local.tree:Tree.sync_dir < block.local.opening:_prepare",
    "sqlite folder",
    # Protects old frames from new ones under an old header: rows of blocks seldom change a page that an
    # earlier transaction of the same log left behind. test_kv_embedded.py detects that this sync is missing.
    "sqlite log's header < block.local.small:SmallWriter.commit",
    "sqlite log's header < block.local.small:SmallWriter._insert_group",
    # Needed only if two completions race and the power fails between their answers.
    "block.local.tree:Tree.sync_dir < block.local.uploads:LocalUploads._finished",
)
_NOT_NEEDED = (
    *_NOT_NEEDED_FOR_FSYNC,
    # A power failure may take all of it.
    "block.local.tree:make_root",
)

pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def work(tmp_path: Path) -> Iterator[Path]:
    with fast_folder(tmp_path) as folder:
        yield folder


@pytest.fixture(autouse=True)
def _many_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small, "_CHECKPOINT_PAGES", 20)


async def play(work: Path, durability: Durability) -> tuple[Trace, BlockStory]:
    root = work / "recorded"
    root.mkdir()
    with recording(root, library()) as trace:
        story = await BlockRun(trace, SEED, durability).play(_ROUNDS)
    return trace, story


@pytest.mark.parametrize("durability", ["fsync", "os"])
async def test_no_promise_is_broken_by_a_power_failure(work: Path, durability: Durability) -> None:
    trace, story = await play(work, durability)
    assert await broken_promises(trace, story, work, Plan()) == []


async def test_recording_holds_every_byte(work: Path) -> None:
    trace, story = await play(work, "fsync")
    disk = Disk(trace)
    disk.advance(trace.now)
    (work / "rebuilt").mkdir()
    rebuild_all(disk, work / "rebuilt")
    assert contents(work / "rebuilt") == contents(work / "recorded")
    assert sum(block.is_row for block in story.blocks.values()) > 50
    assert sum(not block.is_row for block in story.blocks.values()) > 50
    assert sum(block.removal_answered_at is not None for block in story.blocks.values()) > 10


@pytest.mark.parametrize(
    ("durability", "not_needed"), [("fsync", _NOT_NEEDED_FOR_FSYNC), ("os", _NOT_NEEDED)]
)
async def test_leaving_out_any_sync_is_detected(
    work: Path, durability: Durability, not_needed: tuple[str, ...]
) -> None:
    trace, story = await play(work, durability)
    needed = {site for site in trace.sites if not site.startswith(not_needed)}
    assert len(needed) >= 4
    unmissed = [site for site in sorted(needed) if not await is_missed(site, trace, story, work)]
    assert unmissed == []


async def test_weaker_durability_breaks_the_stronger_promise(work: Path) -> None:
    trace, story = await play(work, "os")
    story.durability = "fsync"
    assert await broken_promises(trace, story, work, FIRST_FAILURE) != []
